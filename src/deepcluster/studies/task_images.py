"""Whether the images and ground truth of a task are still those that it was judged on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from deepcluster.evaluation.landmarks import read_landmarks
from deepcluster.evaluation.proposals import maker_of
from deepcluster.evaluation.region_makers import edition
from deepcluster.evaluation.retrieval import Retrieval, fingerprint_of, whitening_source
from deepcluster.evaluation.shelf import Shelf
from deepcluster.evaluation.voc import Split, VocSet, find_devkit
from deepcluster.evaluation.voc_classification import NOT_DECODED
from deepcluster.evaluation.voc_detection import VOCDetection
from deepcluster.evaluation.voc_segmentation import VOCSegmentation
from deepcluster.images.folder import encoded
from deepcluster.runtime.errors import DataError, UsageError
from deepcluster.studies.tasks import Task, read_set


def what_changed(
    task: Task, known: dict[str, Any], shelf: Shelf, *, follow_links: bool
) -> str | None:
    """In words what is not as it was; None where all is. Where it lies does not matter.

    Args:
        task: With the place where the data is now.
        known: What the protocol said of the data when it judged.
        shelf: What was read of the data, for the protocol and for the next part.
        follow_links: Whether links out of folders of images are followed.
    """
    look = _landmarks if isinstance(task.protocol, Retrieval) else _devkit
    try:
        return next((what for what in look(task, known, shelf, follow_links) if what), None)
    except (DataError, UsageError) as error:  # of a task that is not asked for, too
        return f"what {task.name} is judged on was damaged or moved ({error})"


def _landmarks(
    task: Task, known: dict[str, Any], shelf: Shelf, follow_links: bool
) -> Iterator[str | None]:
    protocol = task.protocol
    assert isinstance(protocol, Retrieval)
    places = [place and Path(place) for place in (protocol.images, protocol.ground_truth)]
    read = partial(
        read_landmarks, task.data, *(place or None for place in places), follow_links=follow_links
    )
    landmarks = shelf(("landmarks", task.data, *places), read)
    if _differs(known.get("fingerprint"), landmarks.fingerprint):
        yield f"the images or the ground truth of {encoded(str(task.data))} have changed"
    look = partial(protocol.not_asked, landmarks)
    beyond = shelf(("not asked", task.data, *places, protocol.queries), look)
    if known.get("not_asked", []) != [encoded(path) for path in beyond]:  # older versions cut them
        said = "whose box reaches beyond the image have been left out"
        yield f"queries of {encoded(str(task.data))} {said}"
    if (where := protocol.whiten_on) is not None:
        now = shelf(("whitening", where), partial(_of_whitening, where, follow_links))
        if _differs(known.get("whitening_fingerprint"), now):
            yield f"the images of {encoded(where)}, which whiten, have changed"


def _of_whitening(place: str, follow_links: bool) -> str | None:
    source = whitening_source(place, follow_links=follow_links)
    return None if source is None else fingerprint_of(source.find())


def _devkit(
    task: Task, known: dict[str, Any], shelf: Shelf, _follow_links: bool
) -> Iterator[str | None]:
    flag, protocol = "--voc", task.protocol
    if isinstance(protocol, VOCSegmentation):
        devkit, *_ = protocol.sets(task.data, flag)
    else:
        devkit = find_devkit(task.data, 2007, flag)
    for about in known.values():
        kind, split = about["set"].split("/")
        now = read_set(shelf, devkit, kind, cast(Split, split))
        lost = {
            left["name"]: left.get("size")
            for left in about["left_out"]
            if left["reason"] == NOT_DECODED
        }
        if _differs(about.get("fingerprint"), _without(now, lost).fingerprint):
            less = " (or an older version knew masks by size alone)" if now.kind != "Main" else ""
            yield f"the set {about['set']} of {encoded(str(devkit.folder))} has changed{less}"
    if isinstance(protocol, VOCDetection) and protocol.boxes is None:
        then = known.get("test", {}).get("regions", {}).get("source")
        if _differs(then, maker := edition(maker_of(protocol.proposals))):
            yield f"who finds regions has changed from {then} to {maker}"


def _without(images: VocSet, lost: Mapping[str, int | None]) -> VocSet:
    """The set without those files, by name and size; an older version kept names alone."""
    kept = [
        number
        for number, image in enumerate(images.images)
        if image.name not in lost or lost[image.name] not in (None, image.path.stat().st_size)
    ]
    if len(kept) == len(images):
        return images  # which knows its fingerprint already
    labels = images.labels[np.array(kept, dtype=np.int64)] if len(images.labels) else images.labels
    return replace(images, images=tuple(images.images[one] for one in kept), labels=labels)


def _differs(then: str | None, now: str | None) -> bool:
    """Whether they name different things; an older version may have named nothing."""
    return then is not None and then != now
