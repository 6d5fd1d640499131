"""Boxes as numbers: left, top, right and bottom in pixels, the last two just outside the box.

Pascal VOC counts pixels from 1 and names the last one inside, so that a width there is
right - left + 1. Here the 1 is in the box itself (its left and top begin at 0, its right and bottom
are VOC's numbers): a width is right - left, and areas and overlaps are VOC's, pixel for pixel.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

DEVIATIONS = (0.1, 0.1, 0.2, 0.2)
"""What offsets are divided by, so that a network has numbers of about 1 to predict."""

_WIDEST = math.log(1000 / 16)  # no region grows by more, whatever a network says


def overlaps(some: NDArray[np.float64], others: NDArray[np.float64]) -> NDArray[np.float64]:
    """Intersection over union of every box of the one with every box of the other."""
    first, second = some[:, None].astype(np.float64), others[None].astype(np.float64)
    sides = np.minimum(first[..., 2:], second[..., 2:]) - np.maximum(
        first[..., :2], second[..., :2]
    )
    shared = sides.clip(min=0).prod(axis=2)
    union = areas(some)[:, None] + areas(others)[None] - shared
    return np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)


def areas(boxes: NDArray[np.float64]) -> NDArray[np.float64]:
    """How many pixels each box covers."""
    sides: NDArray[np.float64] = (boxes[:, 2:] - boxes[:, :2]).astype(np.float64)
    return sides.clip(min=0).prod(axis=1)


def flipped(boxes: NDArray[np.float64], width: int) -> NDArray[np.float64]:
    """The same boxes in the image whose left and right are exchanged."""
    return np.stack([width - boxes[:, 2], boxes[:, 1], width - boxes[:, 0], boxes[:, 3]], axis=1)


def offsets(regions: Tensor, boxes: Tensor) -> Tensor:
    """How to get from each region to its box: shift of the centre, logarithm of the growth.

    Both relative to the region, divided by `DEVIATIONS` (Girshick and others, 2014, appendix C).
    """
    sides, wanted = regions[:, 2:] - regions[:, :2], boxes[:, 2:] - boxes[:, :2]
    centres, aims = regions[:, :2] + sides / 2, boxes[:, :2] + wanted / 2
    raw = torch.cat([(aims - centres) / sides, (wanted / sides).log()], dim=1)
    return raw / raw.new_tensor(DEVIATIONS)


def moved(regions: Tensor, by: Tensor) -> Tensor:
    """The boxes that offsets lead to, for any number of classes: R x 4 and R x K x 4."""
    by = by * by.new_tensor(DEVIATIONS)
    sides = (regions[:, 2:] - regions[:, :2])[:, None]
    centres = regions[:, None, :2] + sides / 2 + by[..., :2] * sides
    halves = sides * by[..., 2:].clamp(max=_WIDEST).exp() / 2
    return torch.cat([centres - halves, centres + halves], dim=2)


def within(boxes: Tensor, width: int, height: int) -> Tensor:
    """The boxes cut to the image."""
    # One side after the other: a tensor of both would make the host wait for a GPU.
    across, down = boxes[..., 0::2].clamp(0, width), boxes[..., 1::2].clamp(0, height)
    return torch.stack([across, down], dim=-1).flatten(-2)
