from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional

from deepcluster.images.crops import (
    NUMBERS,
    SHIFT_NUMBERS,
    TEN,
    CropRange,
    learn,
    look,
    normalize,
    random_box,
    shift,
    shifted_boxes,
)
from deepcluster.runtime.seeds import uniforms

Picture = Callable[..., Image.Image]


def numbers(count: int, seed: int = 0) -> np.ndarray:
    return uniforms(seed, "crop", 0, np.arange(count), NUMBERS)


@pytest.mark.parametrize("size", [(300, 200), (201, 333), (224, 224), (500, 375), (61, 40)])
@pytest.mark.parametrize("side", [64, 224])
def test_look_is_resize_then_centre_crop(
    picture: Picture, size: tuple[int, int], side: int
) -> None:
    image = picture(*size)
    transform = v2.Compose([v2.Resize(round(side * 256 / 224)), v2.CenterCrop(side)])
    expected = functional.pil_to_tensor(transform(image))
    assert (look(image, side).int() - expected.int()).abs().max() <= 1


def test_look_at_the_right_size_keeps_the_pixels(picture: Picture) -> None:
    image = picture(256, 256)
    expected = functional.pil_to_tensor(image.crop((16, 16, 240, 240)))
    view = look(image, 224)
    assert view.dtype == torch.uint8
    assert view.is_contiguous()
    assert torch.equal(view, expected)


@pytest.mark.parametrize("size", [(1, 1), (1, 20_000), (20_000, 1), (5, 3), (3000, 2)])
def test_extreme_shapes_are_safe(picture: Picture, size: tuple[int, int]) -> None:
    image = picture(*size)
    assert look(image, 224).shape == (3, 224, 224)
    for row in numbers(20):
        left, top, right, bottom = random_box(*size, row)
        assert 0 <= left < right <= size[0]
        assert 0 <= top < bottom <= size[1]
        assert learn(image, 32, row).shape == (3, 32, 32)


def test_learn_is_crop_then_resize_then_flip(picture: Picture) -> None:
    image = picture(150, 100)
    flips = 0
    for row in numbers(50):
        left, top, right, bottom = random_box(150, 100, row)
        expected = functional.pil_to_tensor(
            functional.resized_crop(image, top, left, bottom - top, right - left, [64, 64])
        )
        if row[-1] < 0.5:
            expected, flips = expected.flip(-1), flips + 1
        assert torch.equal(learn(image, 64, row), expected)
    assert 10 < flips < 40


def test_area_is_uniform_and_ratio_log_uniform_where_everything_fits() -> None:
    # Conditioned on areas for which every ratio fits into a square, nothing is rejected.
    boxes = np.array([random_box(1000, 1000, row) for row in numbers(20_000)])
    width, height = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    area, ratio = width * height / 1e6, np.log(width / height)
    assert area.min() > 0.079
    assert area.max() > 0.95
    assert np.exp(np.abs(ratio)).max() < 1.34
    fits = area < 0.75
    quarters = np.histogram(area[fits], bins=4, range=(0.08, 0.75))[0] / fits.sum()
    np.testing.assert_allclose(quarters, 0.25, atol=0.015)
    quarters = np.histogram(ratio[fits], bins=4, range=(-np.log(4 / 3), np.log(4 / 3)))[0]
    np.testing.assert_allclose(quarters / fits.sum(), 0.25, atol=0.015)
    place = boxes[:, 0] / np.maximum(1, 1000 - width)
    np.testing.assert_allclose(place.mean(), 0.5, atol=0.01)


@pytest.mark.parametrize("size", [(500, 375), (200, 600), (640, 64)])
@pytest.mark.parametrize("within", [CropRange(), CropRange(scale=0.4, ratio=2.0)])
def test_boxes_follow_the_law_of_torchvision(size: tuple[int, int], within: CropRange) -> None:
    torch.manual_seed(0)
    blank = torch.empty((1, size[1], size[0]), dtype=torch.uint8)
    ratios = (1 / within.ratio, within.ratio)
    transform = v2.RandomResizedCrop(32, scale=(within.scale, 1.0), ratio=ratios)
    drawn = [transform.make_params([blank]) for _ in range(4000)]
    theirs = np.array([[p["left"], p["top"], p["width"], p["height"]] for p in drawn])
    ours = np.array([random_box(*size, row, within) for row in numbers(4000)])
    ours[:, 2:] -= ours[:, :2]
    for column in range(4):  # the largest difference of the distribution functions
        levels = np.unique(theirs[:, column])
        shares = [
            np.searchsorted(np.sort(boxes[:, column]), levels, side="right") / 4000
            for boxes in (theirs, ours)
        ]
        assert np.abs(shares[0] - shares[1]).max() < 0.045


def test_where_nothing_fits_the_largest_centred_part_is_taken() -> None:
    never = [0.999] * NUMBERS
    assert random_box(1000, 100, never) == (433, 0, 566, 100)
    assert random_box(100, 1000, never) == (0, 433, 100, 566)


def test_normalize_leaves_the_levels_it_was_given() -> None:
    levels = torch.full((1, 3, 2, 2), 128.0)
    normalize(levels)
    assert torch.equal(levels, torch.full((1, 3, 2, 2), 128.0))


def test_normalize_gives_imagenet_units() -> None:
    batch = torch.tensor([0, 128, 255], dtype=torch.uint8).view(1, 1, 1, 3).expand(2, 3, 2, 3)
    mean, deviation = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    expected = functional.normalize(functional.to_dtype(batch, scale=True), mean, deviation)
    result = normalize(batch)
    assert result.dtype == torch.float32
    torch.testing.assert_close(result, expected)


def scattered(width: int, height: int) -> tuple[Image.Image, torch.Tensor]:
    """Noise, which no crop but the right one resembles, and its pixels (3 x height x width)."""
    pixels = np.random.default_rng(7).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels), torch.from_numpy(pixels).permute(2, 0, 1)


def test_ten_crops_by_hand():
    # The short side is 256 already, so that nothing is resized and crops are slices.
    image, pixels = scattered(300, 256)
    corners = [(0, 0), (76, 0), (0, 32), (76, 32), (38, 16)]  # left and top
    slices = [pixels[:, top : top + 224, left : left + 224] for left, top in corners]
    expected = [*slices, *(part.flip(2) for part in slices)]
    for place, part in zip(TEN, expected, strict=True):
        assert torch.equal(look(image, 224, place), part), place


def test_ten_crops_are_torchvisions():
    image, pixels = scattered(256, 290)
    theirs = functional.ten_crop(pixels, [224, 224])
    # torchvision flips the whole image first, which exchanges its left and right corners.
    for place, number in zip(TEN, (0, 1, 2, 3, 4, 6, 5, 8, 7, 9), strict=True):
        assert torch.equal(look(image, 224, place), theirs[number])


def test_a_shifted_crop_is_a_window_of_the_centred_square():
    image, pixels = scattered(300, 256)
    square = pixels[:, :, 22 : 22 + 256]
    for across, down in ((0.0, 0.0), (0.999999, 0.5), (0.4, 0.999999)):
        left, top = int(across * 33), int(down * 33)
        window = square[:, top : top + 224, left : left + 224]
        assert torch.equal(shift(image, 224, [across, down, 0.7]), window)
        assert torch.equal(shift(image, 224, [across, down, 0.2]), window.flip(2))


def test_shifted_crops_take_every_place_equally_often():
    numbers = uniforms(0, "shift", 0, np.arange(20_000), SHIFT_NUMBERS)
    sides = np.full(len(numbers), 146)
    boxes = shifted_boxes(sides, sides, 128, numbers)  # 146 is 128 * 256 / 224
    for first in (boxes[:, 0], boxes[:, 1]):
        places, counts = np.unique(first, return_counts=True)
        assert places.tolist() == list(range(19))
        assert counts.min() > 0.85 * len(numbers) / 19
    assert np.array_equal(boxes[:, 2:] - boxes[:, :2], np.full((len(numbers), 2), 128))
