"""What stages keep, and when they compute anew."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from deepcluster.evaluation.evaluated import Evaluated, untrained
from deepcluster.evaluation.subject import Shape
from deepcluster.evaluation.transfer import Contender, Stages
from deepcluster.runtime.run_folder import RunFolder


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


def test_a_damaged_stage_is_computed_again(tmp_path: Path):
    stages = Stages(RunFolder(tmp_path))
    stages("choice", {}, lambda: {"figure": 1})
    (kept,) = (tmp_path / "stages").iterdir()
    kept.write_text('{"fig')
    assert stages("choice", {}, lambda: {"figure": 2}) == {"figure": 2}


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
