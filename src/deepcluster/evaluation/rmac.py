"""R-MAC: one vector for an image of any size (Tolias, Sicre and Jegou, 2016).

Square regions of several sizes cover the maps of a layer; the maximum of every channel over a
region is its vector. Region vectors are scaled to unit length, whitened, scaled again and summed.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from deepcluster.features import PCA

OVERLAP = 0.4
"""What neighbouring regions of the first level should share."""

_ALONG = range(2, 8)  # how many regions of the first level may lie along the longer side


class Region(NamedTuple):
    """A square of the maps."""

    top: int
    left: int
    side: int


def regions(height: int, width: int, levels: int) -> list[Region]:
    """The squares of every level, from the largest, row by row.

    Level l has squares of side 2 s / (l + 1), where s is the shorter side of the maps: l of them
    along it and m more along the longer side. m + 1 squares of the first level lie along the
    longer side, as many as make neighbours share nearest to 40%; none but one if both are equal.
    """
    short, long = min(height, width), max(height, width)
    more = 0
    if long > short:
        shared = {count: 1 - (long - short) / (count - 1) / short for count in _ALONG}
        more = min(_ALONG, key=lambda count: abs(shared[count] - OVERLAP)) - 1
    found = []
    for level in range(1, levels + 1):
        side = max(1, 2 * short // (level + 1))
        tops = _starts(height, side, level + (more if height > width else 0))
        lefts = _starts(width, side, level + (more if width > height else 0))
        found += [Region(top, left, side) for top in tops for left in lefts]
    return found


def _starts(extent: int, side: int, count: int) -> list[int]:
    """Where squares begin that are spread evenly, from one edge to the other."""
    return [place * (extent - side) // max(1, count - 1) for place in range(count)]


def region_vectors(maps: Tensor, levels: int) -> Tensor:
    """B x regions x channels, float32, each of unit length (or zero), from B x channels x h x w."""
    maps = maps.float()
    vectors = torch.stack(
        [
            maps[:, :, top : top + side, left : left + side].amax(dim=(2, 3))
            for top, left, side in regions(maps.shape[2], maps.shape[3], levels)
        ],
        dim=1,
    )
    return F.normalize(vectors, dim=2)


def rmac(vectors: Tensor, pca: PCA | None) -> Tensor:
    """B x width: the regions of each image whitened, summed, and scaled to unit length."""
    if pca is not None:
        vectors = pca(vectors.flatten(0, 1)).unflatten(0, vectors.shape[:2])
    return F.normalize(vectors.sum(dim=1), dim=1)
