"""Which run a name means, where the name promises what it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from deepcluster.evaluation.subject import judged_run, trained_run
from deepcluster.runtime.errors import UsageError
from deepcluster.runtime.run_folder import RunFolder
from deepcluster.settings import Run, flat


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def finished(name: str, labels: str, front: str) -> None:
    folder = RunFolder(Path("runs") / name)
    effective = {**flat(Run()), "labels": labels, "network.front": front}
    folder.begin({"asked": {}, "effective": effective, "data": ""})
    folder.write("closing.json", '{"sha256": {}}')
    folder.write("model.safetensors", "")


def test_a_baseline_is_what_its_name_promises():
    for name, front in (
        ("supervised", "rgb"),
        ("supervised-rgb", "rgb"),
        ("supervised-sobel", "sobel"),
    ):
        finished(name, "folders", front)
        assert judged_run(name).path == Path("runs") / name


@pytest.mark.parametrize(
    ("name", "labels", "front", "why"),
    [
        ("supervised-rgb", "folders", "sobel", "has the front sobel, and supervised-rgb means"),
        ("supervised-sobel", "folders", "rgb", "has the front rgb, and supervised-sobel means"),
        ("supervised-sobel", "clusters", "sobel", "has learnt no labels"),
        ("supervised", "clusters", "sobel", "has learnt no labels"),
    ],
)
def test_a_run_that_is_called_as_a_baseline_and_is_none_is_refused(
    name: str, labels: str, front: str, why: str
):
    finished(name, labels, front)
    with pytest.raises(UsageError, match=f"runs/{name} {why}.*make it: .* --out runs/{name}"):
        judged_run(name)
    # By its path, or where it is only looked at, it is a run like any other.
    assert judged_run(f"runs/{name}").path == trained_run(name).path == Path("runs") / name


def test_a_name_that_is_nearly_a_baselines_is_asked_about():
    with pytest.raises(UsageError, match=r"no run supervised-blue; .*did you mean supervised"):
        judged_run("supervised-blue")
    with pytest.raises(UsageError, match=r"--network.front sobel --out runs/supervised-sobel"):
        judged_run("supervised-sobel")
