"""An image to a square of pixels: the steady view for clustering, the random one for learning.

Pillow resizes, in fixed point: a crop has the same bytes on every machine. (Resizing with torch
is about a third faster here, but differs between processors, and cannot cut while it resizes,
which makes very long images dangerous.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

TRIES = 10
NUMBERS = 2 * TRIES + 3
"""How many uniform numbers one random crop is made from."""

MEAN = (0.485, 0.456, 0.406)
DEVIATION = (0.229, 0.224, 0.225)
"""Of ImageNet's training images, per channel, on the scale 0 to 1."""


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


def look(image: Image.Image, size: int) -> Tensor:
    """The centre of the image as uint8, 3 x size x size: the view that is clustered.

    The short side becomes 256/224 of `size`, then the middle is cut out (256 and 224 in the
    paper's implementation). Both in one step: a 1 x 20000 image never becomes 256 x 5120000.
    """
    width, height = (np.array([side]) for side in image.size)
    left, top, right, bottom = centre_boxes(width, height, size)[0].tolist()
    box = (left, top, right, bottom)
    return _pixels(image.resize((size, size), Image.Resampling.BILINEAR, box=box))


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


def centre_boxes(
    widths: NDArray[np.int64], heights: NDArray[np.int64], size: int
) -> NDArray[np.float64]:
    """Left, top, right and bottom of the part that `look` shows, for each image."""
    short = round(size * 256 / 224)
    sides = np.stack([widths, heights])
    new = short * sides // sides.min(axis=0)
    first = np.rint((new - size) / 2)
    scale = sides / new
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


def normalize(batch: Tensor) -> Tensor:
    """The batch, levels from 0 to 255, as float32 with ImageNet's mean 0 and deviation 1.

    A batch of one channel holds the channels' mean weighted by their inverse deviation (as a
    grey store does); it becomes the mean of the normalised channels, which is what Sobel takes.
    """
    if batch.shape[1] == 1:
        scale = sum(1 / deviation for deviation in DEVIATION) / (3 * 255)
        offset = -sum(m / d for m, d in zip(MEAN, DEVIATION, strict=True)) / 3
        return batch.to(torch.float32, copy=True).mul_(scale).add_(offset)
    mean = torch.tensor(MEAN, device=batch.device).view(-1, 1, 1) * 255
    deviation = torch.tensor(DEVIATION, device=batch.device).view(-1, 1, 1) * 255
    return batch.to(torch.float32, copy=True).sub_(mean).div_(deviation)


def _pixels(image: Image.Image) -> Tensor:
    # numpy copies in this thread alone; torch would start a team of threads for each copy.
    pixels = np.asarray(image)
    return torch.from_numpy(np.atleast_3d(pixels).transpose(2, 0, 1).copy())
