"""The baseline: the same network trained on the classes that the folders name.

Nothing is looked at or grouped: the labels are there, they stay, and so does the head. All else is
the method's: crops, step, saves, journal. It is a run like any other, and its closing pass groups
the features as always, so that whatever reads a run reads this one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from deepcluster.loop import Sitting, closed, learn
from deepcluster.networks import fresh_head
from deepcluster.pseudolabels import Draw
from deepcluster.runtime.errors import ResumeError
from deepcluster.runtime.seeds import generator
from deepcluster.training.record import about_training


def follow_labels(sitting: Sitting) -> None:
    """Train the network to predict the folder labels, every image once an epoch."""
    run, course = replace(sitting.run, draw=Draw(kind="natural")), sitting.course
    sitting = replace(sitting, run=run)
    network = course.network
    course.labels = _unchanged(sitting.images.labels, course.labels)
    classes = int(course.labels.max()) + 1
    for epoch in course.epochs(until=run.epochs):
        record: dict[str, Any] = {"epoch": epoch, "seconds": {}, "warnings": [], "classes": classes}
        head = course.saved_head(epoch) or network.head
        if not isinstance(head, nn.Linear):
            head = fresh_head(network.width, classes, generator(run.seed, "head", 0))
        network.head = head.to(sitting.world.device)
        loss = learn(sitting, epoch, record)
        record |= about_training(loss, classes, course.folder.journal(), "classes")
        course.complete(epoch, closed(record, sitting))


def _unchanged(
    labels: NDArray[np.int64] | None, before: NDArray[np.int64] | None
) -> NDArray[np.int64]:
    assert labels is not None  # without them the run would not have begun
    if before is not None and not np.array_equal(labels, before):
        raise ResumeError(
            "the images have other labels than when the run began; put those back, or start a new "
            "run with another --out"
        )
    return labels
