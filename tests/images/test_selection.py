"""Frames and bands as images of their own."""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image

from deepcluster.images import crew, selection
from deepcluster.images.decode import read
from deepcluster.images.index import Index
from deepcluster.images.kept import Pixels
from deepcluster.images.packing import pack
from deepcluster.images.selection import band_numbers, selected
from deepcluster.images.source import Folder, source_of
from deepcluster.runtime.errors import UsageError

Picture = Callable[..., Image.Image]


def pixels(image: Image.Image) -> np.ndarray:
    return np.asarray(image.convert("RGB")).astype(int)


@pytest.fixture
def mixed(tmp_path: Path, picture: Picture) -> Path:
    """Animations, pages, bands, and ordinary pictures."""
    root = tmp_path / "mixed"
    (root / "cats").mkdir(parents=True)
    frames = [picture(40, 30, seed) for seed in range(11)]
    for name, count, options in (
        ("cats/a.gif", 11, {}),
        ("a.webp", 3, {"lossless": True}),
        ("a.png", 3, {}),
        ("pages.tif", 2, {}),
    ):
        frames[0].save(root / name, save_all=True, append_images=frames[1:count], **options)
    picture(50, 40).save(root / "one.jpg")
    picture(50, 40).save(root / "one.gif")
    return root


def test_all_frames_are_images_in_their_order(mixed: Path, picture: Picture) -> None:
    frames = selected(Folder(mixed), Pixels(frames="all"))
    paths = [found.path for found in frames.find()]
    assert paths == [
        "a.png/1", "a.png/2", "a.png/3", "a.webp/1", "a.webp/2", "a.webp/3",
        *(f"cats/a.gif/{number:02d}" for number in range(1, 12)),
        "one.gif", "one.jpg", "pages.tif/1", "pages.tif/2",
    ]  # fmt: skip
    for path in paths:
        allowed = 13 if "gif" in path else 0 if "/" in path else 8
        seed = int(path.rpartition("/")[2]) - 1 if "/" in path else 0
        expected = picture(40, 30, seed) if "/" in path else picture(50, 40)
        assert np.abs(pixels(read(path, frames)) - pixels(expected)).mean() <= allowed, path
    backwards = [pixels(read(path, frames)) for path in reversed(paths)]
    forwards = [pixels(read(path, frames)) for path in paths]
    assert all(map(np.array_equal, forwards, reversed(backwards)))
    labels = {found.path: found.label for found in frames.find()}
    assert labels["cats/a.gif/01"] == "cats"  # and not the animation
    assert labels["a.png/1"] is None


def test_an_index_of_frames_holds_and_notices_changes(mixed: Path, picture: Picture) -> None:
    before = {path: hashlib.sha256(path.read_bytes()).digest() for path in mixed.rglob("*.*")}
    index = Index.build(selected(Folder(mixed), Pixels(frames="all")), 2)
    assert len(index) == 21
    assert not any(index.changes(selected(Folder(mixed), Pixels(frames="all"))))
    frames = [picture(40, 30, seed) for seed in (0, 7, 8, 9)]
    frames[0].save(mixed / "a.webp", save_all=True, append_images=frames[1:], lossless=True)
    changes = index.changes(selected(Folder(mixed), Pixels(frames="all")))
    assert changes.added == ["a.webp/4"]
    assert changes.changed == ["a.webp/2", "a.webp/3"]
    assert all(
        hashlib.sha256(path.read_bytes()).digest() == digest
        for path, digest in before.items()
        if path.name != "a.webp"
    )


@pytest.mark.slow
def test_processes_and_threads_pack_the_same_frames(
    mixed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    how = Pixels(frames="all")
    threads = pack(selected(Folder(mixed), Pixels(frames="all")), tmp_path / "t", "rgb", how, 2)
    monkeypatch.setattr(crew, "PROCESSES_PAY", 1)
    processes = pack(selected(Folder(mixed), Pixels(frames="all")), tmp_path / "p", "rgb", how, 2)
    assert threads.contents == processes.contents
    assert np.array_equal(threads.pixels, processes.pixels)
    assert threads.contents.how.frames == "all"


def test_frames_of_members_of_shards(mixed: Path, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "0.tar", "w") as tar:
        tar.add(mixed / "a.png", "a.png")
    shards = selected(source_of(tmp_path / "*.tar"), Pixels(frames="all"))
    assert [found.path for found in shards.find()] == [f"0.tar/a.png/{n}" for n in (1, 2, 3)]
    files = selected(Folder(mixed), Pixels(frames="all"))
    for number in (1, 2, 3):
        there, here = f"0.tar/a.png/{number}", f"a.png/{number}"
        assert np.array_equal(pixels(read(there, shards)), pixels(read(here, files)))


def test_too_many_frames_are_refused(mixed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "MOST_FRAMES", 5)
    reasons = dict(Index.build(selected(Folder(mixed), Pixels(frames="all")), 1).unusable)
    assert reasons == {"cats/a.gif": "more than 5 frames"}


def test_damage_of_one_page_costs_that_page(tmp_path: Path, picture: Picture) -> None:
    pages = [picture(40, 30, seed) for seed in range(3)]
    options = {"save_all": True, "append_images": pages[1:], "compression": "tiff_adobe_deflate"}
    pages[0].save(tmp_path / "a.tif", **options)
    whole = bytearray((tmp_path / "a.tif").read_bytes())
    with tifffile.TiffFile(tmp_path / "a.tif") as file:
        begin = file.pages[1].dataoffsets[0]
    whole[begin + 20 : begin + 400] = bytes(380)
    (tmp_path / "a.tif").write_bytes(whole)
    index = Index.build(selected(Folder(tmp_path), Pixels(frames="all")), 1)
    assert index.paths == ["a.tif/1", "a.tif/3"]
    assert index.unusable == [("a.tif/2", "damaged or unsupported")]


def test_only_what_is_taken_out_of_a_file_is_read_here(mixed: Path) -> None:
    tifffile.imwrite(mixed / "b.tif", np.zeros((20, 20, 8), np.uint8), planarconfig="contig")
    both = selected(Folder(mixed), Pixels(frames="all", bands="4,3,2"))
    there = {found.path: both.extent(found.path) for found in both.find()}
    assert {path for path, extent in there.items() if extent is not None} == {"one.jpg", "one.gif"}


def test_bands_are_chosen_in_one_window(tmp_path: Path) -> None:
    levels = np.random.default_rng(0).integers(0, 3000, (40, 50, 8)).astype(np.uint16)
    levels[..., 3] //= 2  # band 4 is darker, and must stay so
    tifffile.imwrite(tmp_path / "a.tif", levels, photometric="minisblack", planarconfig="contig")
    tifffile.imwrite(tmp_path / "b.png", levels, photometric="minisblack", planarconfig="contig")
    Image.new("RGB", (40, 30), "red").save(tmp_path / "c.tif")
    Image.new("RGB", (40, 30), "red").save(tmp_path / "d.jpg")
    tifffile.imwrite(
        tmp_path / "e.tif", levels[..., :5], photometric="minisblack", planarconfig="contig"
    )
    assert dict(Index.build(Folder(tmp_path), 1).unusable) == {
        "a.tif": "TIFF of 8 bands: choose three with --bands",
        "b.png": "TIFF of 8 bands: choose three with --bands",
        "e.tif": "TIFF of 5 bands: choose three with --bands",
    }
    chosen = selected(Folder(tmp_path), Pixels(bands="8,4,1"))
    assert dict(Index.build(chosen, 1).unusable) == {
        "e.tif": "TIFF of 5 bands: --bands asks for number 8"
    }
    wanted = levels[..., [7, 3, 0]].astype(float)
    low, high = np.percentile(wanted, (0.5, 99.5))
    expected = np.rint(((wanted - low) / (high - low)).clip(0, 1) * 255)
    for name in ("a.tif", "b.png"):
        assert np.abs(pixels(read(name, chosen)) - expected).max() <= 1
    assert pixels(read("c.tif", chosen))[0, 0].tolist() == [255, 0, 0]
    grey = pixels(read("a.tif", selected(Folder(tmp_path), Pixels(bands="4"))))
    assert (grey[..., 0] == grey[..., 2]).all()


@pytest.mark.parametrize("text", ["", "4,3", "1,2,3,4", "a,b,c", "0,1,2", "-1"])
def test_bands_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--bands"):
        band_numbers(text)
    assert band_numbers("4,3,2") == (4, 3, 2)
