"""k-means as the paper uses it: Lloyd's iterations, and no cluster empty at the end."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Literal, get_args, get_type_hints

import torch
import torch.nn.functional as F
from torch import Tensor

from deepcluster.clusters.clusters import ALONE, Clusters
from deepcluster.clusters.estimator import CentroidEstimator
from deepcluster.clusters.gate import checked, matrix
from deepcluster.clusters.neighbours import nearest
from deepcluster.clusters.rows import Rows
from deepcluster.clusters.search import ExactSearch, Search
from deepcluster.clusters.start import as_given, drawn_evenly, drawn_far_apart, rows_at
from deepcluster.clusters.totals import Totals
from deepcluster.runtime import faults, interruption
from deepcluster.runtime.errors import ClustersShrunk, NumericsError, PlainSearch, UsageError
from deepcluster.runtime.world import World

# How far, beside the spread of its rows, a centroid and its new twin are moved apart. They move in
# opposite directions, so the border between them runs through the middle of the rows.
_PERTURBATION = 0.01
_ROUNDED = 2.0**-46  # of the largest number: a deviation that is rounding, in float64
_NO_DIRECTION = 1e-6  # length of a mean of unit rows that is rounding, not direction


@dataclass(repr=False)
class KMeans(CentroidEstimator):
    """Groups of the rows nearest to each of k centroids, which are the means of their groups.

    Called with rows it is a pure function; `fit`, `predict` and `transform` are scikit-learn's.
    """

    k: int = 10_000
    """How many clusters; the paper's best for ImageNet is ten times the number of classes."""
    iterations: int = 20
    """How often, at most, the centroids move to the means of their rows."""
    precision: Literal["float32", "tf32", "bfloat16"] = "float32"
    """How the centroids are found on a GPU: float32 is exact; bfloat16, many times as fast, finds \
    for rows of unit length, of 64 columns or more, not much nearer than 0.3 to a centroid, one \
    that is nearest to within a thousandth, as does tf32."""
    metric: Literal["euclidean", "spherical"] = "euclidean"
    """Which rows are alike: near ones, or, of whatever length, those in the same direction."""
    start: Literal["random", "k-means++"] = "random"
    """The first centroids: distinct rows at random, or drawn far apart, from a sample."""
    redo: int = 1
    """From how many starts; the result with the lowest objective is kept."""
    tolerance: float = 0.0
    """Stop when an iteration lowers the objective by a smaller share than this."""
    rows_per_centroid: int | None = None
    """Let only so many rows for each centroid, a random sample, move it; all get labels."""

    def __call__(
        self,
        rows: Any,
        world: World = ALONE,
        generator: torch.Generator | None = None,
        *,
        centroids: Tensor | None = None,
    ) -> Clusters:
        """The groups of the rows of all processes; every label is that of the nearest centroid.

        Args:
            rows: (n_local, d), this process's rows: a tensor, an array, or a mapped file. Where the
                world's device is a GPU and the rows are not there, they pass through it in blocks.
            world: The processes.
            generator: In the same state in every process; without one, always the same stream.
            centroids: (k, d) to start from, once.
        """
        self._check()
        generator = generator or torch.Generator().manual_seed(0)
        read, distinct = checked(rows, world, unit=self.metric == "spherical")
        total = sum(world.counts(len(read)))
        k = min(self.k, len(distinct))
        if k < self.k:
            warnings.warn(
                ClustersShrunk(
                    f"the {total} rows hold {k} distinct values, so there are {k} clusters "
                    f"instead of {self.k}; set k to {k} or less, or give more images"
                ),
                stacklevel=2,
            )
        given = None if centroids is None else as_given(centroids, self.k, read)[:k]
        moving = _sample(read, k, self.rows_per_centroid, world, generator)
        search = _search(moving, self.precision, world)
        results = []
        for _ in range(self.redo if given is None else 1):
            draw = drawn_evenly if self.start == "random" else drawn_far_apart
            first = draw(read, distinct, k, world, generator) if given is None else given
            results.append(self._improved(self._settled(first, first), search, generator))
        best = results[0]
        if len(results) > 1:
            best = min(results, key=lambda found: float(search.totals(found[0]).spread.sum()))
        if moving is not read:
            search = _search(read, self.precision, world)
        return _finished(read, *best, search, world)

    def _improved(
        self, centroids: Tensor, search: Search, generator: torch.Generator
    ) -> tuple[Tensor, list[float], int]:
        """The centroids after the iterations, the objective before each, and how many repairs."""
        objective: list[float] = []
        repaired = 0
        for _ in range(self.iterations):
            faults.point("kmeans.iteration")
            interruption.raise_if_asked()
            totals = search.totals(centroids)
            objective.append(float(totals.spread.sum()) / int(totals.sizes.sum()))
            # In float32 from here on: what is returned is what was measured, and sums taken in
            # another order, by other processes, round to the same centroid.
            before = centroids
            means = torch.where(totals.sizes[:, None] > 0, totals.means, before)
            centroids = self._settled(means, before).float()
            here = _split_into_empty(centroids, totals, generator)
            if here:
                centroids = self._settled(centroids, before)
            repaired += here
            if not here and torch.equal(centroids, before):
                break  # so would all iterations to come
            little = self.tolerance * objective[-1]
            if len(objective) > 1 and not here and objective[-2] - objective[-1] < little:
                break
        return centroids, objective, repaired

    def _settled(self, centroids: Tensor, before: Tensor) -> Tensor:
        """The centroids as the metric has them: of directions, themselves directions.

        Directions that cancel each other have no mean direction: the one before stays.
        """
        if self.metric == "euclidean":
            return centroids
        length = centroids.norm(dim=1, keepdim=True)
        return torch.where(length > _NO_DIRECTION, F.normalize(centroids, dim=1), before)

    def _check(self) -> None:
        for name, value, least in (
            ("k", self.k, 1),
            ("iterations", self.iterations, 0),
            ("redo", self.redo, 1),
            ("tolerance", self.tolerance, 0),
            ("rows_per_centroid", self.rows_per_centroid, 1),
        ):
            if name == "rows_per_centroid" and value is None:
                continue
            kind, called = (Real, "number") if name == "tolerance" else (Integral, "whole number")
            if not isinstance(value, kind):
                raise UsageError(f"{name} = {value!r}: a {called} is needed")
            if not value >= least:
                raise UsageError(f"{name} = {value}: at least {least} is needed")
        for name in ("precision", "metric", "start"):
            known = get_args(get_type_hints(type(self))[name])
            if getattr(self, name) not in known:
                raise UsageError(f"{name} = {getattr(self, name)!r}: use {' or '.join(known)}")


def _finished(
    rows: Rows,
    centroids: Tensor,
    objective: list[float],
    repaired: int,
    search: Search,
    world: World,
) -> Clusters:
    """Labels for all rows, and no cluster empty.

    A split need not give its twin any rows, so the last assignment may leave clusters empty. Each
    is then moved onto the row that is farthest from its centroid. That row was at no centroid, so
    it is now at this one alone, which therefore never is empty again: after at most k rounds none
    is. There always is such a row, since fewer than k centroids cannot lie on k distinct rows.
    """
    k, total = len(centroids), sum(world.counts(len(rows)))
    path = search.path
    while True:
        found = search.two_nearest(centroids)
        labels = found.index[:, 0]
        sizes = world.sum(torch.bincount(labels, minlength=k)).cpu()
        empty = (sizes == 0).nonzero()[:, 0]
        if not len(empty):
            break
        far = _farthest_of_each(labels, found.distance[:, 0], k, world)[: len(empty)]
        if not len(far) and not isinstance(search, ExactSearch):
            search = ExactSearch(rows, world)
            continue
        if not len(far):
            raise NumericsError("the rows cannot be told apart well enough for so many clusters")
        centroids[empty[: len(far)].to(centroids.device)] = rows_at(rows, far, world)
        repaired += len(far)
        search = ExactSearch(rows, world)  # to which a row at a centroid is there, and nowhere else

    own = found.distance[:, 0].sqrt()
    other = found.distance[:, 1].sqrt() if k > 1 else torch.full_like(own, torch.inf)
    final = float(world.sum(found.distance[:, 0].sum())) / total
    return Clusters(
        labels=world.gather(labels.cpu()),
        count=k,
        sizes=sizes,
        objective=[*objective, final],
        repaired=repaired,
        centroids=rows.placed(centroids).cpu(),
        distances=world.gather(own.float().cpu()),
        margins=world.gather((other - own).float().cpu()),
        search=path,
    )


def assign(rows: Tensor, centroids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The label, distance and margin of each row: (n,) int64, float32, float32, on their device.

    The margin is how much farther the second-best centroid is; inf if there is only one.
    """
    rows = matrix(rows)
    centroids = matrix(centroids).to(rows.device)
    if not len(centroids) or not centroids.isfinite().all():
        raise NumericsError(
            "there is no centroid to assign rows to, or one holds numbers that are not finite"
        )
    found = nearest(rows, centroids, min(2, len(centroids)))
    distance = found.distance.sqrt()
    own = distance[:, 0]
    other = distance[:, 1] if len(centroids) > 1 else torch.full_like(own, torch.inf)
    return found.index[:, 0], own.float(), (other - own).float()


def _search(rows: Rows, precision: Literal["float32", "tf32", "bfloat16"], world: World) -> Search:
    """By kernels on a GPU, if they can be had; what stands in for them gives exact answers."""
    if rows.device.type != "cuda":
        return ExactSearch(rows, world)
    found: Search | None = None
    why = "not in another process"
    try:
        from deepcluster.clusters.fast.search_by_kernel import SearchByKernel

        found = SearchByKernel(rows, world, precision)
    except (ImportError, ValueError) as error:
        why = str(error)
    # All or none: a process without rows, say, does not notice that there is no compiler.
    if not world.any(found is None) and found is not None:
        return found
    warnings.warn(
        PlainSearch(f"no kernel for the nearest centroid ({why}); searching in float32"),
        stacklevel=3,
    )
    return ExactSearch(rows, world)


def _sample(rows: Rows, k: int, each: int | None, world: World, generator: torch.Generator) -> Rows:
    """This process's share of a random sample of all rows, or the rows where they are fewer."""
    total = sum(world.counts(len(rows)))
    if each is None or each * k >= total:
        return rows
    chosen = torch.randperm(total, generator=generator)[: each * k].sort().values
    here = chosen - world.offset(len(rows))
    return Rows(rows.at(here[(here >= 0) & (here < len(rows))]), rows.device)


def _split_into_empty(centroids: Tensor, totals: Totals, generator: torch.Generator) -> int:
    """Give each empty cluster half of a random other one, in place: how many were given one.

    The paper: "randomly select a non-empty cluster and use its centroid with a small random
    perturbation as the new centroid for the empty cluster". A cluster is selected in proportion to
    the rows it can give away; one whose rows are all equal has none to give.
    """
    sizes = totals.sizes.cpu()
    empty = (sizes == 0).nonzero()[:, 0]
    if not len(empty):
        return 0
    rounding = (_ROUNDED * totals.means.abs().amax()).square() * totals.sizes
    weights = (sizes - 1).clamp(min=0).double() * (totals.within > rounding).cpu()
    # All at once, each donor once: k may be a million. Who finds no donor waits for the next turn.
    count = min(len(empty), int((weights > 0).sum()))
    if not count:
        return 0
    donors = torch.multinomial(weights, count, generator=generator)
    noise = torch.randn(count, centroids.shape[1], generator=generator, dtype=torch.float64)
    device = centroids.device
    donors, empty = donors.to(device), empty[:count].to(device)
    variance = totals.spread[donors] / totals.sizes[donors] / centroids.shape[1]
    step = _PERTURBATION * variance.sqrt()[:, None] * noise.to(device)
    # Far from zero so small a step would vanish: as long a one, then, as the last digit shows.
    size = centroids[donors].abs()
    digit = torch.nextafter(size, torch.full_like(size, torch.inf)).double() - size
    shown = (step.abs() / digit).amax(dim=1, keepdim=True)
    step = (step * (2 / shown).clamp(min=1)).to(centroids)
    centroids[empty] = centroids[donors] - step
    centroids[donors] += step
    return count


def _farthest_of_each(labels: Tensor, distance: Tensor, k: int, world: World) -> Tensor:
    """The global number of each cluster's farthest row, farthest first; rows at a centroid are not.

    Rows of different clusters differ in value, so no two of these are equal.
    """
    farthest = distance.new_zeros(k).scatter_reduce_(0, labels, distance, "amax")
    farthest = world.gather(farthest[None].cpu()).amax(dim=0)
    labels, distance = labels.cpu(), distance.cpu()
    number = torch.arange(len(labels)) + world.offset(len(labels))
    reaches = (distance == farthest[labels]) & (distance > 0)
    first = torch.full((k,), torch.iinfo(torch.int64).max)
    first.scatter_reduce_(0, labels[reaches], number[reaches], "amin")
    first = world.gather(first[None]).amin(dim=0)
    order = farthest.argsort(descending=True, stable=True)
    return first[order[farthest[order] > 0]]
