from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import NoReturn

import pytest

from deepcluster import reading_flags, train_command
from deepcluster.check_command import Check
from deepcluster.clusters import KMeans, PowerIteration
from deepcluster.images.kept import Pixels
from deepcluster.pack_command import Pack
from deepcluster.presets import PRESETS, small, small_pic
from deepcluster.reading_flags import ReadingFlags
from deepcluster.runtime.errors import UsageError
from deepcluster.session import Asked
from deepcluster.settings import Run, flat
from deepcluster.train_command import (
    SHORT,
    Common,
    Train,
    parsed,
    taken_auto_k,
    taken_preset,
    train,
    with_suggested_k,
)


def test_a_flag_changes_the_preset_and_keeps_the_rest():
    preset, rest = taken_preset(["photos", "--preset", "small", "--k", "7", "--seed=3"])
    run = parsed(rest, preset).run
    changed = {name for name, value in flat(run).items() if value != flat(small())[name]}
    assert changed == {"clustering.k", "seed"}
    assert run.clustering == KMeans(k=7)
    assert run.seed == 3


@pytest.mark.parametrize("name", ["paper-pic", "paper_pic"])
def test_both_spellings_of_a_preset(name: str):
    preset, _ = taken_preset(["photos", f"--preset={name}"])
    assert isinstance(preset.clustering, PowerIteration)


def test_a_variants_own_settings_can_be_set():
    preset, rest = taken_preset(["photos", "--preset", "paper-pic", "--clustering.sigma", "auto"])
    assert parsed(rest, preset).run.clustering == PowerIteration(sigma="auto")


def test_flags_may_be_spelled_with_underscores():
    run = parsed(["photos", "--network.input_size", "128"], Run()).run
    assert run.network.input_size == 128


@pytest.mark.parametrize("beginning", [["--arch", "resnet18"], ["--init", "weights.safetensors"]])
def test_no_reason_is_told_for_filters_that_do_not_begin_as_patches(
    beginning: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "a.png").touch()
    asked: list[Asked] = []

    def noticed(one: Asked, *_: object) -> NoReturn:
        asked.append(one)
        raise KeyboardInterrupt

    monkeypatch.setattr(train_command, "carry_to_the_end", noticed)
    for words in ([], beginning):
        with pytest.raises(KeyboardInterrupt):
            train([str(tmp_path), *words, "--device", "cpu"])
    told = [" ".join(one.settle(300, False)[1]) for one in asked]
    assert ["groups of patches" in reasons for reasons in told] == [True, False]


def test_every_common_flag_exists():
    own = {entry.name for entry in fields(Train)} | {"preset"}
    for entry in fields(Common):
        flag = "--" + entry.name.replace("_", "-")
        long = SHORT.get(flag, flag).removeprefix("--").replace("-", "_")
        assert long in own or long in flat(Run()), flag


def test_the_common_help_names_every_preset():
    import inspect

    source = inspect.getsource(Common)
    assert [name for name in PRESETS if name not in source] == []


@pytest.mark.parametrize("flag", ["--help", "--help-all"])
def test_help_ends_with_zero(flag: str, capsys: pytest.CaptureFixture[str]):
    from deepcluster.train_command import train

    with pytest.raises(SystemExit) as stop:
        train([flag])
    assert stop.value.code == 0
    shown = capsys.readouterr().out
    assert "--epochs" in shown
    assert ("--whitening.dimensions" in shown) == (flag == "--help-all")
    if flag == "--help":
        assert len(shown.splitlines()) < 60


@pytest.mark.parametrize("words", [["--k", "auto"], ["--k=auto"], ["--clustering.k", "auto"]])
def test_k_auto_follows_the_images_and_says_why(words: list[str]):
    preset, rest = taken_preset(["photos", "--preset", "small", *words, "--seed", "3"])
    follows, rest = taken_auto_k(rest)
    assert follows
    assert rest == ["photos", "--seed", "3"]
    run, why = with_suggested_k(parsed(rest, preset).run, 3000)
    assert run.clustering == KMeans(k=76)
    assert why == ["k = 76 groups: 3,000^0.8 / 8, about 39 images each"]
    assert taken_auto_k([]) == (False, [])
    assert taken_auto_k(["photos", "--clustering.k", "7"]) == (
        False,
        ["photos", "--clustering.k", "7"],
    )
    with pytest.raises(UsageError, match="finds the number of groups itself"):
        with_suggested_k(small_pic(), 3000)


def test_every_flag_of_reading_is_a_setting_of_all_verbs_that_read(tmp_path: Path):
    given = {entry.name: f"a {entry.name}" for entry in fields(ReadingFlags)}
    assert vars(replace(Pixels(), **given)).items() >= given.items()
    check, pack = Check(images=tmp_path, **given), Pack(tmp_path, tmp_path, shape="square", **given)
    assert check.how == replace(Pixels(), **given)
    assert pack.how == replace(Pixels(), shape="square", colour="grey", **given)
    for flag, long in reading_flags.SHORT.items():
        assert SHORT[flag] == long
        assert long.removeprefix("--").replace("-", "_") in flat(Run())
