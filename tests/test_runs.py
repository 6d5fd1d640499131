"""Which runs there are, and how two of them differ."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import child
import pytest
from sklearn.metrics import normalized_mutual_info_score

from deepcluster.cli import main


@pytest.fixture(scope="module")
def folder(textures: Callable[[int], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs, of which the second has other settings and one image less."""
    place = tmp_path_factory.mktemp("two")
    images = textures(24)
    common = "--preset small --network.width 16 --device cpu --epochs 1".split()
    for name, flags in (("one", "--k 4"), ("deep/two", "--k 3 --seed 5")):
        words = ["train", str(images), *common, *flags.split(), "--out", f"runs/{name}"]
        code, output = child.run(words, place)
        assert code == 0, output
        min(images.rglob("*.png")).unlink()
    return place / "runs"


def test_runs_are_listed(folder: Path, capsys: pytest.CaptureFixture):
    assert main(["runs", str(folder)]) == 0
    head, first, second = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["run", "images", "network"]
    assert first.split()[:5] == ["one", "24", "alexnet", "rgb", "64"]
    assert first.split()[5:7] == ["4", "1"]
    assert second.split()[:2] == ["deep/two", "23"]
    assert "  finished  " in second
    assert second.endswith("look closer: the loss is near that of guessing")  # after one epoch


def test_unfinished_and_damaged_runs_are_listed_too(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture
):
    for name in ("half", "broken"):
        shutil.copytree(folder / "one", tmp_path / name)
    (tmp_path / "half/closing.json").unlink()
    (tmp_path / "broken/settings.json").write_text("{")
    assert main(["runs", str(tmp_path)]) == 0
    output = capsys.readouterr().out
    assert "not finished" in output
    assert "  1/1  " in output
    assert "settings.json cannot be read" in output
    (tmp_path / "empty").mkdir()
    assert main(["runs", str(tmp_path / "empty")]) == 0
    assert "no runs in" in capsys.readouterr().out
    assert main(["runs", str(tmp_path / "gone")]) == 2


def test_listing_runs_imports_no_torch(folder: Path):
    text = (
        "import sys; from deepcluster.cli import main; main(['runs', sys.argv[1]]); "
        "sys.exit('torch' in sys.modules or 'sklearn' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", text, str(folder)], check=False)
    assert done.returncode == 0


def test_two_runs_are_compared(folder: Path, capsys: pytest.CaptureFixture):
    assert main(["diff", str(folder / "one"), str(folder / "deep/two")]) == 0
    output = capsys.readouterr().out
    assert "  clustering.k: 4 | 3\n" in output
    assert "  seed: 0 | 5\n" in output
    assert "settings: 2 differ" in output
    assert "images: 23 in both" in output
    assert "1 in the first only: kind0/0000.png" in output
    assert "second only" not in output
    groups = []
    for name in ("one", "deep/two"):
        table = child.table(folder / name / "clusters.parquet")
        groups.append(dict(zip(table["path"], table["cluster"], strict=True)))
    common = sorted(groups[0].keys() & groups[1].keys())
    labels = [[one[path] for path in common] for one in groups]
    expected = normalized_mutual_info_score(*labels, average_method="geometric")
    assert f"groups: NMI {expected:.3f} over the 23 common images" in output
    loss = json.loads((folder / "one/journal.jsonl").read_text())["loss"]
    assert f"last training loss: {loss:.4f} | " in output


def test_a_run_and_itself_do_not_differ(folder: Path, capsys: pytest.CaptureFixture):
    assert main(["diff", str(folder / "one"), str(folder / "one")]) == 0
    output = capsys.readouterr().out
    assert "settings: the same" in output
    assert "NMI 1.000 over the 24" in output
    assert "only" not in output


def test_runs_are_compared_by_their_names(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(folder.parent)
    assert main(["diff", "one", "deep/two"]) == 0


def test_of_a_run_that_its_minutes_ended_the_epochs_are_told(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture
):
    run = Path(shutil.copytree(folder / "one", tmp_path / "runs/one"))
    settings = json.loads((run / "settings.json").read_text())
    settings["effective"] |= {"epochs": 500, "minutes": 0.1}
    (run / "settings.json").write_text(json.dumps(settings))
    assert main(["runs", str(tmp_path / "runs")]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[5:7] == ["4", "1"]


def test_bad_input(folder: Path, capsys: pytest.CaptureFixture):
    assert main(["diff", str(folder / "one"), str(folder / "three")]) == 2
    assert "three: no such run" in capsys.readouterr().err
    assert main(["runs", "--folder", str(folder)]) == 2
    assert (
        capsys.readouterr().err
        == "deepcluster: no such option --folder; see deepcluster runs --help\n"
    )
    assert main(["runs", str(folder), "more"]) == 2
    assert "more: not understood; see deepcluster runs --help" in capsys.readouterr().err
    assert main(["diff", str(folder / "one")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
