"""What the nearest training images vote for: no classifier is learnt at all."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from deepcluster.clusters import nearest
from deepcluster.evaluation.accuracy import Counted
from deepcluster.evaluation.bench import Bench
from deepcluster.evaluation.evaluated import Evaluated
from deepcluster.evaluation.labelled_images import LabelledImages, refuse_different_classes
from deepcluster.evaluation.limits import refuse_beyond
from deepcluster.evaluation.linear_probe import chosen_layers
from deepcluster.evaluation.rows import read_layer, unit_rows, whitening_of
from deepcluster.features import PCA
from deepcluster.runtime.errors import UsageError

_QUERIES = 1024  # votes counted at once
_DIMENSIONS = 256  # as in the paper


@dataclass(frozen=True)
class KNearest:
    """The vote of the nearest training images, by cosine."""

    neighbours: tuple[int, ...] = (20, 200)
    """How many vote, one result for each."""

    features: Literal["whitened", "raw"] = "whitened"
    """whitened: by the run's own PCA, else by one of the training images. raw: as they are."""

    layer: str | None = None
    """A layer by name, its maps pooled; if not given, what the run, or --like's, clusters."""

    temperature: float = 0.07
    """A neighbour of cosine c has weight exp(c / temperature)."""

    dimensions: int | None = None
    """Of a whitening that is not the run's own: as many as the run, or --like's, has; else 256."""

    def validate(self) -> None:
        """Refuse what cannot be carried out."""
        voting = bool(self.neighbours) and min(self.neighbours) >= 1
        warm = 0 < self.temperature < math.inf
        refuse_beyond(
            ("--neighbours", self.neighbours, voting, "numbers from 1 on"),
            ("--temperature", f"{self.temperature:g}", warm, "a number above 0"),
            (
                "--dimensions",
                self.dimensions,
                self.dimensions is None or self.dimensions >= 1,
                "at least 1",
            ),
        )

    def __call__(
        self, subject: Evaluated, train: LabelledImages, test: LabelledImages, bench: Bench
    ) -> KNearestResult:
        """The accuracy for each number of neighbours that there are images for."""
        self.validate()
        neighbours = self._possible(len(train), bench)
        refuse_different_classes(train, test)
        begun = time.monotonic()
        world, network = bench.world, subject.network
        read: Callable[[Tensor], Tensor] = subject.seen
        if self.layer is not None:
            chosen_layers(network, (self.layer,))
            read = read_layer(network, self.layer)
        pca = None
        whose = "none"
        if self.features == "whitened":
            pca, whose = subject.pca, "the run's"
            if pca is None or self.layer is not None or not _whitens(pca):
                dimensions = self.dimensions or subject.dimensions or _DIMENSIONS
                pca = whitening_of(network, read, train.images, dimensions, bench)
                whose = "of the training images"
        rows = unit_rows(network, read, train.images, pca, bench, "looking at training images")
        rows = world.gather(rows)
        queries = unit_rows(network, read, test.images, pca, bench, "looking at test images")
        classes = torch.from_numpy(train.classes).to(world.device)
        share = world.share(len(test))
        truth = torch.from_numpy(test.classes[share.start : share.stop]).to(world.device)
        counted = {k: Counted(1, 1, world.device) for k in neighbours}
        for start in range(0, len(queries), _QUERIES):
            part = slice(start, start + _QUERIES)
            found = nearest(queries[part], rows, max(neighbours))
            for k, counts in counted.items():
                votes = self._votes(found.distance[:, :k], classes[found.index[:, :k]], train)
                counts.add(votes[None, :, None], truth[part])
        accuracies = {k: counts.over(world) for k, counts in counted.items()}
        return KNearestResult(
            [
                Vote(k, accuracy.top1[0][0], accuracy.top5[0][0])
                for k, accuracy in accuracies.items()
            ],
            width=rows.shape[1],
            whitening=whose,
            rows=len(rows),
            tested_on=len(test),
            seconds=round(time.monotonic() - begun, 3),
        )

    def _votes(self, squared: Tensor, classes: Tensor, train: LabelledImages) -> Tensor:
        """B x classes: the weights of the neighbours of each class, -inf for one without any."""
        cosine = 1 - squared / 2  # of unit rows
        # One factor for all neighbours of a query changes no order, and keeps exp in its range.
        weights = ((cosine - cosine[:, :1]) / self.temperature).exp()
        votes = torch.zeros(
            len(squared), len(train.names), dtype=weights.dtype, device=squared.device
        )
        return votes.scatter_add_(1, classes, weights).where(votes > 0, -torch.inf)

    def _possible(self, images: int, bench: Bench) -> list[int]:
        possible = [k for k in self.neighbours if k <= images]
        if not possible:
            raise UsageError(
                f"--neighbours {min(self.neighbours)}: there are only {images:,} training images"
            )
        for k in {*self.neighbours} - {*possible}:
            bench.display.say(f"not asked of {k} neighbours: there are {images:,} training images")
        return possible


def _whitens(pca: PCA) -> bool:
    """Whether the map changes rows; that of a run with --whitening.kind none does not."""
    width, kept = pca.projection.shape
    return width != kept or not torch.allclose(
        pca.projection, torch.eye(width, device=pca.projection.device)
    )


@dataclass(frozen=True)
class Vote:
    """What a number of neighbours reaches; shares of images, from 0 to 1."""

    neighbours: int
    top1: float
    top5: float


@dataclass(frozen=True)
class KNearestResult:
    """The accuracy for each number of neighbours."""

    votes: list[Vote]
    width: int
    whitening: str
    rows: int
    tested_on: int
    seconds: float
