"""Cutting as a verb, and frames and bands through the verbs that read images."""

from __future__ import annotations

import hashlib
import signal
from pathlib import Path

import child
import numpy as np
import pytest
import tifffile
from PIL import Image

from deepcluster import check_command, plan
from deepcluster.cli import main
from deepcluster.images.store import Store

Capture = pytest.CaptureFixture[str]
SETTINGS = f"{child.PLAIN} --k 3 --epochs 1 --batch 16 --network.width 16 --device cpu".split()


@pytest.fixture
def scenes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two scenes of eight bands, an animation, a few pictures, a file that is none."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    (tmp_path / "scenes").mkdir()
    for number in range(2):
        levels = random.integers(0, 4000, (150, 140, 8)).astype(np.uint16)
        place = f"scenes/{number}.tif"
        tifffile.imwrite(place, levels, planarconfig="contig", photometric="minisblack")
    frames = [Image.fromarray(random.integers(0, 256, (80, 90, 3), np.uint8)) for _ in range(16)]
    frames[0].save("scenes/a.gif", save_all=True, append_images=frames[1:6])
    for number, frame in enumerate(frames[6:]):
        frame.save(f"scenes/{number}.png")
    return tmp_path / "scenes"


def digest(root: Path) -> str:
    parts = [(str(path), path.stat().st_mtime_ns, path.read_bytes()) for path in root.iterdir()]
    return hashlib.sha256(repr(sorted(parts)).encode()).hexdigest()


def test_tiles_can_be_trained_on(scenes: Path, capsys: Capture) -> None:
    before = digest(scenes)
    (scenes / "empty.png").write_bytes(b"")
    assert main(["tile", "scenes", "out", "--side", "64", "--bands", "8,4,1"]) == 0
    said = capsys.readouterr().out
    assert "left out: 1  empty file, such as empty.png" in said
    assert "next: deepcluster train out/tiles.parquet" in said
    (scenes / "empty.png").unlink()
    assert digest(scenes) == before
    assert main(["tile", "scenes/0.tif", "one", "--bands", "1"]) == 0
    assert sorted(path.name for path in Path("one/0.tif").iterdir()) == ["000000-000000.png"]


def test_killed_and_asked_again_it_is_whole(scenes: Path, tmp_path: Path) -> None:
    words = ["tile", "scenes", "--bands", "1,2,3"]
    assert child.run([*words, "cut"], tmp_path, "tile.image:kill@4")[0] == -signal.SIGKILL
    for out in ("cut", "whole"):
        code, output = child.run([*words, out], tmp_path)
        assert code == 0, output
    for path in (tmp_path / "whole").rglob("*-*.png"):
        other = tmp_path / "cut" / path.relative_to(tmp_path / "whole")
        assert other.read_bytes() == path.read_bytes()
    lists = {(tmp_path / out / "tiles.parquet").read_bytes() for out in ("cut", "whole")}
    assert len(lists) == 1


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["tile", "scenes"], 2, "which tiles? deepcluster tile IMAGES TILES"),
        (["tile", "nowhere", "out"], 2, "nowhere: no such file"),
        (["tile", "scenes", "scenes/out"], 2, "lies in scenes"),
        (["tile", "scenes", "full"], 2, "already holds 'mine.txt'"),
        (["tile", "scenes", "out", "--side", "9"], 2, "--side 9: use at least 64"),
        (["tile", "scenes", "out", "--sides", "99"], 2, "did you mean --side?"),
        (["tile", "scenes", "out", "--bands", "1,2"], 2, "--bands 1,2: give three numbers"),
        (["tile", "bad", "out"], 3, "no image in bad could be cut"),
        (["check", "scenes", "--bands", "0,1,2"], 2, "bands are counted from 1"),
        (["pack", "scenes", "st", "--bands", "x"], 2, "--bands x: give three numbers"),
        (["train", "scenes", "--bands", "4"], 2, "--epochs 0"),
    ],
)
def test_misuse_is_one_sentence(
    words: list[str], code: int, said: str, scenes: Path, tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine.txt").write_text("mine")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad/a.png").write_bytes(b"")
    more = ["--epochs", "0"] if words[0] == "train" else []
    assert main([*words, *more]) == code
    complaint = capsys.readouterr().err
    assert said in complaint
    assert complaint.count("deepcluster: ") == 1
    assert "Traceback" not in complaint
    assert (tmp_path / "full/mine.txt").read_text() == "mine"


def test_check_tells_what_to_do_and_then_takes_them(
    scenes: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(plan, "SECONDS", 0.01)
    monkeypatch.setattr(check_command, "best_device", lambda: "cpu")
    assert main(["check", "scenes"]) == 3
    said = capsys.readouterr().out
    assert "2  TIFF of 8 bands: choose three with --bands, such as 0.tif" in said
    assert "1 P (first of several frames)" in said
    assert main(["check", "scenes", "--frames", "all", "--bands", "4,3,2"]) == 0
    assert "18 files in scenes: 18 can be used" in capsys.readouterr().out


def test_a_run_reads_frames_and_bands_as_its_store_has_them(scenes: Path, tmp_path: Path) -> None:
    before = digest(scenes)
    chosen = ["--frames", "all", "--bands", "8,4,1"]
    for words in (
        ["pack", "scenes", "store", *chosen],
        ["train", "scenes", *SETTINGS, *chosen, "--out", "by-files"],
        ["train", "store", *SETTINGS, "--out", "by-store"],
        ["embed", "by-files", "scenes", "--out", "rows.npy"],
    ):
        code, output = child.run(words, tmp_path)
        assert code == 0, output
    assert len(Store(tmp_path / "store")) == 18
    runs = (tmp_path / out / "model.safetensors" for out in ("by-files", "by-store"))
    models = {model.read_bytes() for model in runs}
    assert len(models) == 1
    assert len(np.load(tmp_path / "rows.npy")) == 18
    code, output = child.run(["train", "scenes", *SETTINGS, "--out", "by-files"], tmp_path)
    assert code == 4
    assert "have changed" in output or "other settings" in output
    assert digest(scenes) == before
