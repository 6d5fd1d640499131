from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from deepcluster.images.crops import NUMBERS, learn, look
from deepcluster.images.decode import read
from deepcluster.images.index import Index
from deepcluster.images.loader import Images
from deepcluster.images.threads import in_order
from deepcluster.runtime.errors import DataError
from deepcluster.runtime.seeds import uniforms


@pytest.fixture
def images(photos: Path) -> Images:
    return Images(photos, Index.build(photos, 2), 32)


def decoding_threads() -> int:
    return sum(thread.name.startswith("images") for thread in threading.enumerate())


def test_seen_gives_every_image_in_order(images: Images, photos: Path) -> None:
    assert len(images) == 10
    assert images.labels is not None
    expected = torch.stack([look(read(photos / path), 32) for path in Index.build(photos, 1).paths])
    for workers in (0, 1, 3):
        batches = list(images.seen(range(10), 4, workers))
        assert [len(batch) for batch in batches] == [4, 4, 2]
        assert torch.equal(torch.cat(batches), expected)
    part = torch.cat(list(images.seen(range(2, 9), 3, 1, start=3)))
    assert torch.equal(part, expected[5:9])
    assert list(images.seen(range(0), 4, 1)) == []


def test_batches_larger_than_a_piece_are_whole(images: Images) -> None:
    draws = np.arange(100)
    image_of_draw = draws % 10
    ((batch, _),) = images.drawn([draws], image_of_draw, seed=0, epoch=0, workers=3)
    singles = images.drawn([draws[i : i + 1] for i in draws], image_of_draw, 0, 0, 2)
    assert torch.equal(batch, torch.cat([single for single, _ in singles]))


def test_a_crop_depends_on_its_draw_alone(images: Images, photos: Path) -> None:
    image_of_draw = np.array([3, 3, 7, 0, 9, 3, 1, 2])
    together = [np.array([0, 1, 2, 3]), np.array([4, 5, 6, 7])]
    apart = [
        np.array([7, 1]),
        np.array([], dtype=np.int64),
        np.array([5]),
        np.array([2, 0, 3, 6, 4]),
    ]
    crops: dict[int, torch.Tensor] = {}
    for batch, draws in images.drawn(together, image_of_draw, seed=5, epoch=2, workers=1):
        crops.update(zip(draws.tolist(), batch, strict=True))
    for workers in (0, 3):
        sizes = []
        for batch, draws in images.drawn(apart, image_of_draw, seed=5, epoch=2, workers=workers):
            sizes.append(len(batch))
            for draw, crop in zip(draws.tolist(), batch, strict=True):
                assert torch.equal(crop, crops[draw])
        assert sizes == [2, 0, 1, 5]
    assert not torch.equal(crops[0], crops[1])  # one image, two draws
    path = Index.build(photos, 1).paths[3]
    numbers = uniforms(5, "crop", 2, np.array([5]), NUMBERS)[0]
    assert torch.equal(crops[5], learn(read(photos / path), 32, numbers))
    ((other, _),) = images.drawn([np.array([0])], image_of_draw, seed=5, epoch=3, workers=1)
    assert not torch.equal(other[0], crops[0])  # another epoch, another crop


def test_closing_early_ends_the_threads(images: Images) -> None:
    seen = images.seen(range(10), 1, 2)
    next(iter(seen))
    assert decoding_threads() > 0
    seen.close()  # type: ignore[attr-defined]
    assert decoding_threads() == 0
    for _ in images.drawn([np.array([i]) for i in range(10)], np.arange(10), 0, 0, 2):
        break
    assert decoding_threads() == 0


def test_an_image_that_is_gone_is_named(images: Images, photos: Path) -> None:
    (photos / "dogs/4.jpg").unlink()
    (photos / "dogs/6.jpg").write_bytes(b"")
    with pytest.raises(DataError, match=r"4\.jpg: unreadable: no such file or directory, though"):
        list(images.seen(range(10), 4, 2))
    with pytest.raises(DataError, match=r"dogs/6\.jpg: empty file, though"):
        list(images.drawn([np.array([0])], np.array([8]), 0, 0, 1))
    assert decoding_threads() == 0


def test_no_more_is_done_ahead_than_asked() -> None:
    begun = []
    results = in_order(begun.append, range(100), workers=1, ahead=3)
    next(results)
    results.close()
    assert len(begun) <= 4


def test_results_keep_their_order_and_errors_their_place() -> None:
    def half(number: int) -> float:
        return number / (number - 5)

    results = in_order(half, range(10), workers=4, ahead=8)
    assert [next(results) for _ in range(5)] == [half(number) for number in range(5)]
    with pytest.raises(ZeroDivisionError):
        next(results)


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "CMYK"])
def test_every_mode_reaches_the_batch(
    tmp_path: Path, picture: Callable[..., Image.Image], mode: str
) -> None:
    picture().convert(mode).save(tmp_path / "a.tif")
    images = Images(tmp_path, Index.build(tmp_path, 1), 16)
    (batch,) = images.seen(range(1), 4, 1)
    assert batch.shape == (1, 3, 16, 16)
