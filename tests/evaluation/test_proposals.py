"""Regions: read from files, made once, and how many objects they find."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from devkit import write_devkit
from scipy.io import savemat

from deepcluster.evaluation import proposals, region_grouping
from deepcluster.evaluation.bench import Bench
from deepcluster.evaluation.proposals import Regions, made_once, maker_of, read_regions
from deepcluster.evaluation.region_makers import made_regions, opencv_is_there
from deepcluster.evaluation.voc import Devkit, VocSet
from deepcluster.runtime import interruption
from deepcluster.runtime.errors import DataError, UsageError
from deepcluster.runtime.interruption import Interrupted

_COMPRESSED = b"MATLAB 5.0 MAT-file".ljust(124) + b"\0\1IM\x0f\0\0\0\x13\0\0\0"
"""How a file begins whose first element is compressed, in 19 bytes."""


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> VocSet:
    folder = write_devkit(tmp_path_factory.mktemp("voc"), {"train": 3, "val": 3, "test": 6})
    return Devkit(folder).annotated("test")


def write_boxes(path: Path, images: VocSet, boxes: list[np.ndarray]) -> None:
    """As the release of Fast R-CNN has it: cells of top, left, bottom, right from 1."""
    cells, names = np.empty((1, len(boxes)), object), np.empty((len(boxes), 1), object)
    for place, image in enumerate(images.images):
        cells[0, place], names[place, 0] = boxes[place], image.name
    savemat(path, {"boxes": cells, "images": names})


def truth(images: VocSet) -> list[np.ndarray]:
    return [np.array([thing.box for thing in image.objects]) for image in images.images]


def test_boxes_of_a_file_are_turned_into_ours(images: VocSet, tmp_path: Path):
    ours = truth(images)
    theirs = [boxes[:, [1, 0, 3, 2]] + (1, 1, 0, 0) for boxes in ours]
    write_boxes(tmp_path / "voc_2007_test.mat", images, theirs)
    read = read_regions(tmp_path, images, most=2000)
    assert [boxes.tolist() for boxes in read.boxes] == [boxes.tolist() for boxes in ours]
    assert read.recall(images.images) == 1.0
    assert read_regions(tmp_path, images, most=1).boxes[0].tolist() == ours[0][:1].tolist()


def test_boxes_of_trainval_serve_train(images: VocSet, tmp_path: Path):
    trainval = Devkit(images.folder).annotated("trainval")
    write_boxes(
        tmp_path / "voc_2007_trainval.mat", trainval, [np.array([[1, 1, 9, 9.0]])] * len(trainval)
    )
    val = Devkit(images.folder).annotated("val")
    assert [boxes.tolist() for boxes in read_regions(tmp_path, val, 9).boxes] == [
        [[0, 0, 9, 9]]
    ] * 3


def test_unfit_files_are_refused(images: VocSet, tmp_path: Path):
    with pytest.raises(UsageError, match=r"no voc_2007_test\.mat"):
        read_regions(tmp_path, images, 9)
    file = tmp_path / "voc_2007_test.mat"
    file.write_bytes(b"nothing of the kind" * 20)
    with pytest.raises(DataError, match=r"voc_2007_test\.mat is no file of selective-search boxes"):
        read_regions(tmp_path, images, 9)
    for damaged in (b"", _COMPRESSED + b"nothing of the kind"):
        file.write_bytes(damaged)
        with pytest.raises(DataError, match="no file of selective-search boxes"):
            read_regions(tmp_path, images, 9)
    savemat(file, {"images": np.array(["one"], object)})
    with pytest.raises(DataError, match="no file of selective-search boxes"):
        read_regions(tmp_path, images, 9)
    good = [np.array([[1, 1, 9, 9.0]])] * len(images)
    write_boxes(file, images, [*good[:-1], np.array([[1, 1, 400, 400.0]])])
    with pytest.raises(DataError, match=r"boxes outside of image .* of another size"):
        read_regions(tmp_path, images, 9)
    write_boxes(file, images, [*good[:-1], np.array([[5, 5, 4, 9.0]])])
    with pytest.raises(DataError, match="without area"):
        read_regions(tmp_path, images, 9)
    write_boxes(file, replace(images, images=images.images[:-1]), good[:-1])
    with pytest.raises(DataError, match="has no boxes of image"):
        read_regions(tmp_path, images, 9)


def test_regions_of_trainval_are_those_of_val(images: VocSet):
    devkit = Devkit(images.folder)
    trainval, val = devkit.annotated("trainval"), devkit.annotated("val")
    every = Regions([np.full((1, 4), float(place)) for place in range(len(trainval))], "by hand")
    places = [[image.name for image in trainval.images].index(one.name) for one in val.images]
    chosen = every.chosen(trainval, val)
    assert chosen is not None
    assert [boxes[0, 0] for boxes in chosen.boxes] == places
    assert every.chosen(trainval, images) is None  # test's images are others


def test_recall_by_hand(images: VocSet):
    two = images.images[:2]
    things = [[t.box for t in image.objects if not t.difficult] for image in two]
    assert [len(boxes) for boxes in things] == [2, 2]  # the first has a difficult one beside
    regions = Regions([np.array(things[0][:1]), np.zeros((0, 4))], "by hand")
    assert regions.recall(two) == 0.25


def test_our_grouping_finds_a_square_and_repeats_itself():
    pixels = np.full((60, 80, 3), 200, np.uint8)
    pixels[20:50, 30:60] = (180, 20, 20)
    found = region_grouping.proposed(pixels, 2000, 4)
    square = np.abs(found - np.array([30, 20, 60, 50])).max(axis=1).min()
    assert square <= 1
    assert len(np.unique(found, axis=0)) == len(found)
    assert (found[:, :2] >= 0).all()
    assert (found[:, 2:] <= (80, 60)).all()
    assert (found[:, 2:] - found[:, :2] >= 4).all()
    assert (region_grouping.proposed(pixels, 2000, 4) == found).all()
    assert (region_grouping.proposed(pixels, 50, 4) == found[:50]).all()


@pytest.mark.parametrize("size", [(1, 1), (1, 40), (3, 3), (2, 200)])
def test_tiny_images_have_regions_too(size, tmp_path: Path):
    found = region_grouping.proposed(np.zeros((*size, 3), np.uint8), 100, 1)
    assert [0, 0, size[1], size[0]] in found.tolist()


def test_regions_are_made_once_and_a_block_that_is_lost_again(
    images: VocSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(proposals, "_BLOCK", 4)
    bench = Bench(workers=1)
    first = made_once(images, "grouping", 100, tmp_path, bench)
    assert first.recall(images.images) > 0.9
    (folder,) = tmp_path.iterdir()
    kept = sorted(path.name for path in folder.glob("block-*"))
    assert kept == ["block-00000.safetensors", "block-00001.safetensors"]
    made = []

    def counted(*asked):
        made.append(asked)
        return made_regions(*asked)

    monkeypatch.setattr(proposals, "made_regions", counted)
    assert made_once(images, "grouping", 100, tmp_path, bench).fingerprint == first.fingerprint
    assert made == []
    (folder / kept[1]).write_bytes(b"damaged")
    assert made_once(images, "grouping", 100, tmp_path, bench).fingerprint == first.fingerprint
    assert len(made) == 2


def test_an_interruption_keeps_whole_blocks(
    images: VocSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(proposals, "_BLOCK", 2)
    made = []

    def stops(*asked):
        made.append(asked)
        if len(made) == 5:
            monkeypatch.setattr(interruption, "_asked", interruption.TERMINATED)
        return np.array([[0, 0, 9, 9]], np.int16)

    monkeypatch.setattr(proposals, "made_regions", stops)
    with pytest.raises(Interrupted):
        made_once(images, "grouping", 100, tmp_path, Bench(workers=1))
    monkeypatch.setattr(interruption, "_asked", None)
    made_once(images, "grouping", 100, tmp_path, Bench(workers=1))
    assert len(made) == 5 + 2


@pytest.mark.slow
def test_processes_make_what_one_makes(
    images: VocSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    alone = made_once(images, "grouping", 100, tmp_path / "alone", Bench(workers=1))
    monkeypatch.setattr(proposals, "_PROCESSES_PAY", 1)
    together = made_once(images, "grouping", 100, tmp_path / "together", Bench(workers=2))
    assert together.fingerprint == alone.fingerprint


def test_who_makes_regions(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(proposals, "opencv_is_there", lambda: False)
    assert maker_of("auto") == maker_of("grouping") == "grouping"
    with pytest.raises(UsageError, match=r"deepcluster\[proposals\]"):
        maker_of("opencv")
    monkeypatch.setattr(proposals, "opencv_is_there", lambda: True)
    assert maker_of("auto") == maker_of("opencv") == "opencv"
    assert maker_of("grouping") == "grouping"


@pytest.mark.skipif(not opencv_is_there(), reason="opencv-contrib is not installed")
def test_selective_search_finds_a_square_and_repeats_itself():
    pixels = np.full((120, 160, 3), 200, np.uint8)
    pixels[40:100, 60:120] = (180, 20, 20)
    found = made_regions("opencv", 2000, pixels)
    assert np.abs(found - np.array([60, 40, 120, 100])).max(axis=1).min() <= 2
    assert (made_regions("opencv", 2000, pixels) == found).all()
