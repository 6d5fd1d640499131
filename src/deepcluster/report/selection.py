"""Which groups and images a page shows: all of them, or a bounded part chosen by one rule.

`train` keeps thumbnails of exactly these, so that a page can be laid out without the images.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MOST_IMAGES = 4_000
MOST_GROUPS = 500


@dataclass(frozen=True)
class Selection:
    """The part of a run that a page shows."""

    groups: NDArray[np.int64]
    """Rising; of more groups than fit, evenly many of the tight and of the loose ones."""
    images: NDArray[np.int64]
    """Rising; of a larger group the nearest to its centre, the farthest, and some between."""
    all_groups: bool
    all_images: bool


def select(
    labels: NDArray[np.int64],
    distances: NDArray[np.float32],
    most_images: int = MOST_IMAGES,
    most_groups: int = MOST_GROUPS,
) -> Selection:
    """What to show of images with these groups (-1 is none) and distances to their centre."""
    sizes = np.bincount(labels[labels >= 0])
    groups = np.flatnonzero(sizes)
    if len(labels) <= most_images and len(groups) <= most_groups:
        return Selection(groups, np.arange(len(labels)), all_groups=True, all_images=True)
    all_groups = len(groups) <= most_groups
    if not all_groups:
        known = np.where((labels >= 0) & np.isfinite(distances), distances, 0.0)
        total = np.bincount(np.maximum(labels, 0), weights=known, minlength=len(sizes))
        looseness = total[groups] / sizes[groups]
        places = np.linspace(0, len(groups) - 1, most_groups).round().astype(int)
        groups = np.sort(groups[np.argsort(looseness, kind="stable")[places]])
    quota = max(1, most_images // max(1, len(groups)))
    order = np.lexsort((distances, labels))  # by group, from the centre outwards
    starts = np.searchsorted(labels[order], groups, side="left")
    ends = np.searchsorted(labels[order], groups, side="right")
    pairs = zip(starts, ends, strict=True)
    parts = [order[start:end][spread(int(end - start), quota)] for start, end in pairs]
    images = np.sort(np.concatenate(parts)) if parts else np.zeros(0, np.int64)
    return Selection(groups, images, all_groups, all_images=False)


def spread(count: int, quota: int) -> NDArray[np.int64]:
    """The places, of `count` from the centre outwards, that stand for all of them."""
    if count <= quota:
        return np.arange(count)
    near, far = -(-quota // 2), quota // 4
    between = np.linspace(near, count - far - 1, quota - near - far).round().astype(np.int64)
    places = [np.arange(near), between, np.arange(count - far, count)]
    return np.unique(np.concatenate(places))
