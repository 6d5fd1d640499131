from __future__ import annotations

import os

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_child import says_equal
from PIL import Image
from torchvision.transforms.v2 import functional as reference

from deepcluster.images.crops import (
    NUMBERS,
    CropRange,
    learn,
    look,
    placed_boxes,
    random_box,
    random_boxes,
)
from deepcluster.images.resample import Crops, resample_plainly


def pictures(sizes: list[tuple[int, int]], channels: int, seed: int = 0) -> list[Image.Image]:
    randomness = np.random.default_rng(seed)
    mode = "L" if channels == 1 else "RGB"
    return [
        Image.fromarray(randomness.integers(0, 256, (9, 11, 3)).astype(np.uint8))
        .resize(size, Image.Resampling.BICUBIC)
        .convert(mode)
        for size in sizes
    ]


def flattened(images: list[Image.Image]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The pixels one after another, where each image starts, and their widths and heights."""
    arrays = [np.asarray(image).ravel() for image in images]
    starts = np.cumsum([0, *map(len, arrays)])[:-1]
    sides = torch.tensor([image.size for image in images])
    return torch.from_numpy(np.concatenate(arrays)), torch.from_numpy(starts), sides


SIZES = [(300, 200), (90, 401), (50, 40), (128, 128), (31, 700), (64, 64), (1, 1), (5, 90)]


def random_crops(images: list[Image.Image], seed: int = 0) -> tuple[Crops, np.ndarray]:
    numbers = np.random.default_rng(seed).random((len(images), NUMBERS))
    _, starts, sides = flattened(images)
    boxes = torch.from_numpy(random_boxes(*sides.numpy().T, numbers))
    flips = torch.from_numpy(numbers[:, -1] < 0.5)
    return Crops(starts, sides, boxes.float(), boxes, flips), numbers


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [64, 97])
def test_random_crops_are_those_of_the_plain_path(channels, size):
    images = pictures(SIZES, channels)
    crops, numbers = random_crops(images)
    got = resample_plainly(flattened(images)[0], crops, size, channels)
    expected = torch.stack(
        [learn(image, size, row) for image, row in zip(images, numbers, strict=True)]
    )
    assert (got.int() - expected.int()).abs().max() <= 1  # Pillow rounds twice


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [64, 97])
def test_centre_crops_are_those_of_the_plain_path(channels, size):
    images = pictures(SIZES, channels)
    pixels, starts, sides = flattened(images)
    boxes = torch.from_numpy(placed_boxes(*sides.numpy().T, size)).float()
    whole = torch.cat([torch.zeros_like(sides), sides], dim=1)
    crops = Crops(starts, sides, boxes, whole, torch.zeros(len(images), dtype=torch.bool))
    got = resample_plainly(pixels, crops, size, channels)
    expected = torch.stack([look(image, size) for image in images])
    assert (got.int() - expected.int()).abs().max() <= 1


def test_crops_agree_with_torchvisions_antialiased_resize():
    images = pictures([(400, 300)] * 16, 3)
    crops, numbers = random_crops(images, seed=5)
    got = resample_plainly(flattened(images)[0], crops, 128, 3)
    for row, image in enumerate(images):
        left, top, right, bottom = crops.limits[row].tolist()
        part = reference.pil_to_tensor(image)[:, top:bottom, left:right]
        expected = reference.resize(part, [128, 128], antialias=True)
        if numbers[row, -1] < 0.5:
            expected = expected.flip(-1)
        assert (got[row].float() - expected.float()).abs().mean() < 2


@given(
    st.lists(st.tuples(st.integers(1, 600), st.integers(1, 600)), min_size=1, max_size=20),
    st.integers(0, 2**32 - 1),
    st.builds(CropRange, scale=st.floats(0.01, 1), ratio=st.floats(1, 5)) | st.just(CropRange()),
)
@settings(deadline=None, max_examples=50)
def test_boxes_all_at_once_are_the_boxes_one_by_one(sizes, seed, within):
    numbers = np.random.default_rng(seed).random((len(sizes), NUMBERS))
    widths, heights = np.array(sizes).T
    together = random_boxes(widths, heights, numbers, within)
    alone = [random_box(w, h, row, within) for (w, h), row in zip(sizes, numbers, strict=True)]
    assert np.array_equal(together, np.array(alone))


KERNEL = """
import sys
sys.path.insert(0, {tests!r})
import torch
from test_resample import flattened, pictures, random_crops
from deepcluster.images.resample import resample_plainly
from deepcluster.images.resample_kernel import resample_by_kernel
device = torch.device({device!r})
for channels in (1, 3):
    for size in (32, 21):
        images = pictures([(70, 50), (30, 90), (12, 9), (1, 40)], channels)
        crops = random_crops(images, seed=size)[0].to(device)
        pixels = flattened(images)[0].to(device)
        plain = resample_plainly(pixels, crops, size, channels)
        kernel = resample_by_kernel(pixels, crops, size, channels)
        difference = (plain.int() - kernel.int()).abs()
        assert difference.max() <= 1, difference.max()
        assert (difference > 0).float().mean() < 0.01
print("equal")
"""


def kernel_agrees(device: str, **environment: str) -> None:
    pytest.importorskip("triton", reason="Triton is not installed")
    tests = os.path.dirname(__file__)  # noqa: PTH120
    says_equal("-c", KERNEL.format(tests=tests, device=device), **environment)


def test_the_kernel_is_the_plain_version_under_the_interpreter():
    kernel_agrees("cpu", TRITON_INTERPRET="1")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_kernel_is_the_plain_version_on_a_gpu():
    kernel_agrees("cuda")
