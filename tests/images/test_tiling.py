"""Large images in tiles: no pixel twice, none left out."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import tifffile
from PIL import Image

from deepcluster.images import sheet
from deepcluster.images.folder import Found
from deepcluster.images.sheet import sheet_of
from deepcluster.images.source import Folder, source_of
from deepcluster.images.tiling import LIST, Tiling, _names
from deepcluster.images.unusable import Unusable
from deepcluster.runtime.errors import UsageError


@pytest.mark.parametrize(("width", "height"), [(1, 1), (64, 200), (65, 64), (1000, 333), (129, 1)])
def test_boxes_cover_an_image_once(width: int, height: int) -> None:
    covered = np.zeros((height, width), dtype=int)
    boxes = Tiling(64).boxes(width, height)
    for left, top, right, bottom in boxes:
        covered[top:bottom, left:right] += 1
        assert 0 < right - left <= 64
        assert 0 < bottom - top <= 64
        assert right - left >= min(width, 32)  # and no slivers
    assert (covered == 1).all()


def joined(out: Path, parent: str) -> np.ndarray:
    rows = pq.ParquetFile(out / LIST).read(use_threads=False).to_pylist()
    mine = [row for row in rows if row["parent"] == parent]
    width = max(row["x"] + row["width"] for row in mine)
    height = max(row["y"] + row["height"] for row in mine)
    whole = np.zeros((height, width, 3), np.uint8)
    for row in mine:
        tile = np.asarray(Image.open(out / row["path"]).convert("RGB"))
        assert tile.shape[:2] == (row["height"], row["width"])
        whole[row["y"] :, row["x"] :][: row["height"], : row["width"]] = tile
    return whole


@pytest.fixture
def scenes(tmp_path: Path, picture: Callable[..., Image.Image]) -> Path:
    root = tmp_path / "scenes"
    (root / "city").mkdir(parents=True)
    picture(300, 200).save(root / "city/a.png")
    options = {"tile": (64, 64), "compression": "zlib", "photometric": "rgb"}
    tifffile.imwrite(root / "city/b.tif", np.asarray(picture(330, 260, 1)), **options)
    levels = np.random.default_rng(0).integers(0, 256, (150, 170, 6), dtype=np.uint8)
    tifffile.imwrite(root / "bands.tif", levels, planarconfig="contig", photometric="minisblack")
    (root / "empty.jpg").write_bytes(b"")
    return root


def test_tiles_are_the_image(
    scenes: Path,
    tmp_path: Path,
    picture: Callable[..., Image.Image],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sheet, "MAX_PIXELS", 1000)  # so that TIFFs are read piece by piece
    seen: list[tuple[int, int]] = []
    tiling = Tiling(128, "6,2,1")
    outcome = tiling(
        Folder(scenes), tmp_path / "out", 2, lambda done, total: seen.append((done, total))
    )
    assert outcome == (3, 6 + 9 + 4, [("empty.jpg", "empty file")])
    assert seen == [(done, 19) for done in range(1, 20)]
    assert np.array_equal(joined(tmp_path / "out", "city/a.png"), picture(300, 200))
    assert np.array_equal(joined(tmp_path / "out", "city/b.tif"), picture(330, 260, 1))
    levels = tifffile.imread(scenes / "bands.tif")[..., [5, 1, 0]]
    assert np.array_equal(joined(tmp_path / "out", "bands.tif"), levels)
    found = source_of(tmp_path / "out" / LIST).find()
    assert {one.label for one in found} == {"city", "bands.tif"}
    assert all(one.reason is None for one in found)
    assert [one.path for one in found] == [one.path for one in Folder(tmp_path / "out").find()]


def test_it_goes_on_where_it_was_and_takes_what_is_new(scenes: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"

    class StopError(Exception):
        pass

    def stop(done: int, total: int) -> None:
        if done == 8:  # in the second image
            raise StopError

    with pytest.raises(StopError):
        Tiling(128, "6,2,1")(Folder(scenes), out, 1, stop)
    assert not (out / LIST).exists()
    times = {path: path.stat().st_mtime_ns for path in out.rglob("bands.tif/*.png")}
    assert len(times) == 4
    Tiling(128, "6,2,1")(Folder(scenes), out, 1)
    assert {path: path.stat().st_mtime_ns for path in times} == times
    Tiling(128, "6,2,1")(Folder(scenes), tmp_path / "whole", 1)
    files = {path.relative_to(out): path.read_bytes() for path in out.rglob("*-*.png")}
    assert files == {
        path.relative_to(tmp_path / "whole"): path.read_bytes()
        for path in (tmp_path / "whole").rglob("*-*.png")
    }
    assert (out / LIST).read_bytes() == (tmp_path / "whole" / LIST).read_bytes()
    Image.new("RGB", (50, 50)).save(scenes / "new.png")
    Image.new("RGB", (100, 90)).save(scenes / "city/a.png")
    (scenes / "bands.tif").unlink()
    assert Tiling(128, "6,2,1")(Folder(scenes), out, 1)[:2] == (3, 1 + 9 + 1)
    assert len(list(out.rglob("*-*.png"))) == 11  # and none of what is no more
    with pytest.raises(UsageError, match="other settings"):
        Tiling(64, "6,2,1")(Folder(scenes), out, 1)


def test_one_window_for_the_whole_scene(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sheet, "MAX_PIXELS", 1000)
    ramp = np.tile(np.arange(0, 4000, 4, dtype=np.uint16), (300, 1))
    file = io.BytesIO()
    tifffile.imwrite(file, ramp, tile=(64, 64), photometric="minisblack")
    large = sheet_of(file)
    left, right = (np.asarray(large.part(at, 0, at + 100, 100)) for at in (0, 900))
    assert left.max() < 40
    assert right.min() > 215


@pytest.mark.parametrize(
    ("kind", "expected"), [("miniswhite", 55), ("palette", 200), ("alpha", 255)]
)
def test_colours_of_a_large_tiff(kind: str, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sheet, "MAX_PIXELS", 1000)
    file = io.BytesIO()
    if kind == "palette":
        colours = np.zeros((3, 256), np.uint16)
        colours[:, 200] = 200 * 257
        flat = np.full((64, 64), 200, np.uint8)
        tifffile.imwrite(file, flat, photometric="palette", colormap=colours)
    elif kind == "alpha":
        clear = np.zeros((64, 64, 4), np.uint8)
        tifffile.imwrite(file, clear, photometric="rgb", extrasamples=["unassalpha"])
    else:
        tifffile.imwrite(file, np.full((64, 64), 200, np.uint8), photometric=kind)
    assert (np.asarray(sheet_of(file).part(3, 3, 9, 9)) == expected).all()


def test_what_pillow_would_call_a_bomb_is_cut_up_to_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = Image.MAX_IMAGE_PIXELS
    file = io.BytesIO()
    Image.new("L", (300, 200)).save(file, "PNG")
    monkeypatch.setattr(sheet, "WHOLE", 59_999)
    file.seek(0)
    with pytest.raises(Unusable, match="too many pixels"):
        sheet_of(file)
    monkeypatch.setattr(sheet, "WHOLE", 60_000)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10_000)
    file.seek(0)
    assert sheet_of(file).part(0, 0, 300, 200).size == (300, 200)
    assert Image.MAX_IMAGE_PIXELS == 10_000
    monkeypatch.undo()
    assert before == Image.MAX_IMAGE_PIXELS


def test_no_path_leads_out_of_the_folder() -> None:
    paths = ["/x/a.tif", "../x/a.tif", "x/a.tif", "x/../../a.tif", "../..", "a\nb.tif"]
    names = _names([Found(path, 0, 0) for path in paths])
    assert names == ["x/a.tif", "x/a.tif~2", "x/a.tif~3", "x/a.tif~4", "image", "a%0Ab.tif"]
