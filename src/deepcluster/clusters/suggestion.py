"""How many groups to ask for: the k whose groups come back when other rows are clustered."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from statistics import mean, stdev

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deepcluster.clusters.agreement import Contingency
from deepcluster.clusters.clusters import ALONE
from deepcluster.clusters.gate import checked, matrix, refuse_nonfinite
from deepcluster.clusters.kmeans import KMeans, assign
from deepcluster.runtime.errors import UsageError

_ROWS_PER_CLUSTER = 20  # below this a centroid is more noise than mean
_CLUSTERS_PER_CLASS = 10  # best in the paper: 10,000 for the 1,000 classes of ImageNet (figure 2c)
_GRID_STEP = 2**0.5
_ITERATIONS = 10  # of k-means, which starts from k-means++
_LEAST_GAIN = 0.1  # in stability, over chance, to call groups stable


@dataclass(frozen=True)
class Stability:
    """How well two clusterings into k groups, of two halves of the rows, agree on all of them."""

    k: int
    """How many groups."""
    stability: float
    """Mean adjusted Rand index of the two, over several draws of the halves."""
    spread: float
    """Its standard deviation over the draws."""
    chance: float
    """The mean for normally distributed rows with this mean and covariance, so without groups."""
    stable: bool
    """Whether every draw agrees better than every one of rows without groups, and clearly so."""

    @property
    def gain(self) -> float:
        """What the groups in the features add to the stability that their shape alone gives."""
        return self.stability - self.chance


@dataclass(frozen=True)
class Suggestion:
    """A number of groups, and why."""

    k: int
    """The number suggested."""
    why: str
    """The reason in words, for a person."""
    stable: bool
    """Whether any k gives groups that are more stable than chance."""
    curve: list[Stability]
    """What was measured, by ascending k; empty where there are too few rows to measure."""


def suggest_k(
    features: Tensor | NDArray[np.floating],
    *,
    classes: int | None = None,
    sample: int = 10_000,
    draws: int = 5,
    generator: torch.Generator | None = None,
) -> Suggestion:
    """A number of groups that suits the features, the curve of stability, and in words why.

    Without `classes` it is the largest k whose stability over chance is within one spread of the
    best: the paper finds too many groups better than too few.

    Args:
        features: (n, d), finite.
        classes: How many classes one expects, if one does: then it is about ten times that.
        sample: How many rows to look at, drawn at random. Of equal rows one is looked at.
        draws: How often the sample is halved for each k, at least 2.
        generator: The only source of randomness; without one, always the same stream.
    """
    if classes is not None and classes < 1:
        raise UsageError(f"classes = {classes}: expect at least 1, or leave it out")
    if draws < 2:
        raise UsageError(f"draws = {draws}: at least 2 are needed to tell a spread")
    if classes is not None and not isinstance(classes, Integral):
        raise UsageError(f"classes = {classes!r}: a whole number is needed")
    features = matrix(features)
    generator = generator or torch.Generator().manual_seed(0)
    total = len(features)
    chosen = torch.randperm(total, generator=generator)[:sample]
    looked_at = features[chosen.to(features.device)].cpu()
    refuse_nonfinite(chosen[~looked_at.isfinite().all(dim=1)].sort().values, total, total, ALONE)
    read, distinct = checked(looked_at, ALONE)
    rows = read.at(distinct)
    curve = _curve(rows, draws, generator)
    stable = [point for point in curve if point.stable]
    k, reasons = _from_stability(stable or curve, len(rows))
    if classes is not None:
        wanted = _CLUSTERS_PER_CLASS * classes
        k = max(2, min(wanted, total // _ROWS_PER_CLUSTER))
        if k != wanted:
            reasons.insert(0, f"a group should hold {_ROWS_PER_CLUSTER} or more of {total:,} rows")
        reasons.insert(0, f"the paper's rule of thumb is ten times the {classes} classes expected")
    elif curve and not stable:
        k = curve[-1].k
        reasons.append(f"{k} is the largest tried, too many groups being better than too few")
    if curve and k >= curve[-1].k and sample < total:
        reasons.append("a larger sample can tell of larger k")
    if classes is None:
        reasons.append("if you know how many classes to expect, say so")
    return Suggestion(k, f"k = {k}: {'; '.join(reasons)}.", bool(stable), curve)


def _from_stability(curve: list[Stability], rows: int) -> tuple[int, list[str]]:
    """The largest k within one spread of the best, and what speaks for it, in words."""
    if not curve:
        return 2, [f"{rows} different rows are too few to measure what is stable"]
    best = max(curve, key=lambda point: point.gain)
    k = max(point.k for point in curve if point.gain >= best.gain - best.spread)
    reasons = [
        f"clusterings of two halves of {rows:,} rows agree best beyond chance at k = {best.k} "
        f"(adjusted Rand index {best.stability:.2f}; {best.chance:.2f} where there are no groups)"
    ]
    if not best.stable:
        reasons.insert(0, "nothing is stable beyond chance")
    elif k != best.k:
        reasons.append(f"k = {k} is the largest within one spread ({best.spread:.2f}) of that")
    return k, reasons


def _curve(rows: Tensor, draws: int, generator: torch.Generator) -> list[Stability]:
    """The stability of each k of a logarithmic grid."""
    most = len(rows) // _ROWS_PER_CLUSTER
    grid = sorted({round(2 * _GRID_STEP**step) for step in range(64)})
    curve = []
    for k in (k for k in grid if k <= most):
        real = [_agreement(rows, k, generator) for _ in range(draws)]
        blank = [_agreement(_without_groups(rows, generator), k, generator) for _ in range(draws)]
        clear = min(real) > max(blank) and mean(real) - mean(blank) > _LEAST_GAIN
        curve.append(Stability(k, mean(real), stdev(real), mean(blank), clear))
    return curve


def _agreement(rows: Tensor, k: int, generator: torch.Generator) -> float:
    """The adjusted Rand index, on all rows, of the clusterings of two random halves."""
    labels = []
    for half in torch.randperm(len(rows), generator=generator).chunk(2):
        # From k-means++, so that what differs is due to the rows and not to unlucky starts.
        clustering = KMeans(k=k, iterations=_ITERATIONS, start="k-means++")
        found = clustering(rows[half], generator=generator)
        labels.append(assign(rows, found.centroids)[0])
    return Contingency.of(*labels).adjusted_rand_index()


def _without_groups(rows: Tensor, generator: torch.Generator) -> Tensor:
    """As many normally distributed rows with the same mean and covariance."""
    middle = rows.double().mean(dim=0)
    noise = torch.randn(rows.shape, generator=generator, dtype=torch.float64)
    # R of the QR decomposition is a root of the covariance, also where that is singular.
    root = torch.linalg.qr((rows.double() - middle) / len(rows) ** 0.5, mode="r").R
    return (middle + noise[:, : len(root)] @ root).float()
