"""What stages keep, and when they compute anew."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from deepcluster.evaluation.transfer import Stages
from deepcluster.runtime.run_folder import RunFolder


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
