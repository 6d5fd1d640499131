"""Thumbnails of images wherever they come from."""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from deepcluster.images.album import colours_of
from deepcluster.images.index import Index
from deepcluster.images.kept import Pixels
from deepcluster.images.loader import Images
from deepcluster.images.packing import pack
from deepcluster.images.source import source_of
from deepcluster.images.stored import StoredImages
from deepcluster.runtime.run_folder import RunFolder
from deepcluster.visuals.thumbnails import centred_square, write_thumbnails


@pytest.fixture
def coloured(tmp_path: Path) -> Path:
    """Six images: red, then green, ..., of odd shapes."""
    folder = tmp_path / "images"
    folder.mkdir()
    for number in range(6):
        colour = [(255, 0, 0), (0, 255, 0), (0, 0, 255)][number % 3]
        Image.new("RGB", (200 + 40 * number, 150), colour).save(folder / f"{number}.png")
    return folder


def in_tar(folder: Path) -> Path:
    with tarfile.open(folder.parent / "shard.tar", "w") as tar:
        for file in sorted(folder.iterdir()):
            tar.add(file, file.name)
    return folder.parent / "shard.tar"


def in_list(folder: Path) -> Path:
    target = folder.parent / "list.txt"
    target.write_text("".join(f"images/{file.name}\n" for file in sorted(folder.iterdir())))
    return target


@pytest.mark.parametrize("place", [lambda folder: folder, in_tar, in_list])
def test_a_grey_store_gets_its_colours_from_the_files(
    coloured: Path, tmp_path: Path, place: Callable[[Path], Path]
):
    source = source_of(place(coloured))
    store = pack(source, tmp_path / "store", "grey", Pixels(), 1)
    images = StoredImages(store, 64)
    folder = RunFolder(tmp_path / "run")
    colours = colours_of(source.place, store.index, Pixels())
    assert write_thumbnails(folder, images, range(6), 2, colours) == 6
    for number in range(6):
        with Image.open(folder.path / f"thumbnails/{number}.jpg") as thumbnail:
            assert thumbnail.size == (96, 96)
            assert np.argmax(np.asarray(thumbnail)[48, 48]) == number % 3
            assert np.ptp(np.asarray(thumbnail)[48, 48].astype(int)) > 200


def test_a_store_alone_gives_what_it_has(coloured: Path, tmp_path: Path):
    store = pack(source_of(coloured), tmp_path / "store", "grey", Pixels(), 1)
    colours = colours_of(tmp_path / "store", store.index, Pixels())
    folder = RunFolder(tmp_path / "run")
    assert write_thumbnails(folder, StoredImages(store, 64), [1, 4], 1, colours) == 2
    with Image.open(folder.path / "thumbnails/4.jpg") as thumbnail:
        assert thumbnail.mode == "L"


def test_a_file_that_has_vanished_has_none_and_old_ones_go(coloured: Path, tmp_path: Path):
    index = Index.build(coloured, 1)
    images = Images(coloured, index, 64)
    folder = RunFolder(tmp_path / "run")
    assert write_thumbnails(folder, images, [0, 1, 2], 1) == 3
    (coloured / "4.png").unlink()
    assert write_thumbnails(folder, images, [2, 3, 4], 1) == 1  # 2 is there, 4 is gone
    assert sorted(file.name for file in (folder.path / "thumbnails").iterdir()) == [
        "2.jpg",
        "3.jpg",
    ]


def test_squares_are_cut_before_they_are_resized():
    long = Image.new("L", (20_000, 1))
    assert centred_square(long, 96).size == (1, 1)
    assert centred_square(Image.new("RGB", (50, 80)), 96).size == (50, 50)
    pixels = np.zeros((100, 300, 3), np.uint8)
    pixels[:, 100:200] = 255
    assert np.asarray(centred_square(Image.fromarray(pixels), 50)).min() == 255
