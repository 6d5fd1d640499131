"""An image to a square of pixels: the steady view for clustering, the random one for learning.

A probe learns from a third one, shifted: a window of one scale at a random place.

Pillow resizes, in fixed point: a crop has the same bytes on every machine. (Resizing with torch
is about a third faster here, but differs between processors, and cannot cut while it resizes,
which makes very long images dangerous.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from deepcluster.images.kept import DEVIATION, MEAN

TRIES = 10
NUMBERS = 2 * TRIES + 3
"""How many uniform numbers one random crop is made from."""

SHIFT_NUMBERS = 3
"""How many uniform numbers one shifted crop is made from."""


@dataclass(frozen=True)
class CropRange:
    """Which parts of an image a random crop may show. Each is flipped half of the time."""

    scale: float = 0.08
    """Smallest share of the image's area that a crop shows; the largest is all of it."""

    ratio: float = 4 / 3
    """Width of a crop beside its height, at most; at least, one over it."""

    @property
    def logarithms(self) -> tuple[float, float]:
        """Of the smallest ratio and the largest."""
        return math.log(1 / self.ratio), math.log(self.ratio)


PAPER = CropRange()
"""Those of torchvision's RandomResizedCrop, which the authors used."""


class Place(NamedTuple):
    """Where in the image a steady view lies."""

    across: float = 0.5
    """0 is the left edge, 1 the right one."""
    down: float = 0.5
    """0 is the top, 1 the bottom."""
    flipped: bool = False
    """Whether left and right are exchanged."""


CENTRE = Place()
TEN = tuple(
    Place(across, down, flipped)
    for flipped in (False, True)
    for across, down in ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1.0, 1.0), (0.5, 0.5))
)
"""Four corners and the centre, and the same five flipped."""


def look(image: Image.Image, size: int, place: Place = CENTRE) -> Tensor:
    """The centre of the image as uint8, 3 x size x size: the view that is clustered.

    The short side becomes 256/224 of `size`, then the middle is cut out (256 and 224 in the
    paper's implementation), or what lies at another place. Both in one step: a 1 x 20000 image
    never becomes 256 x 5120000.
    """
    width, height = (np.array([side]) for side in image.size)
    return _cut(image, size, placed_boxes(width, height, size, place), place.flipped)


def shift(image: Image.Image, size: int, numbers: Sequence[float] | NDArray[np.float64]) -> Tensor:
    """A window at a random place, all of one scale, flipped half of the time; as uint8.

    Args:
        image: What the window is cut from: its centred square, at the scale of `look`.
        size: The side of the result.
        numbers: `SHIFT_NUMBERS` of them in [0, 1); they alone decide where it is.
    """
    width, height = (np.array([side]) for side in image.size)
    row = np.asarray(numbers)[None]
    return _cut(image, size, shifted_boxes(width, height, size, row), bool(numbers[-1] < 0.5))


def learn(
    image: Image.Image,
    size: int,
    numbers: Sequence[float] | NDArray[np.float64],
    within: CropRange = PAPER,
) -> Tensor:
    """A random part of the image, flipped half of the time, as uint8, 3 x size x size.

    Args:
        image: What the part is cut from.
        size: The side of the result.
        numbers: `NUMBERS` of them in [0, 1); they alone decide which part it is.
        within: The parts to choose from.
    """
    part = image.crop(random_box(*image.size, numbers, within))
    view = part.resize((size, size), Image.Resampling.BILINEAR)
    if numbers[-1] < 0.5:
        view = view.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return _pixels(view)


def placed_boxes(
    widths: NDArray[np.int64], heights: NDArray[np.int64], size: int, place: Place = CENTRE
) -> NDArray[np.float64]:
    """Left, top, right and bottom of the part that `look` shows, for each image."""
    sides, new, _ = _resized(widths, heights, size)
    first = np.rint((new - size) * np.array([[place.across], [place.down]]))
    return _boxes(first, size, sides / new)


def shifted_boxes(
    widths: NDArray[np.int64],
    heights: NDArray[np.int64],
    size: int,
    numbers: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Left, top, right and bottom of the part that `shift` shows, for each row of numbers."""
    sides, new, short = _resized(widths, heights, size)
    first = np.rint((new - short) / 2) + np.floor(numbers[:, :2].T * (short - size + 1))
    return _boxes(first, size, sides / new)


def _resized(
    widths: NDArray[np.int64], heights: NDArray[np.int64], size: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """The sides (2 x n), the sides once the short one is 256/224 of `size`, and that short one."""
    short = round(size * 256 / 224)
    sides = np.stack([widths, heights])
    return sides, short * sides // sides.min(axis=0), short


def _boxes(
    first: NDArray[np.float64], size: int, scale: NDArray[np.float64]
) -> NDArray[np.float64]:
    return np.concatenate([first * scale, (first + size) * scale]).T


def random_boxes(
    widths: NDArray[np.int64],
    heights: NDArray[np.int64],
    numbers: NDArray[np.float64],
    within: CropRange = PAPER,
) -> NDArray[np.int64]:
    """What `random_box` gives, for each image and its row of numbers, all at once."""
    low, high = within.logarithms
    least = within.scale
    area = (widths * heights)[:, None] * (least + numbers[:, :-3:2] * (1 - least))
    ratio = np.exp(low + numbers[:, 1:-3:2] * (high - low))
    sides = np.rint(np.sqrt(np.stack([area * ratio, area / ratio])))
    whole = np.stack([widths, heights])[:, :, None]
    fits = np.all((sides > 0) & (sides <= whole), axis=0)
    first = fits.argmax(axis=1)
    chosen = np.take_along_axis(sides, first[None, :, None], axis=2)[..., 0]
    start = numbers[:, -3:-1].T * (whole[..., 0] - chosen + 1)
    widest = np.stack([np.rint(heights * within.ratio), np.rint(widths * within.ratio)])
    largest = np.minimum(whole[..., 0], np.maximum(1, widest))
    found = np.any(fits, axis=1)
    side = np.where(found, chosen, largest).astype(np.int64)
    begin = np.where(found, start, (whole[..., 0] - largest) // 2).astype(np.int64)
    return np.concatenate([begin, begin + side]).T


def random_box(
    width: int,
    height: int,
    numbers: Sequence[float] | NDArray[np.float64],
    within: CropRange = PAPER,
) -> tuple[int, int, int, int]:
    """Left, top, right and bottom of a part with random area, ratio and place.

    The law of torchvision's RandomResizedCrop: area uniform and ratio log-uniform among those that
    fit; where ten tries do not fit, the largest centred part whose ratio is allowed.
    """
    low, high = within.logarithms
    least = within.scale
    for attempt in range(TRIES):
        area = width * height * (least + numbers[2 * attempt] * (1 - least))
        ratio = math.exp(low + numbers[2 * attempt + 1] * (high - low))
        across, down = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < across <= width and 0 < down <= height:
            left = int(numbers[-3] * (width - across + 1))
            top = int(numbers[-2] * (height - down + 1))
            return left, top, left + across, top + down
    across = min(width, max(1, round(height * within.ratio)))
    down = min(height, max(1, round(width * within.ratio)))
    left, top = (width - across) // 2, (height - down) // 2
    return left, top, left + across, top + down


@dataclass(frozen=True)
class RandomView:
    """A kind of random crop: one image at a time, and many at once."""

    purpose: str
    """Names the stream of its numbers."""
    numbers: int
    """How many it takes; the last one decides about the flip."""
    cut: Callable[[Image.Image, int, Sequence[float] | NDArray[np.float64]], Tensor]
    """The crop of one image."""
    boxes: Callable[
        [NDArray[np.int64], NDArray[np.int64], int, NDArray[np.float64]],
        NDArray[np.float64] | NDArray[np.int64],
    ]
    """Which part it shows, for many images."""
    is_cut_first: bool
    """Whether the part is cut out before it is resized: the filter then sees nothing beyond."""


def resized(within: CropRange = PAPER) -> RandomView:
    """What the network learns from."""
    return RandomView(
        "crop",
        NUMBERS,
        lambda image, size, numbers: learn(image, size, numbers, within),
        lambda wide, high, _, numbers: random_boxes(wide, high, numbers, within),
        True,
    )


SHIFTED = RandomView("shift", SHIFT_NUMBERS, shift, shifted_boxes, False)
"""What a probe learns from."""


def normalize(batch: Tensor) -> Tensor:
    """The batch, levels from 0 to 255, as float32 with ImageNet's mean 0 and deviation 1.

    A batch of one channel holds the channels' mean weighted by their inverse deviation (as a
    grey store does); it becomes the mean of the normalised channels, which is what Sobel takes.
    """
    if batch.shape[1] == 1:
        scale = sum(1 / deviation for deviation in DEVIATION) / (3 * 255)
        offset = -sum(m / d for m, d in zip(MEAN, DEVIATION, strict=True)) / 3
        return batch.to(torch.float32, copy=True).mul_(scale).add_(offset)
    mean, deviation = _levels(batch.device)
    return batch.to(torch.float32, copy=True).sub_(mean).div_(deviation)


@cache
def _levels(device: torch.device) -> tuple[Tensor, Tensor]:
    """ImageNet's mean and deviation; sent once, since a GPU waits for what is sent."""
    with torch.inference_mode(mode=False):
        mean, deviation = (
            torch.tensor(of, device=device).view(-1, 1, 1) for of in (MEAN, DEVIATION)
        )
        return mean * 255, deviation * 255


def _cut(image: Image.Image, size: int, boxes: NDArray[np.float64], flipped: bool) -> Tensor:
    left, top, right, bottom = boxes[0].tolist()
    view = _across_first(image, size, (left, top, right, bottom))
    return _pixels(view.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if flipped else view)


def _across_first(
    image: Image.Image, size: int, box: tuple[float, float, float, float]
) -> Image.Image:
    """The box as a square: resized across, rounded, and then down.

    Of a tall image Pillow from 13 on may take the other order, which rounds otherwise: there the
    two are asked for one by one.
    """
    if image.height <= image.width:
        return image.resize((size, size), Image.Resampling.BILINEAR, box=box)
    left, top, right, bottom = box
    reach = math.ceil(max(1.0, (bottom - top) / size))  # rows that the filter sees beyond
    first = max(0, math.floor(top) - reach)
    last = min(image.height, math.ceil(bottom) + reach)
    rows = image.crop((0, first, image.width, last))
    across = (left, 0.0, right, float(rows.height))
    narrow = rows.resize((size, rows.height), Image.Resampling.BILINEAR, box=across)
    down = (0.0, top - first, float(size), bottom - first)
    return narrow.resize((size, size), Image.Resampling.BILINEAR, box=down)


def _pixels(image: Image.Image) -> Tensor:
    # numpy copies in this thread alone; torch would start a team of threads for each copy.
    pixels = np.asarray(image)
    return torch.from_numpy(np.atleast_3d(pixels).transpose(2, 0, 1).copy())
