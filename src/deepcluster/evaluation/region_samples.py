"""Which regions of an image a detector learns from, and what it should say of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deepcluster.evaluation.boxes import overlaps
from deepcluster.evaluation.voc import VocImage
from deepcluster.evaluation.voc_objects import CLASSES

NOTHING = len(CLASSES)
"""The label of a region that holds no object."""

FOREGROUND = 0.5
"""Overlap with an object, from which on a region should be called by its class."""


@dataclass(frozen=True)
class Sampled:
    """Regions to learn from; row i of each is region i. Those with an object come first."""

    boxes: NDArray[np.float64]
    labels: NDArray[np.int64]
    """`NOTHING` where there is no object."""
    aims: NDArray[np.float64]
    """The box of the object, for as many rows as have one."""


@dataclass(frozen=True)
class Candidates:
    """The regions of one training image, sorted by what they hold.

    The objects themselves are among the regions. A difficult object is none: what overlaps it
    alone counts as background, as it does in Fast R-CNN.
    """

    boxes: NDArray[np.float64]
    objects: NDArray[np.float64]
    labels: NDArray[np.int64]
    """Of the objects."""
    nearest: NDArray[np.int64]
    """Of each region, the object that it overlaps most."""
    foreground: NDArray[np.int64]
    background: NDArray[np.int64]

    @staticmethod
    def of(image: VocImage, regions: NDArray[np.float64], lowest: float) -> Candidates:
        """The candidates among an image's regions.

        Args:
            image: With its objects.
            regions: Its proposals.
            lowest: Background overlaps an object by this or more: what is near is hardest. Where
                there is none of it, all that is not foreground is background.
        """
        things = [thing for thing in image.objects if not thing.difficult]
        objects = np.array([thing.box for thing in things], dtype=np.float64).reshape(-1, 4)
        boxes = np.concatenate([regions, objects])
        if things:
            shared = overlaps(boxes, objects)
            nearest, most = shared.argmax(axis=1), shared.max(axis=1)
        else:
            nearest, most = np.zeros(len(boxes), dtype=np.int64), np.zeros(len(boxes))
        background = np.flatnonzero((most >= lowest) & (most < FOREGROUND))
        if not len(background):
            background = np.flatnonzero(most < FOREGROUND)
        return Candidates(
            boxes,
            objects,
            np.array([thing.label for thing in things], dtype=np.int64),
            nearest,
            np.flatnonzero(most >= FOREGROUND),
            background,
        )

    def sampled(self, count: int, share: float, drawn: np.random.Generator) -> Sampled:
        """At most `count` regions, no more than that share of them with an object."""
        fore = _some(self.foreground, round(share * count), drawn)
        back = _some(self.background, count - len(fore), drawn)
        aims = self.nearest[fore]
        labels = np.full(len(fore) + len(back), NOTHING)
        labels[: len(fore)] = self.labels[aims] if len(fore) else NOTHING
        return Sampled(
            self.boxes[np.concatenate([fore, back])],
            labels,
            self.objects[aims] if len(fore) else np.zeros((0, 4)),
        )


def _some(places: NDArray[np.int64], most: int, drawn: np.random.Generator) -> NDArray[np.int64]:
    if len(places) <= most:
        return places
    return places[drawn.choice(len(places), most, replace=False, shuffle=False)]
