"""Boxes that may hold an object, by grouping: our own generator, where no other is installed.

In the manner of selective search (Uijlings and others, 2013): an image is cut into small pieces of
even colour (Felzenszwalb and Huttenlocher, 2004), then the two neighbours that are most alike are
joined, again and again until one is left; the bounding box of every piece that ever was is a
region. Two such trees, in different colours and by different likeness, give different regions.
Windows laid out evenly follow.
"""

from __future__ import annotations

import math
from heapq import heapify, heappop, heappush
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from skimage.color import rgb2hsv, rgb2lab
from skimage.segmentation import felzenszwalb

VERSION = 1
"""Of what is found: another one when the same image gives other regions."""

_COLOURS = 20  # bins for each channel
_DIRECTIONS = 8  # of a channel's gradient


class _Tree(NamedTuple):
    """One way to group."""

    space: str
    scale: int  # the larger, the larger the first pieces
    by_colour: bool  # and by texture, size and fill always


_TREES = (_Tree("lab", 60, True), _Tree("hsv", 120, False))

_WINDOWS = (1.0, 0.7, 0.5, 0.35, 0.25, 0.17, 0.12)  # sides, beside that of a square as large
_RATIOS = (1.0, 0.5, 2.0)
_STRIDE = 0.35  # of a window's side, from one to the next, at most


def proposed(pixels: NDArray[np.uint8], most: int, smallest: int) -> NDArray[np.int16]:
    """At most so many boxes, none twice and none with a side under `smallest`.

    First those of the trees. What room they leave is filled with windows laid out evenly, the large
    ones first: they find objects that no tree holds together, though less exactly.
    """
    height, width = pixels.shape[:2]
    every = np.concatenate([_grouped(pixels), _windows(width, height)])
    every = every[(every[:, 2:] - every[:, :2]).min(axis=1) >= smallest]
    _, first = np.unique(every, axis=0, return_index=True)
    return every[np.sort(first)][:most].astype(np.int16)


def _grouped(pixels: NDArray[np.uint8]) -> NDArray[np.int64]:
    """The boxes of all trees, those that come late in theirs first.

    A number drawn for each keeps the large ones from coming before all of the small.
    """
    drawn = np.random.default_rng(0)  # so that regions are a function of the image alone
    boxes, ranks = [], []
    for tree in _TREES:
        found = _Pieces.of(_in_space(pixels, tree.space), tree.scale).joined(tree.by_colour)
        boxes.append(found[::-1])
        ranks.append(np.arange(1, len(found) + 1) * drawn.random(len(found)))
    return np.concatenate(boxes)[np.argsort(np.concatenate(ranks), kind="stable")]


def _windows(width: int, height: int) -> NDArray[np.int64]:
    """Boxes of a few sizes and shapes, evenly over the image."""
    square = (width * height) ** 0.5
    rows = []
    for scale, ratio in product(_WINDOWS, _RATIOS):
        across = min(float(width), scale * square * ratio**0.5)
        down = min(float(height), scale * square / ratio**0.5)
        lefts, tops = (
            np.linspace(0, whole - side, math.ceil((whole - side) / (_STRIDE * side)) + 1)
            for whole, side in ((width, across), (height, down))
        )
        left, top = (grid.ravel() for grid in np.meshgrid(lefts, tops))
        rows.append(np.stack([left, top, left + across, top + down], axis=1))
    return np.concatenate(rows).round().astype(np.int64)


def _in_space(pixels: NDArray[np.uint8], space: str) -> NDArray[np.uint8]:
    if space == "hsv":
        return (rgb2hsv(pixels) * 255).round().astype(np.uint8)
    lab = rgb2lab(pixels) * (2.55, 1.0, 1.0) + (0.0, 128.0, 128.0)
    return lab.clip(0, 255).round().astype(np.uint8)


class _Pieces(NamedTuple):
    """What an image is first cut into, one row each, and which of them touch."""

    boxes: NDArray[np.int64]
    sizes: NDArray[np.float64]
    colours: NDArray[np.float64]
    textures: NDArray[np.float64]
    touching: NDArray[np.int64]

    @staticmethod
    def of(pixels: NDArray[np.uint8], scale: int) -> _Pieces:
        labels = felzenszwalb(pixels, scale=scale, sigma=0.8, min_size=scale // 2)
        count = int(labels.max()) + 1
        rows, columns = np.indices(labels.shape)
        flat = labels.ravel()
        boxes = np.empty((count, 4), dtype=np.int64)
        boxes[:, :2] = np.iinfo(np.int64).max
        boxes[:, 2:] = 0
        for side, where in ((0, columns), (1, rows)):
            np.minimum.at(boxes[:, side], flat, where.ravel())
            np.maximum.at(boxes[:, side + 2], flat, where.ravel() + 1)
        colours, textures = [], []
        for channel in np.moveaxis(pixels, 2, 0):
            bins = channel.astype(np.int64) * _COLOURS // 256
            colours.append(_histogram(flat, bins.ravel(), count, _COLOURS))
            level = channel.astype(np.float64)
            down, across = (
                np.diff(level, axis=axis, prepend=level.take([0], axis)) for axis in (0, 1)
            )
            turn = (np.arctan2(down, across) + np.pi) / (2 * np.pi)
            bins = np.minimum((turn * _DIRECTIONS).astype(np.int64), _DIRECTIONS - 1)
            strength = np.hypot(down, across).ravel()
            textures.append(_histogram(flat, bins.ravel(), count, _DIRECTIONS, strength))
        pairs = np.concatenate(
            [
                np.stack([labels[:, :-1].ravel(), labels[:, 1:].ravel()], axis=1),
                np.stack([labels[:-1].ravel(), labels[1:].ravel()], axis=1),
            ]
        )
        pairs = np.sort(pairs[pairs[:, 0] != pairs[:, 1]], axis=1)
        return _Pieces(
            boxes,
            np.bincount(flat, minlength=count).astype(np.float64),
            _shares(np.concatenate(colours, axis=1)),
            _shares(np.concatenate(textures, axis=1)),
            np.unique(pairs, axis=0),
        )

    def joined(self, by_colour: bool) -> NDArray[np.int64]:
        """The boxes of the pieces and of all that are made by joining, in that order."""
        first = len(self.boxes)
        whole = float(self.sizes.sum())
        boxes, sizes = _room(self.boxes), _room(self.sizes)
        looks = self.textures
        if by_colour:
            looks = np.concatenate([self.textures, self.colours], axis=1)
        looks = _room(looks)

        def likeness(one: int, others: NDArray[np.int64]) -> NDArray[np.float64]:
            size = sizes[one] + sizes[others]
            corner = np.minimum(boxes[one, :2], boxes[others, :2])
            around = (np.maximum(boxes[one, 2:], boxes[others, 2:]) - corner).prod(axis=1)
            alike = np.minimum(looks[one], looks[others]).sum(axis=1)
            # Small ones are joined early, and so are those that fill their common box.
            result: NDArray[np.float64] = alike + (1 - size / whole) + (1 - (around - size) / whole)
            return result

        neighbours: list[set[int]] = [set() for _ in range(2 * first)]
        for one, other in self.touching.tolist():
            neighbours[one].add(other)
            neighbours[other].add(one)
        queue: list[tuple[float, int, int]] = []
        for one in range(first):
            others = sorted(other for other in neighbours[one] if other > one)
            values = likeness(one, np.array(others, dtype=np.int64)).tolist()
            queue += [(-value, one, other) for value, other in zip(values, others, strict=True)]
        heapify(queue)
        gone = bytearray(2 * first)
        count = first
        while queue:
            _, one, other = heappop(queue)
            if gone[one] or gone[other]:
                continue
            gone[one] = gone[other] = 1
            share = sizes[one] / (sizes[one] + sizes[other])
            sizes[count] = sizes[one] + sizes[other]
            looks[count] = share * looks[one] + (1 - share) * looks[other]
            boxes[count, :2] = np.minimum(boxes[one, :2], boxes[other, :2])
            boxes[count, 2:] = np.maximum(boxes[one, 2:], boxes[other, 2:])
            around = (neighbours[one] | neighbours[other]) - {one, other}
            neighbours[count] = around
            if around:
                others = sorted(around)
                values = likeness(count, np.array(others)).tolist()
                for value, near in zip(values, others, strict=True):
                    neighbours[near] -= {one, other}
                    neighbours[near].add(count)
                    heappush(queue, (-value, near, count))
            count += 1
        return boxes[:count]


def _histogram(
    pieces: NDArray[np.int64],
    bins: NDArray[np.int64],
    count: int,
    width: int,
    weights: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    counted = np.bincount(pieces * width + bins, weights, minlength=count * width)
    return counted.reshape(count, width).astype(np.float64)


def _shares(histograms: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rows that sum to 1; one without anything stays zero."""
    return histograms / histograms.sum(axis=1, keepdims=True).clip(min=1e-9)


def _room(rows: NDArray) -> NDArray:
    """The rows, and as many again for those that joining will make."""
    return np.concatenate([rows, np.zeros_like(rows)])
