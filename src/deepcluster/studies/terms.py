"""The terms of a study: what every row of it has in common."""

from __future__ import annotations

import csv
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeVar

from deepcluster.clusters import KMeans, PowerIteration
from deepcluster.evaluation.linear_probe import LinearProbe
from deepcluster.evaluation.mlp import MLPProbe
from deepcluster.presets import (
    PRESETS,
    automatic,
    for_labels,
    paper_alexnet,
    with_arch,
    with_sobel,
)
from deepcluster.runtime.errors import UsageError
from deepcluster.settings import Run, suggested_k
from deepcluster.studies.tasks import Task

Number = TypeVar("Number", int, float)


@dataclass(frozen=True)
class Data:
    """Labelled images: one part to learn from, one to test on."""

    name: str
    train: Path
    test: Path


@dataclass(frozen=True)
class Grid:
    """What the supervised baseline is tuned over; a single choice needs no trial."""

    steps: tuple[float, ...] = (0.02, 0.05, 0.1)
    decays: tuple[float, ...] = (1e-3, 2e-3, 5e-3)
    epochs: tuple[int, ...] = (60, 120)

    @property
    def middle(self) -> Grid:
        """The middle of everything alone."""
        one = (middle_of(self.steps),), (middle_of(self.decays),), (middle_of(self.epochs),)
        return Grid(*one)


def middle_of(values: Collection[Number]) -> Number:
    """Neither the smallest nor the largest, of two in the middle the smaller."""
    return sorted(values)[(len(values) - 1) // 2]


@dataclass(frozen=True)
class Terms:
    """Images, recipe, judge and seeds."""

    data: tuple[Data, ...]
    """Networks are trained on the first and judged on all."""
    images: int
    """How many the first has to train on, at most."""
    recipe: Run
    """The main row; the others differ from it in what is studied."""
    lists: Path
    """Where lists of parts of the images are written."""
    seeds: tuple[int, ...] = (0,)
    probe: LinearProbe = field(default_factory=LinearProbe)
    mlp: MLPProbe = field(default_factory=MLPProbe)
    grid: Grid = field(default_factory=Grid)
    tasks: tuple[Task, ...] = ()
    """What networks are transferred to: of studies that judge by it, the columns of the tables."""
    both_fronts: bool = True
    """Whether table 1 has a random and a supervised network with the other front, too."""

    @property
    def k(self) -> int:
        """The number of clusters of the recipe, or what suits as many images."""
        clustering = self.recipe.clustering
        return clustering.k if isinstance(clustering, KMeans) else suggested_k(self.images)

    @property
    def uncurated(self) -> Path:
        """The list of unbalanced classes mixed with scenes."""
        return self.lists / "uncurated.csv"

    @property
    def curated(self) -> Path:
        """The list of equally many images of balanced classes."""
        return self.lists / "curated.csv"

    def with_k(self, k: int) -> Run:
        """The recipe with another number of clusters."""
        clustering = self.recipe.clustering
        kmeans = clustering if isinstance(clustering, KMeans) else KMeans()
        return replace(self.recipe, clustering=replace(kmeans, k=k))

    def on_fewer(self, images: Path, run: Run | None = None) -> Run:
        """The recipe for the images of a list, once it is written: each is seen more often.

        Clusterings, and the images seen between two of them, are as many as on all images.

        Args:
            images: The list.
            run: In the place of the recipe.
        """
        run = run or self.recipe
        if not images.exists():
            return run
        with images.open(encoding="utf-8", errors="surrogateescape", newline="") as lines:
            count = sum(1 for _ in csv.reader(lines)) - 1
        more = replace(run.draw, reassign=run.draw.reassign * self.images / count)
        return replace(run, draw=more)

    def with_front(self, front: Literal["sobel", "rgb"]) -> Run:
        """The recipe with another front."""
        return replace(self.recipe, network=replace(self.recipe.network, front=front))

    def with_arch(self, arch: str) -> Terms:
        """The same terms with another network."""
        return replace(self, recipe=with_arch(self.recipe, arch))

    def with_power_iteration(self) -> Run:
        """The recipe with the paper's other clustering: its own, else with sigma by distances."""
        own = self.recipe.clustering
        clustering = own if isinstance(own, PowerIteration) else PowerIteration(sigma="auto")
        return replace(self.recipe, clustering=clustering, clustering_start="random")

    def paper_values(self) -> Run:
        """The paper's run; its length, arithmetic, input size and k are the recipe's.

        Where minutes are given they are its length, whatever number of epochs the recipe needs.
        A width below the paper's is the recipe's too: it says that the machine is small.
        """
        paper, own = paper_alexnet(), self.recipe
        size, width = own.network.input_size, min(own.network.width, paper.network.width)
        return replace(
            paper,
            epochs=own.epochs if own.minutes is None else paper.epochs,
            minutes=own.minutes,
            precision=own.precision,
            speed=own.speed,
            network=replace(paper.network, input_size=size, width=width),
            clustering=KMeans(k=self.k, precision=_precision(own)),
        )

    def supervised(self, front: Literal["sobel", "rgb"] | None = None) -> tuple[Run, ...]:
        """The candidates of the supervised baseline: the recipe's network, on the classes."""
        own = for_labels(self.recipe)
        network = own.network if front is None else replace(own.network, front=front)
        return tuple(
            replace(
                own,
                epochs=epochs,
                clustering=KMeans(k=self.k, precision=_precision(own)),
                network=network,
                training=replace(own.training, step=step, weight_decay=decay),
            )
            for epochs in self.grid.epochs
            for decay in self.grid.decays
            for step in self.grid.steps
        )


def _precision(run: Run) -> Literal["float32", "tf32", "bfloat16"]:
    """The arithmetic of the recipe's k-means."""
    return run.clustering.precision if isinstance(run.clustering, KMeans) else "float32"


def recipe_for(preset: str | None, images: int, gpu: bool, *, timed: bool) -> Run:
    """The recipe of this name; without one, what so many images and the device ask for.

    It begins with Sobel, as the paper's rows do, those on colours being named so; but for
    paper-rgb.
    """
    named = PRESETS[_spelled(preset)]() if preset is not None else None
    return with_sobel(named or automatic(images, gpu, timed)[0])


def refuse_preset(name: str | None) -> None:
    """Raise where no recipe has this name."""
    if name is not None and _spelled(name) not in PRESETS:
        raise UsageError(f"no such preset {name!r}; there are {', '.join(PRESETS)}")


def _spelled(name: str) -> str:
    return name.replace("_", "-")


def changed(
    recipe: Run,
    *,
    k: int | None,
    input_size: int | None,
    epochs: int | None,
    minutes: float | None,
    workers: int | None,
    follow_links: bool,
) -> Run:
    """The recipe with what the flags say."""
    network, clustering = recipe.network, recipe.clustering
    if input_size is not None:
        network = replace(network, input_size=input_size)
    if k is not None:
        if not isinstance(clustering, KMeans):
            raise UsageError("--k: power iteration finds the number of groups itself")
        clustering = replace(clustering, k=k)
    return replace(
        recipe,
        epochs=epochs or recipe.epochs,
        minutes=recipe.minutes if minutes is None else minutes,
        network=network,
        clustering=clustering,
        pixels=replace(recipe.pixels, follow_links=follow_links),
        # One save is enough where the same command goes on.
        speed=replace(recipe.speed, workers=workers, checkpoints=1),
    )
