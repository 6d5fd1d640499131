from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from deepcluster.images.index import Index
from deepcluster.images.pictures import (
    LEAST_DEVIATION,
    PICTURES,
    overlapping,
    picture_path,
    read_boxes,
    write_demo_images,
)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo")
    write_demo_images(folder, 12, seed=1)
    return folder


def test_every_source_is_there_and_is_the_label(demo: Path) -> None:
    index = Index.build(demo, 2)
    assert index.unusable == []
    assert index.labels is not None
    assert np.bincount(index.labels).tolist() == [12] * len(PICTURES)
    assert {path.partition("/")[0] for path in index.paths} == set(PICTURES)


def test_every_image_shows_something_and_is_small(demo: Path) -> None:
    for path in demo.glob("*/*.png"):
        with Image.open(path) as image:
            assert 64 <= image.width == image.height <= 72
            assert np.asarray(image.convert("L")).std() >= LEAST_DEVIATION


def test_a_name_says_where_the_crop_was_cut(demo: Path) -> None:
    paths = Index.build(demo, 2).paths
    boxes = read_boxes(paths)
    sources = sorted(PICTURES)
    for path, (source, x, y, side) in zip(paths, boxes.tolist(), strict=True):
        with Image.open(picture_path(sources[source])) as picture, Image.open(demo / path) as crop:
            part = picture.convert("RGB").crop((x, y, x + side, y + side)).resize(crop.size)
            difference = np.asarray(part).astype(int) - np.asarray(crop)
            assert np.abs(difference).mean() < 4
    assert len(np.unique(boxes[:, 3])) > 50  # crops of mixed size


def test_a_seed_gives_the_same_images(demo: Path, tmp_path: Path) -> None:
    write_demo_images(tmp_path / "same", 12, seed=1)
    write_demo_images(tmp_path / "other", 12, seed=2)
    first, same, other = (Index.build(p, 2) for p in (demo, tmp_path / "same", tmp_path / "other"))
    assert first.fingerprint == same.fingerprint
    assert not set(first.paths) & set(other.paths)


def test_overlap_is_pixels_shared_within_one_source() -> None:
    paths = ["a/0-0-10.png", "a/9-9-5.png", "a/10-0-5.png", "b/0-0-10.png", "a/2-2-2.png"]
    boxes = read_boxes(paths)
    assert boxes[:, 0].tolist() == [0, 0, 0, 1, 0]
    expected = np.eye(5, dtype=bool)
    expected[0, 1] = expected[1, 0] = expected[0, 4] = expected[4, 0] = True
    assert (overlapping(boxes, boxes) == expected).all()
    assert (overlapping(boxes[1:3], boxes) == expected[1:3]).all()
