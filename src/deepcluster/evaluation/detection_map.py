"""Mean average precision of a detector, by Pascal VOC's rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deepcluster.evaluation.average_precision import AveragePrecision, average_precision
from deepcluster.evaluation.boxes import overlaps
from deepcluster.evaluation.voc import VocImage
from deepcluster.evaluation.voc_objects import CLASSES

OVERLAP = 0.5
"""Intersection over union, from which on a box has found an object."""


@dataclass(frozen=True)
class Detections:
    """What a detector says of all images; row i of each is detection i."""

    images: NDArray[np.int64]
    """The image's place in its set."""
    labels: NDArray[np.int64]
    scores: NDArray[np.float64]
    boxes: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.images)


def detection_precisions(
    detections: Detections, images: Sequence[VocImage]
) -> list[AveragePrecision | None]:
    """Of each class; nothing where no image has an object of it that is not difficult."""
    found = []
    for label in range(len(CLASSES)):
        scores, hits = judged(detections, images, label)
        objects = [thing for image in images for thing in image.objects if thing.label == label]
        to_find = sum(not thing.difficult for thing in objects)
        found.append(average_precision(scores, hits, to_find))
    return found


def judged(
    detections: Detections, images: Sequence[VocImage], label: int
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Scores of the detections of a class that count, the surest first, and which are right.

    Each is held against the object of its class in its image that it overlaps most (of equals the
    first). Overlapping it by half or more, it is right, unless the object was found by a surer one
    already: then it is wrong, whatever else it overlaps. One whose object is difficult does not
    count. Equal scores are taken in the order they came in.
    """
    chosen = np.flatnonzero(detections.labels == label)
    chosen = chosen[np.argsort(-detections.scores[chosen], kind="stable")]
    where = detections.images[chosen]
    counts, right = np.ones(len(chosen), dtype=bool), np.zeros(len(chosen), dtype=bool)
    by_image = np.argsort(where, kind="stable")
    for ranks in np.split(by_image, np.flatnonzero(np.diff(where[by_image])) + 1):
        objects = (
            [thing for thing in images[where[ranks[0]]].objects if thing.label == label]
            if len(ranks)
            else []
        )
        if not objects:
            continue
        shared = overlaps(
            detections.boxes[chosen[ranks]], np.array([thing.box for thing in objects])
        )
        taken: set[int] = set()
        for rank, nearest, most in zip(
            ranks, shared.argmax(axis=1), shared.max(axis=1), strict=True
        ):
            if most < OVERLAP:
                continue
            if objects[nearest].difficult:
                counts[rank] = False
            else:
                right[rank] = nearest not in taken
                taken.add(nearest)
    return detections.scores[chosen][counts], right[counts]
