"""What is wrong with a command line, in plain words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

import pytest

from deepcluster import flags
from deepcluster.runtime.errors import UsageError


@dataclass(frozen=True)
class Nested:
    """Settings in settings."""

    learn_on: Annotated[
        Literal["train", "val", "trainval", "test"] | None, flags.shown_as("{...}")
    ] = None


@dataclass(frozen=True)
class Asked:
    """Settings of every kind that a verb has."""

    count: int = 1
    share: float = 0.5
    minutes: float | None = None
    workers: flags.Count = None
    to: Literal["safetensors", "onnx", "torchvision", "huggingface"] = "onnx"
    year: Literal[2007, 2012] | None = None
    settings: Nested = field(default_factory=Nested)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--count", "many"], "--count: 'many' is no whole number; see deepcluster verb --help"),
        (["--count", "1.5"], "--count: '1.5' is no whole number; see deepcluster verb --help"),
        (["--share", "half"], "--share: 'half' is no number; see deepcluster verb --help"),
        (["--minutes", "soon"], "--minutes: give a number; see deepcluster verb --help"),
        (["--workers", "2.5"], "--workers: give a whole number; see deepcluster verb --help"),
        (["--year", "2010"], "--year 2010: there are 2007, 2012"),
        (
            ["--settings.learn-on", "all"],
            "--settings.learn-on all: there are train, val, trainval, test",
        ),
        (["--to", "tflite"], "--to tflite: there are safetensors, onnx, torchvision, huggingface"),
    ],
)
def test_a_value_that_does_not_fit(words: list[str], said: str):
    with pytest.raises(UsageError) as refusal:
        flags.parsed(Asked, words, "verb")
    assert str(refusal.value) == said


def test_values_that_fit():
    words = ["--count", "3", "--minutes", "0.5", "--workers", "2", "--to", "safetensors"]
    assert flags.parsed(Asked, words, "verb") == Asked(3, 0.5, 0.5, 2, "safetensors")


@pytest.mark.parametrize("word", ["--no-resume", "--speed.no-record-steps", "--speed.record-steps"])
def test_a_switch_has_an_opposite(word: str):
    flags.refuse_unknown([word], ["--resume", "--speed.record-steps"], "deepcluster verb -h", {})


def test_an_opposite_of_nothing_is_refused():
    with pytest.raises(UsageError, match=r"no such option --speed\.no-recording"):
        flags.refuse_unknown(["--speed.no-recording"], ["--speed.x"], "deepcluster verb -h", {})
