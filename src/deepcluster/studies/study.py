"""What a study is: rows that differ in one thing, and a table made of what they reach."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from matplotlib.figure import Figure

from deepcluster.clusters import PowerIteration
from deepcluster.evaluation.probe import Choices
from deepcluster.settings import Run, flat
from deepcluster.studies.paper import Figures
from deepcluster.studies.terms import Terms

Judge = Literal["linear", "mlp", "transfer", "retrieval"]
"""Probes on labelled images; or tasks: those of Pascal VOC, or landmarks to be found."""

BY_TASK: tuple[Judge, ...] = ("transfer", "retrieval")


@dataclass(frozen=True)
class Row:
    """One network of a study: how it comes about."""

    name: str
    run: Run
    """What is trained; of an untrained network, what it is built from."""
    trained: bool = True
    begun: bool = False
    """Of an untrained network: whether it begins as a run does, with patches where that has some.
    Else it is drawn."""
    every_seed: bool = False
    """Whether all seeds are run, or the first one only."""
    images: Path | None = None
    """What it is trained on, if not the training images of the first data set."""
    candidates: tuple[Run, ...] = ()
    """In the place of `run`, the best of these on the held-out images."""
    tuned_like: str | None = None
    """The row, with candidates in the same order, whose choice is taken where it was run."""
    choices: Choices | None = None
    """Step and decay of its probes, where it has learnt the labels they would be chosen by."""
    continues: str | None = None
    """Rows with the same name here are one run, longer from row to row."""
    adopted: Mapping[int, Path] = field(default_factory=dict)
    """Runs that were trained before, by seed: only these are judged, and none is trained."""
    note: str = ""
    notes_on: Mapping[str, str] = field(default_factory=dict)
    """What is to be said of its figures on one data set, by that one's name."""

    @staticmethod
    def tuned(name: str, candidates: tuple[Run, ...], **more: Any) -> Row:
        """The best of some candidates, by the held-out part of the training images."""
        return Row(name, candidates[0], candidates=candidates, **more)

    @staticmethod
    def by_power_iteration(name: str, run: Run, **more: Any) -> Row:
        """A row of the paper's other clustering, which says where its sigma is not the paper's."""
        row = Row(name, run, **more)
        sigma = run.clustering.sigma if isinstance(run.clustering, PowerIteration) else None
        if sigma == PowerIteration().sigma:
            return row
        whose = "the median distance to the 5th neighbour" if sigma == "auto" else f"{sigma:g}"
        return row.noted(f"sigma is {whose} (paper: {PowerIteration().sigma:g})")

    def noted(self, note: str) -> Row:
        """The row with one more thing said of it."""
        return replace(self, note=f"{self.note}; {note}" if self.note else note)


@dataclass(frozen=True)
class Measured:
    """What one row reached with one seed."""

    row: str
    seed: int
    judged: Mapping[str, dict[str, Any]]
    """By the name of the data set the result of the probe, or by that of the task its figures."""
    training: dict[str, Any] | None = None
    """Of a trained row: settings, journal and closing pass."""

    def top1(self, data: str, ten_crops: bool = False) -> dict[str, float]:
        """Accuracy in percent, by layer."""
        key = "ten_crops_top1" if ten_crops else "top1"
        layers = self.judged[data]["result"]["layers"]
        return {layer["layer"]: 100 * layer[key] for layer in layers if layer[key] is not None}

    def best_layer(self, data: str) -> float:
        """Accuracy in percent at the layer that is best on held-out training images."""
        layers = self.judged[data]["result"]["layers"]
        best: float = max(layers, key=lambda layer: layer["held_out_top1"])["top1"]
        return 100 * best

    @property
    def journal(self) -> list[dict[str, Any]]:
        """One entry for every epoch of training."""
        return [] if self.training is None else self.training["journal"]

    def agreement(self, figure: str) -> list[tuple[int, float]]:
        """After how many epochs of training the groups had which NMI: nmi_labels, or nmi_last."""
        if self.training is None:
            return []
        entries = [*self.journal, {**self.training["closing"], "epoch": len(self.journal)}]
        return [(one["epoch"], one[figure]) for one in entries if one.get(figure) is not None]

    @property
    def nmi_labels(self) -> float | None:
        """Of the final network's groups with the classes."""
        return None if self.training is None else self.training["closing"].get("nmi_labels")


@dataclass(frozen=True)
class Figured:
    """A figure over seeds."""

    mean: float
    spread: float | None
    """Standard deviation over the seeds, where there are several."""
    seeds: int

    @staticmethod
    def of(values: Sequence[float]) -> Figured:
        """Mean and spread of some values."""
        spread = statistics.stdev(values) if len(values) > 1 else None
        return Figured(statistics.fmean(values), spread, len(values))


@dataclass(frozen=True)
class Results:
    """What the rows of a study reached, those that were run."""

    rows: tuple[Row, ...]
    """Each with the settings that it was trained with."""
    measured: tuple[Measured, ...]

    @property
    def names(self) -> list[str]:
        """The rows that were run, in their order."""
        return [row.name for row in self.rows]

    @property
    def judged_by(self) -> list[str]:
        """The data sets or tasks that every row was judged by."""
        return list(self.measured[0].judged) if self.measured else []

    def row(self, name: str) -> Row | None:
        """The row of this name, if it was run."""
        return next((row for row in self.rows if row.name == name), None)

    def note(self, row: str, data: str | None = None) -> str:
        """What is to be said of a row, on one data set or on all."""
        if (found := self.row(row)) is None:
            return ""
        of_data = (said for name, said in found.notes_on.items() if data in (None, name))
        return "; ".join(said for said in (found.note, *of_data) if said)

    def chance(self, data: str) -> float:
        """Points that two equally good networks may be apart, by so many test images.

        One standard error of the difference of two accuracies, at 50%, where it is largest.
        """
        return 100 / math.sqrt(2 * self.measured[0].judged[data]["result"]["tested_on"])

    def of(self, row: str) -> list[Measured]:
        """All seeds of one row; none where it was not run."""
        return [entry for entry in self.measured if entry.row == row]

    def top1(self, row: str, data: str, ten_crops: bool = False) -> dict[str, Figured]:
        """By layer, over seeds, in percent; empty where the row was not run."""
        by_seed = [entry.top1(data, ten_crops) for entry in self.of(row)]
        return {
            layer: Figured.of([one[layer] for one in by_seed])
            for layer in (by_seed[0] if by_seed else {})
        }

    def transferred(
        self, row: str, tasks: Sequence[str], figure: str | None = None
    ) -> list[Figured | None]:
        """What the row reaches in tasks of transfer, in percent: their first figure, or another."""
        found: list[Figured | None] = []
        for task in tasks:
            figures = [entry.judged[task]["figures"] for entry in self.of(row)]
            shares = [100 * one[figure or next(iter(one))] for one in figures]
            found.append(Figured.of(shares) if shares else None)
        return found

    def line(
        self, row: str, data: str, paper: Figures | str = "-", *, ten_crops: bool = False
    ) -> Line:
        """The row's accuracies, layer by layer, beside the paper's."""
        ours = list(self.top1(row, data, ten_crops).values())
        return Line(row, paper, ours, self.note(row, data))

    def best_layer(self, row: str, data: str) -> Figured | None:
        """Accuracy at the layer that is best on held-out images for each seed, over seeds."""
        bests = [entry.best_layer(data) for entry in self.of(row)]
        return Figured.of(bests) if bests else None


@dataclass(frozen=True)
class Line:
    """One line of a table: paper, ours, note."""

    name: str
    paper: Figures | str
    ours: Sequence[Figured | float | None]
    note: str = ""


@dataclass(frozen=True)
class Section:
    """A table, and what the figures in its cells are, in their order."""

    title: str
    columns: Sequence[str]
    lines: Sequence[Line]
    digits: int = 1


@dataclass(frozen=True)
class Study:
    """Rows to be run, and what is made of them."""

    name: str
    rows: Callable[[Terms], list[Row]]
    sections: Callable[[Results, Terms], list[Section]]
    figure: Callable[[Figure, Results, Terms], None]
    source: str
    """Where in the paper its own figures are."""
    judge: Judge = "linear"
    ten_crops: bool = False
    """Whether the paper's figures are those of ten crops, so that ours must be."""
    takes_voc: bool = False
    """Whether a probe's figures may have mAP on VOC 2007's val beside them."""
    is_deep: bool = False
    """Whether it trains and probes VGG-16, so that its smallest size has few images."""
    needs_second: bool = False
    """Whether it cannot do without a second data set."""
    prepare: Callable[[Terms], None] = field(default=lambda terms: None)
    """Writes the lists of images that its rows are trained on."""
    refuse: Callable[[Terms], None] = field(default=lambda terms: None)
    """Raises where it cannot be carried out on these terms."""


def differing(run: Run, recipe: Run) -> dict[str, Any]:
    """The settings in which a row differs from the recipe, seed apart."""
    ours, theirs = flat(run), flat(recipe)
    return {key: value for key, value in ours.items() if key != "seed" and theirs.get(key) != value}
