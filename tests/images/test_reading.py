"""What the user may say of how files become pictures, on every way that a picture takes."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tifffile
import torch
from PIL import Image

from deepcluster.cli import main
from deepcluster.collection.sight import FileSight, Preprocessing
from deepcluster.images import crew
from deepcluster.images.decode import Unusable, decode, decode_pixels
from deepcluster.images.index import Index
from deepcluster.images.kept import Pixels
from deepcluster.images.packing import pack
from deepcluster.images.reading import Reading
from deepcluster.images.selection import selected
from deepcluster.images.source import Folder
from deepcluster.images.store import Store
from deepcluster.settings import Run, flat

Picture = Callable[..., Image.Image]
WAYS = [
    lambda data, reading: decode(io.BytesIO(data), reading)[0],
    lambda data, reading: decode_pixels(data, reading)[0],
]


def seen_by_network(root: Path, how: Pixels) -> tuple[list[str | None], torch.Tensor]:
    """The reasons against the files, and the pixels of the others, as embed sees them."""
    sight = FileSight(Folder(root), Preprocessing.of(flat(Run(pixels=how))))
    (block,) = sight.blocks(8, 1)
    return [row["reason"] for row in block.rows], block.crops


@pytest.mark.parametrize("kind", ["jpg", "png", "webp", "gif", "bmp", "tif"])
@pytest.mark.parametrize("way", WAYS)
def test_the_limit_of_pixels_is_the_users(
    kind: str, way: Callable[[bytes, Reading], object], picture: Picture, tmp_path: Path
) -> None:
    picture(40, 30).save(tmp_path / f"a.{kind}")
    data = (tmp_path / f"a.{kind}").read_bytes()
    way(data, Reading(max_pixels=1200))
    with pytest.raises(Unusable) as refused:
        way(data, Reading(max_pixels=1199))
    assert refused.value.reason == (
        "too many pixels (0.0012 MP > --max-pixels 0.0012 MP): deepcluster tile cuts it"
    )


@pytest.mark.parametrize("way", WAYS)
def test_pillows_own_limit_does_not_stand_in_the_way(
    way: Callable[[bytes, Reading], object], picture: Picture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 500)  # it refuses from the double on
    file = io.BytesIO()
    picture(40, 30).save(file, "PNG")
    with pytest.raises(Unusable, match=r"too many pixels \(0.0012 MP > --max-pixels 0.0003 MP\)"):
        way(file.getvalue(), Reading(max_pixels=300))
    way(file.getvalue(), Reading(max_pixels=1200))


def test_frames_and_bands_have_the_same_limit(tmp_path: Path, picture: Picture) -> None:
    frames = [picture(40, 30, seed) for seed in range(2)]
    frames[0].save(tmp_path / "a.tif", save_all=True, append_images=frames[1:])
    levels = np.random.default_rng(0).integers(0, 256, (30, 40, 6), dtype=np.uint8)
    tifffile.imwrite(tmp_path / "b.tif", levels, photometric="minisblack", planarconfig="contig")
    how = Pixels(frames="all", bands="4,3,2", max_pixels=1200)
    assert len(Index.build(selected(Folder(tmp_path), how), 1, how=how)) == 3
    how = replace(how, max_pixels=1199)
    unusable = Index.build(selected(Folder(tmp_path), how), 1, how=how).unusable
    assert len(unusable) == 2  # a file whose first frame is refused is not looked through
    assert all(reason.startswith("too many pixels") for _, reason in unusable)


def test_large_images_are_left_out_by_every_way_of_reading(
    tmp_path: Path, picture: Picture, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "images"
    root.mkdir()
    for number, kind in enumerate(("jpg", "png", "webp")):
        picture(40, 30, number).save(root / f"small.{kind}")
        picture(50, 30, number).save(root / f"wide.{kind}")
    how = Pixels(max_pixels=1200, short_side=64)
    index = Index.build(root, 2, how=how)
    assert index.paths == ["small.jpg", "small.png", "small.webp"]
    store = pack(Folder(root), tmp_path / "threads", "rgb", how, 2)
    assert store.index.table.equals(index.table)
    assert store.contents.how == replace(how, colour="rgb")
    monkeypatch.setattr(crew, "PROCESSES_PAY", 1)
    processes = pack(Folder(root), tmp_path / "processes", "rgb", how, 2)
    for name in ("pixels.u8", "index.parquet", "store.json"):
        assert (store.folder / name).read_bytes() == (processes.folder / name).read_bytes()
    reasons, crops = seen_by_network(root, how)
    assert reasons == index.table["reason"].to_pylist()
    assert len(crops) == 3
    assert len(pack(Folder(root), tmp_path / "threads", "rgb", Pixels(), 2)) == 6


def test_verbs_take_the_limit(
    tmp_path: Path, textures: Callable[[int], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    images = textures(24)
    Image.linear_gradient("L").resize((300, 100)).save(images / "kind0/wide.png")
    assert main(["check", str(images), "--max-pixels", "20000"]) == 0
    said = capsys.readouterr().out
    assert "1  too many pixels (0.03 MP > --max-pixels 0.02 MP): deepcluster tile cuts it" in said
    store = tmp_path / "store"
    assert main(["pack", str(images), str(store), "--max-pixels", "20000"]) == 0
    assert len(Store(store)) == 24
    capsys.readouterr()
    assert main(["pack", str(images), str(store)]) == 2
    assert "other settings (max-pixels 20000)" in capsys.readouterr().err
    for verb in (["check", str(images)], ["pack", str(images), "s"], ["train", str(images)]):
        assert main([*verb, "--max-pixels", "0"]) == 2
        assert "--max-pixels 0: use at least 1" in capsys.readouterr().err
