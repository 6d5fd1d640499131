"""What stages keep, and when they compute anew."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deepcluster.evaluation import transfer
from deepcluster.evaluation.bench import Bench
from deepcluster.evaluation.evaluated import Evaluated, untrained
from deepcluster.evaluation.subject import Shape
from deepcluster.evaluation.transfer import Contender, Stages, time_spent
from deepcluster.runtime.display import Display
from deepcluster.runtime.run_folder import RunFolder
from deepcluster.studies.outcome import _TIME_ALONE


def test_a_network_is_named_once_a_seed_and_every_copy_is_fresh():
    made: list[int] = []

    def network(seed: int) -> Evaluated:
        made.append(seed)
        return untrained(Shape(input_size=64, width=8), seed)

    contender = Contender("random", network)
    names = [contender.fingerprint(seed) for seed in (0, 1, 0, 1)]
    assert made == [0, 1]
    assert names[:2] == names[2:] == [network(seed).fingerprint for seed in (0, 1)]
    assert contender.network(0) is not contender.network(0)


def test_what_is_said_of_time():
    results = [{"seconds": {"learn": 1.0, "all": 40.0}}, {"seconds": {"all": 4.84}}]
    learnt = "44.8 s to learn and test with 2 seeds"
    assert time_spent(results) == [learnt]
    choice = {"candidates": [{}, {}, {}], "seconds": {"learn": 94.0, "test": 1.1}}
    said = time_spent(results, choice)
    assert said == ["95.1 s to choose among 3 candidates", learnt]
    assert all(_TIME_ALONE.fullmatch(line) for line in said)  # by which studies know them
    del choice["seconds"]  # as earlier versions have kept it
    assert time_spent(results, choice) == [learnt]


def test_a_stage_is_computed_once_for_the_same_key(tmp_path: Path):
    calls: list[int] = []

    def compute() -> dict[str, Any]:
        calls.append(1)
        return {"figure": len(calls)}

    stages = Stages(RunFolder(tmp_path), {"precision": "float32"})
    assert stages("choice", {"seed": 0}, compute) == {"figure": 1}
    assert stages("choice", {"seed": 0}, compute) == {"figure": 1}
    assert stages("choice", {"seed": 1}, compute) == {"figure": 2}
    other = Stages(RunFolder(tmp_path), {"precision": "bfloat16"})
    assert other("choice", {"seed": 0}, compute) == {"figure": 3}
    assert replace(stages, fresh=True)("choice", {"seed": 0}, compute) == {"figure": 4}
    assert stages("choice", {"seed": 0}, compute) == {"figure": 4}


def test_what_was_kept_is_called_what_its_file_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """Names hold numbers: a step of 1e-05 is not one of 1e 05."""
    name = "detection-fc6-8-seed-0-val-step-1e-05"
    monkeypatch.setenv("COLUMNS", "400")
    bench = Bench(display=Display())
    for folder, lenders in (("own", ()), ("own", ()), ("other", (tmp_path / "own",))):
        stages = Stages(RunFolder(tmp_path / folder), bench=bench, lenders=lenders)
        stages(name, {}, dict)
    assert capsys.readouterr().out.splitlines() == [
        f"{name}: kept from before",
        f"{name}: taken from {tmp_path / 'own'}",
    ]


def test_a_damaged_stage_is_computed_again(tmp_path: Path):
    stages = Stages(RunFolder(tmp_path))
    stages("choice", {}, lambda: {"figure": 1})
    (kept,) = (tmp_path / "stages").iterdir()
    kept.write_text('{"fig')
    assert stages("choice", {}, lambda: {"figure": 2}) == {"figure": 2}


def test_a_stage_that_others_have_computed_is_taken_over(tmp_path: Path):
    lender, own = (Stages(RunFolder(tmp_path / name), {"task": 1}) for name in ("lender", "own"))
    own = replace(own, lenders=(tmp_path / "nobody", tmp_path / "lender"))
    lender("choice", {"seed": 0}, lambda: {"figure": 1})
    assert own("choice", {"seed": 0}, lambda: {"figure": 2}) == {"figure": 1}
    assert own("choice", {"seed": 1}, lambda: {"figure": 2}) == {"figure": 2}  # another key
    (kept,) = (tmp_path / "lender/stages").iterdir()
    copy = tmp_path / "own/stages" / kept.name
    assert copy.read_bytes() == kept.read_bytes()
    kept.write_text(kept.read_text().replace("1", "3"))
    assert own("choice", {"seed": 0}, lambda: {"figure": 4}) == {"figure": 1}  # its own is first
    copy.unlink()
    kept.write_text('{"fig')
    assert own("choice", {"seed": 0}, lambda: {"figure": 4}) == {"figure": 4}
    again = replace(own, fresh=True)
    assert again("choice", {"seed": 0}, lambda: {"figure": 5}) == {"figure": 5}


def test_it_is_known_by_which_code_a_stage_was_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def stages_at(commit: str) -> Stages:
        monkeypatch.setattr(transfer, "circumstances", lambda: {"commit": commit})
        return Stages(RunFolder(tmp_path))

    for seed in (0, 1):
        stages_at("old")("choice", {"seed": seed}, dict)
    new = stages_at("new")
    for seed in (0, 1, 2, 3):
        assert new("choice", {"seed": seed}, dict) == {}
    assert new.made == [{"commit": "old"}, {"commit": "new"}]
    for kept in (tmp_path / "stages").iterdir():
        kept.write_text("{}")  # as an older version has left them
    unknown = stages_at("new")
    assert unknown("choice", {"seed": 0}, dict) == {}
    assert unknown.made == [transfer.UNKNOWN]


def test_the_same_weights_for_images_of_another_size_are_another_network():
    """Stages are kept by this name, and figures depend on the size of the crops."""
    shape = Shape(arch="resnet18", input_size=64)
    first = untrained(shape, seed=0)
    assert untrained(shape, seed=0).fingerprint == first.fingerprint
    other = untrained(replace(shape, input_size=96), seed=0)
    for one, same in zip(first.network.parameters(), other.network.parameters(), strict=True):
        assert one.equal(same)
    assert other.fingerprint != first.fingerprint
    taught_otherwise = Shape(input_size=64, width=8, dropout=0.1)
    assert (
        untrained(taught_otherwise, seed=0).fingerprint
        != untrained(replace(taught_otherwise, dropout=0.5), seed=0).fingerprint
    )
