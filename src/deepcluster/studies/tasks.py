"""Tasks of transfer as the columns of a table: which protocol, on what, and its figure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from deepcluster.evaluation.retrieval import Retrieval
from deepcluster.evaluation.shelf import Shelf
from deepcluster.evaluation.transfer import Transfer
from deepcluster.evaluation.voc import Devkit, Split, VocSet, find_devkit, refuse_common_sets
from deepcluster.evaluation.voc_classification import VOCClassification
from deepcluster.evaluation.voc_detection import VOCDetection
from deepcluster.evaluation.voc_segmentation import VOCSegmentation
from deepcluster.images.folder import encoded
from deepcluster.runtime.errors import DataError

LEARNT: tuple[Literal["fc6-8", "all"], ...] = ("fc6-8", "all")
"""What learns: the columns of each task."""

_Learnt = VOCClassification | VOCDetection | VOCSegmentation
_Figures = Callable[[dict[str, Any]], dict[str, float]]
_Choice = Callable[[dict[str, Any]], dict[str, Any]]


@dataclass(frozen=True)
class Task:
    """One column."""

    name: str
    """As in the paper's table, such as classification fc6-8."""
    data: Path
    protocol: Transfer
    """How networks are judged."""
    figures: Callable[[dict[str, Any]], dict[str, float]]
    """Shares, by name, from what the protocol came to; the first one is the table's."""
    choice: Callable[[dict[str, Any]], dict[str, Any]] = lambda result: {}
    """The settings that were chosen, from the same."""

    def with_seed(self, seed: int, first: dict[str, Any] | None = None) -> Transfer:
        """The protocol with one seed.

        Args:
            seed: Of the training, and of the network.
            first: What it came to with the first seed of the row, which has chosen for the others.
        """
        chosen = {} if first is None else self.choice(first)
        return replace(self.protocol, seeds=(seed,), **chosen)  # type: ignore[type-var]


def voc_tasks(
    devkit: Path,
    classification: VOCClassification | None = None,
    detection: VOCDetection | None = None,
    segmentation: VOCSegmentation | None = None,
) -> tuple[Task, ...]:
    """The columns of table 2: what learns, fc6 to fc8 or all, of each task."""
    kinds: tuple[tuple[str, _Learnt, _Figures, _Choice], ...] = (
        (
            "classification",
            classification or VOCClassification(),
            lambda result: result["mean"],
            lambda result: {"steps": (result["step"],), "decays": (result["decay"],)},
        ),
        (
            "detection",
            detection or VOCDetection(),
            lambda result: result["mean"],
            lambda result: {"steps": (result["choice"]["step"],)},
        ),
        (
            "segmentation",
            segmentation or VOCSegmentation(),
            lambda result: {"mean_iou": result["mean_iou"]},
            lambda result: {"steps": (result["step"],)},
        ),
    )
    return tuple(
        Task(f"{name} {train}", devkit, replace(protocol, train=train), figures, choice)
        for name, protocol, figures, choice in kinds
        for train in LEARNT
    )


def validation_task(devkit: Path, settings: VOCClassification | None = None) -> Task:
    """The paper's criterion for its own hyper-parameters: classification of val, no fine-tuning."""
    own = replace(settings or VOCClassification(), train="fc6-8", on="val")
    return Task("VOC 2007 val", devkit, own, lambda result: result["mean"])


def refuse_broken_devkit(tasks: Iterable[Task], shelf: Shelf | None = None) -> None:
    """Raise where a set of Pascal VOC that one of these tasks needs is missing or broken.

    Protocols say the same, but not before there is a network; they warn of what is left out, too,
    and find on the shelf what was read here.
    """
    shelf = shelf or Shelf()
    for task in tasks:
        for devkit, kind, pairs in _sets(task):
            refuse_common_sets(pairs, partial(read_set, shelf, devkit, kind))


def read_set(shelf: Shelf, devkit: Devkit, kind: str, split: Split) -> VocSet:
    """The set by the name that protocols have for it, read once."""
    if kind == "Segmentation":
        return shelf((devkit, "segmented", split), partial(devkit.segmented, split))
    return shelf((devkit, "annotated", split), partial(devkit.annotated, split))


def _sets(
    task: Task,
) -> list[tuple[Devkit, Literal["Main", "Segmentation"], list[tuple[Split, Split]]]]:
    """Which sets of Pascal VOC the task learns from and is judged on."""
    protocol, flag = task.protocol, "--voc"
    if isinstance(protocol, VOCSegmentation):
        devkit, learnt, judged = protocol.sets(task.data, flag)
        return [(devkit, "Segmentation", [(learnt, judged)])]
    if isinstance(protocol, VOCClassification | VOCDetection):
        devkit = find_devkit(task.data, 2007, flag)
        return [(devkit, "Main", protocol.sets)]
    return []


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

    return Task(name, place, settings, figures)
