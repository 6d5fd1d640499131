"""k-means as the paper uses it: Lloyd's iterations, and no cluster empty at the end."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from deepcluster.clusters.clusters import ALONE, Clusters
from deepcluster.clusters.estimator import CentroidEstimator
from deepcluster.clusters.gate import checked
from deepcluster.clusters.neighbours import nearest
from deepcluster.clusters.totals import Totals
from deepcluster.runtime import faults, interruption
from deepcluster.runtime.errors import ClustersShrunk, NumericsError, PlainSearch, UsageError
from deepcluster.runtime.world import World

# How far, beside the spread of its rows, a centroid and its new twin are moved apart. They move in
# opposite directions, so the border between them runs through the middle of the rows.
_PERTURBATION = 0.01


@dataclass(repr=False)
class KMeans(CentroidEstimator):
    """Groups of the rows nearest to each of k centroids, which are the means of their groups.

    Called with rows it is a pure function; `fit`, `predict` and `transform` are scikit-learn's.
    """

    k: int = 10_000
    """How many clusters; the paper's best for ImageNet is ten times the number of classes."""
    iterations: int = 20
    """How often, at most, the centroids move to the means of their rows."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """How the centroids are found on a GPU: float32 is exact; bfloat16, many times as fast, finds \
    for rows of unit length one that is nearest to within a thousandth. The labels are exact."""

    def __call__(
        self,
        rows: Tensor,
        world: World = ALONE,
        generator: torch.Generator | None = None,
        *,
        centroids: Tensor | None = None,
    ) -> Clusters:
        """The groups of the rows of all processes; every label is that of the nearest centroid.

        Args:
            rows: (n_local, d), this process's rows.
            world: The processes.
            generator: In the same state in every process; without one, always the same stream.
            centroids: (k, d) to start from; without them, k distinct rows drawn at random.
        """
        if self.k < 2:
            raise UsageError(f"k = {self.k}: at least 2 clusters are needed")
        generator = generator or torch.Generator().manual_seed(0)
        rows, distinct = checked(rows, world)
        total = sum(world.counts(len(rows)))
        k = min(self.k, len(distinct))
        if k < self.k:
            warnings.warn(
                ClustersShrunk(
                    f"the {total} rows hold {k} distinct values, so there are {k} clusters "
                    f"instead of {self.k}; set k to {k} or less, or give more images"
                ),
                stacklevel=2,
            )
        if centroids is None:
            chosen = distinct[torch.randperm(len(distinct), generator=generator)[:k]]
            centroids = world.rows_at(rows, chosen)
        else:
            centroids = _as_given(centroids, (self.k, rows.shape[1]), rows)[:k]

        totals_at = _measuring(rows, self.precision, world)
        objective: list[float] = []
        repaired = 0
        for _ in range(self.iterations):
            faults.point("kmeans.iteration")
            interruption.raise_if_asked()
            totals = totals_at(centroids)
            objective.append(float(totals.spread.sum()) / total)
            # In float32 from here on: what is returned is what was measured, and sums taken in
            # another order, by other processes, round to the same centroid.
            before = centroids
            centroids = torch.where(totals.sizes[:, None] > 0, totals.means, before).float()
            repaired += _split_into_empty(centroids, totals, generator)
            if torch.equal(centroids, before):
                break  # so would all iterations to come

        # A split need not give its twin any rows, so the last assignment may leave clusters empty.
        # Each is then moved onto the row that is farthest from its centroid. That row was at no
        # centroid, so it is now at this one alone, which therefore never is empty again: after at
        # most k rounds none is. There always is such a row, since fewer than k centroids cannot lie
        # on k distinct rows.
        while True:
            found = nearest(rows, centroids, 2)
            labels = found.index[:, 0]
            sizes = world.sum(torch.bincount(labels, minlength=k)).cpu()
            empty = (sizes == 0).nonzero()[:, 0]
            if not len(empty):
                break
            far = _farthest_of_each(labels, found.distance[:, 0], k, world)[: len(empty)]
            centroids[empty[: len(far)].to(rows.device)] = world.rows_at(rows, far)
            repaired += len(far)

        own, other = found.distance.sqrt().unbind(dim=1)
        objective.append(float(world.sum(found.distance[:, 0].sum())) / total)
        return Clusters(
            labels=world.gather(labels.cpu()),
            count=k,
            sizes=sizes,
            objective=objective,
            repaired=repaired,
            centroids=centroids.cpu(),
            distances=world.gather(own.float().cpu()),
            margins=world.gather((other - own).float().cpu()),
        )


def assign(rows: Tensor, centroids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The label, distance and margin of each row: (n,) int64, float32, float32, on their device.

    The margin is how much farther the second-best centroid is; inf if there is only one.
    """
    found = nearest(rows, centroids.to(rows.device), min(2, len(centroids)))
    distance = found.distance.sqrt()
    own = distance[:, 0]
    other = distance[:, 1] if len(centroids) > 1 else torch.full_like(own, torch.inf)
    return found.index[:, 0], own.float(), (other - own).float()


def _measuring(rows: Tensor, precision: str, world: World) -> Callable[[Tensor], Totals]:
    """The function that gives the totals at centroids: by kernels if asked for and possible."""
    if precision == "bfloat16" and rows.device.type == "cuda":
        try:
            from deepcluster.clusters.fast.totals_by_kernel import WIDEST, TotalsByKernel
        except ImportError as error:
            reason = str(error)
        else:
            if rows.shape[1] <= WIDEST:
                return TotalsByKernel(rows, world).at
            reason = f"{rows.shape[1]} columns, and the kernel takes {WIDEST}"
        warnings.warn(
            PlainSearch(f"no kernel for the nearest centroid ({reason}); searching in float32"),
            stacklevel=3,
        )
    return lambda centroids: Totals.at(rows, centroids, world)


def _split_into_empty(centroids: Tensor, totals: Totals, generator: torch.Generator) -> int:
    """Give each empty cluster half of a random other one, in place: how many were given one.

    The paper: "randomly select a non-empty cluster and use its centroid with a small random
    perturbation as the new centroid for the empty cluster". A cluster is selected in proportion to
    the rows it can give away; one whose rows all lie on its centroid has none to give.
    """
    sizes = totals.sizes.cpu()
    empty = (sizes == 0).nonzero()[:, 0]
    weights = (sizes - 1).clamp(min=0).double() * (totals.spread.cpu() > 0)
    # All at once, each donor once: k may be a million. Who finds no donor waits for the next turn.
    count = min(len(empty), int((weights > 0).sum()))
    if not count:
        return 0
    donors = torch.multinomial(weights, count, generator=generator)
    noise = torch.randn(count, centroids.shape[1], generator=generator, dtype=torch.float64)
    device = centroids.device
    donors, empty = donors.to(device), empty[:count].to(device)
    variance = totals.spread[donors] / totals.sizes[donors] / centroids.shape[1]
    step = (_PERTURBATION * variance.sqrt()[:, None] * noise.to(device)).to(centroids)
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


def _as_given(centroids: Tensor, shape: tuple[int, int], rows: Tensor) -> Tensor:
    centroids = torch.as_tensor(centroids, dtype=torch.float32, device=rows.device).clone()
    if tuple(centroids.shape) != shape:
        raise UsageError(
            f"the centroids to start from have the shape {tuple(centroids.shape)}, not {shape}"
        )
    if not centroids.isfinite().all():
        raise NumericsError("the centroids to start from hold numbers that are not finite")
    return centroids
