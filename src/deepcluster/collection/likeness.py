"""Which images of a run are alike, by content and by pixels, and which are like no others."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from scipy.ndimage import uniform_filter
from torch import Tensor

from deepcluster.clusters import assign, joined, nearest_others
from deepcluster.collection.groups import ClusterTable
from deepcluster.images.album import Album
from deepcluster.images.threads import in_order

ALIKE = 0.93
"""Correlation of two signatures from which on two images are near duplicates. Among 300 photographs
no two others reach 0.90; copies resized, brightened, greyed or saved as a poor JPEG keep 0.92."""

_SIDE = 16  # of the small picture behind a signature
_WINDOW = 5  # what is common to this many pixels is taken out: light, and the layout of a scene
_FLAT = 1.0  # grey levels: less detail than this tells nothing
_ROWS = 8192  # compared with the centroids at once
_LEAST_GROUP = 3  # images; fewer are no group that others could belong to

Progress = Callable[[int], None]


class Copies(NamedTuple):
    """Images that show the same, and how alike each is to the first of them (1: same file)."""

    exact: bool
    numbers: list[int]
    likeness: list[float]


def outliers(
    rows: NDArray[np.floating],
    clusters: ClusterTable,
    centroids: Tensor | None,
    progress: Progress = lambda count: None,
) -> NDArray[np.float32]:
    """(N,) how far each image is from every group; not a number where it has no feature.

    A group of one or two images is what an outlier makes for itself, so it counts as none: its
    images are measured anew, the others are as far as they are from their own group.

    Args:
        rows: (N, d), in memory or in a file.
        clusters: The groups of the images.
        centroids: Of the groups; without any the distance is that to the nearest other image.
        progress: Is told of so many more images that were looked at.
    """
    labels = clusters.cluster
    known = np.flatnonzero(labels >= 0)
    far = np.where(labels >= 0, clusters.distance, np.nan).astype(np.float32)
    if centroids is None:
        whole = torch.from_numpy(rows[known].astype(np.float32))
        far[known] = nearest_others(whole, 1, progress).distance[:, 0].sqrt().numpy()
        return far
    real = np.bincount(labels[known], minlength=len(centroids)) >= _LEAST_GROUP
    if not real.any():
        return far
    kept = centroids[torch.from_numpy(real)]
    odd = known[~real[labels[known]]]
    progress(len(known) - len(odd))
    for start in range(0, len(odd), _ROWS):
        some = odd[start : start + _ROWS]
        far[some] = assign(torch.from_numpy(rows[some].astype(np.float32)), kept)[1].numpy()
        progress(len(some))
    return far


def duplicates(
    images: Album, alike: float, phase: Callable[[str, int], AbstractContextManager[Progress]]
) -> list[Copies]:
    """Groups of images with the same content, then groups of those with nearly the same pixels.

    Of a group of equal files only the first is compared further.

    Args:
        images: The images of a run.
        alike: Correlation from which on two signatures are of nearly the same pixels.
        phase: Opens a part of the work on so many images, and gives what is told of them.
    """
    hashes = np.array(images.index.usable["hash"].to_pylist())
    _, first, which = np.unique(hashes, return_index=True, return_inverse=True)
    exact = [Copies(True, members.tolist(), [1.0] * len(members)) for members in _members(which)]
    distinct = np.sort(first)
    with phase("looking", len(distinct)) as progress:
        prints = signatures(images, distinct, progress)
    with phase("comparing", len(distinct)) as progress:
        which = joined(torch.from_numpy(prints), alike, progress).numpy()
    near = []
    for members in _members(which):
        likeness = prints[members] @ prints[members[0]]
        near.append(Copies(False, distinct[members].tolist(), likeness.tolist()))
    return exact + near


def signature(picture: Image.Image) -> NDArray[np.float32]:
    """The detail of a small grey version, of unit length; zero where there is none."""
    small = picture.convert("L").resize((_SIDE, _SIDE), Image.Resampling.BILINEAR)
    grey = np.asarray(small, dtype=np.float64)
    detail = (grey - uniform_filter(grey, _WINDOW, mode="nearest")).ravel()
    strength = float(np.linalg.norm(detail))
    if strength < _FLAT * _SIDE:
        return np.zeros(_SIDE * _SIDE, dtype=np.float32)
    return (detail / strength).astype(np.float32)


def signatures(
    images: Album, numbers: NDArray[np.int64], progress: Progress
) -> NDArray[np.float32]:
    """The signature of each of the images."""
    prints = np.empty((len(numbers), _SIDE * _SIDE), dtype=np.float32)
    work = partial(_signature_of, images)
    threads = os.cpu_count() or 1
    for at, one in enumerate(in_order(work, numbers.tolist(), threads, 16 * threads)):
        prints[at] = one
        progress(1)
    return prints


def _signature_of(images: Album, number: int) -> NDArray[np.float32]:
    return signature(images.small(number))


def _members(which: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """The members of each group of two or more, in order; groups by their first member."""
    order = np.argsort(which, kind="stable")
    starts = np.flatnonzero(np.diff(which[order], prepend=-1))
    groups = np.split(order, starts[1:])
    return sorted((group for group in groups if len(group) > 1), key=lambda group: int(group[0]))
