"""Tasks of transfer as the columns of a table: which protocol, on what, and its figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from deepcluster.evaluation.retrieval import Retrieval
from deepcluster.evaluation.transfer import Transfer
from deepcluster.evaluation.voc_classification import VOCClassification
from deepcluster.evaluation.voc_detection import VOCDetection
from deepcluster.evaluation.voc_segmentation import VOCSegmentation
from deepcluster.images.folder import encoded
from deepcluster.runtime.errors import DataError


@dataclass(frozen=True)
class Task:
    """One column."""

    name: str
    """As in the paper's table, such as classification fc6-8."""
    data: Path
    settings: Callable[[int], Transfer]
    """The protocol, to be carried out with one seed."""
    figures: Callable[[dict[str, Any]], dict[str, float]]
    """Shares, by name, from what the protocol came to; the first one is the table's."""


def voc_tasks(
    devkit: Path,
    classification: VOCClassification | None = None,
    detection: VOCDetection | None = None,
    segmentation: VOCSegmentation | None = None,
) -> tuple[Task, ...]:
    """The columns of table 2: what learns, fc6 to fc8 or all, of each task."""
    classes, boxes = classification or VOCClassification(), detection or VOCDetection()
    pixels = segmentation or VOCSegmentation()
    return (
        _classification(devkit, replace(classes, train="fc6-8")),
        _classification(devkit, replace(classes, train="all")),
        _detection(devkit, replace(boxes, train="fc6-8")),
        _detection(devkit, replace(boxes, train="all")),
        _segmentation(devkit, replace(pixels, train="fc6-8")),
        _segmentation(devkit, replace(pixels, train="all")),
    )


def landmark_tasks(
    cities: Mapping[str, Path], whiten_on: str | None = None, settings: Retrieval | None = None
) -> tuple[Task, ...]:
    """The columns of table 5.

    Args:
        cities: Oxford, Paris or both.
        whiten_on: Images that the whitening is learnt on; the other city if not given.
        settings: The protocol, apart from its whitening.
    """
    retrieval = settings or Retrieval()
    tasks = []
    for name, place in cities.items():
        others = [str(other) for other in cities.values() if other != place]
        city = replace(retrieval, whiten_on=whiten_on or next(iter(others), None))
        tasks.append(_retrieval(name, place, city))
    return tuple(tasks)


def _retrieval(name: str, place: Path, settings: Retrieval) -> Task:
    def figures(result: dict[str, Any]) -> dict[str, float]:
        """The original ground truth's figure; of the revisited one, medium before the others."""
        levels = result["levels"]
        found = {
            level: levels[level]["map"]
            for level in ("all", "medium", "easy", "hard")
            if "map" in levels.get(level, {})
        }
        if not found:
            raise DataError(f"{encoded(str(place))}: no query has an image that could be found")
        return found

    return Task(name, place, lambda seed: replace(settings, seeds=(seed,)), figures)


def _classification(devkit: Path, settings: VOCClassification) -> Task:
    return Task(
        f"classification {settings.train}",
        devkit,
        lambda seed: replace(settings, seeds=(seed,)),
        lambda result: result["mean"],
    )


def _detection(devkit: Path, settings: VOCDetection) -> Task:
    return Task(
        f"detection {settings.train}",
        devkit,
        lambda seed: replace(settings, seeds=(seed,)),
        lambda result: result["mean"],
    )


def _segmentation(devkit: Path, settings: VOCSegmentation) -> Task:
    return Task(
        f"segmentation {settings.train}",
        devkit,
        lambda seed: replace(settings, seeds=(seed,)),
        lambda result: {"mean_iou": result["mean_iou"]},
    )
