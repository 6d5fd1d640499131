"""Where k-means starts: distinct rows, drawn evenly or in proportion to how far away they are."""

from __future__ import annotations

import torch
from torch import Tensor

from deepcluster.clusters.gate import first_of_each
from deepcluster.clusters.neighbours import Prepared
from deepcluster.clusters.rows import Rows
from deepcluster.runtime.errors import NumericsError, UsageError
from deepcluster.runtime.world import World

_SAMPLE = 20_000  # rows, at least, among which k-means++ draws
_SAMPLE_PER_CLUSTER = 4
_MANY = 100_000  # of which a permutation takes a millisecond
_FEW = 4  # where so many times as many as are drawn are there, most draws are new
_MOST_AT_ONCE = 1024  # drawn before the distances are brought up to date


def drawn_evenly(
    rows: Rows, distinct: Tensor, k: int, world: World, generator: torch.Generator
) -> Tensor:
    """(k, d) distinct rows, each equally likely."""
    return rows_at(rows, distinct[some_of(len(distinct), k, generator)], world)


def drawn_far_apart(
    rows: Rows, distinct: Tensor, k: int, world: World, generator: torch.Generator
) -> Tensor:
    """(k, d) rows by k-means++ on a sample of the distinct rows, the same in every process.

    Each is drawn in proportion to its squared distance to the nearest of those drawn before.
    """
    size = max(_SAMPLE, _SAMPLE_PER_CLUSTER * k)
    sample = distinct[some_of(len(distinct), size, generator)]
    candidates = rows_at(rows, sample, world)
    return world.broadcast(candidates[_far_apart(candidates, k, generator).to(candidates.device)])


def some_of(total: int, count: int, generator: torch.Generator) -> Tensor:
    """`count` of the numbers below `total`, or all, in random order.

    Few of many are drawn one by one, and those drawn again are left out: a permutation of all takes
    longer than an iteration of k-means.
    """
    if total < _MANY or count * _FEW >= total:
        return torch.randperm(total, generator=generator)[:count]
    drawn = torch.empty(0, dtype=torch.int64)
    while len(drawn) < count:
        more = torch.randint(total, (count + count // 4,), generator=generator)
        drawn = torch.cat([drawn, more])
        drawn = drawn[first_of_each(drawn)]
    return drawn[:count]


def rows_at(rows: Rows, where: Tensor, world: World) -> Tensor:
    """The rows with the given global numbers, the same in every process."""
    if world.size == 1:
        return rows.at(where).clone()
    here = where - world.offset(len(rows))
    mine = (here >= 0) & (here < len(rows))
    chosen = torch.zeros((len(where), rows.width), device=rows.device)
    chosen[mine.to(rows.device)] = rows.at(here[mine])
    return world.sum(chosen)


def as_given(centroids: Tensor, k: int, rows: Rows) -> Tensor:
    """A copy of the centroids that were given to start from, if one can start from them."""
    try:
        start = torch.as_tensor(centroids, dtype=torch.float64, device=rows.device).detach()
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"the centroids to start from are no matrix of numbers: {error}"
        ) from error
    if tuple(start.shape) != (k, rows.width):
        raise UsageError(
            f"the centroids to start from have the shape {tuple(start.shape)}, "
            f"not {(k, rows.width)}"
        )
    start = (start if rows.origin is None else start - rows.origin).float()
    if not start.isfinite().all():
        raise NumericsError("the centroids to start from hold numbers that are not finite")
    return start


def _far_apart(rows: Tensor, k: int, generator: torch.Generator) -> Tensor:
    """(k,) numbers of distinct rows.

    Many are drawn at once by distances that are a little out of date, so too large; each is then
    accepted with the probability by which its distance has since shrunk. That leaves exactly the
    distribution of drawing one at a time, with few passes over the rows.
    """
    prepared = Prepared.of(rows)
    chosen = [int(torch.randint(len(rows), (), generator=generator))]
    squared = _squared(rows, prepared, chosen)
    while len(chosen) < k:
        if not 0 < float(squared.sum()) < torch.inf:  # the rest cannot be told apart by float32
            left = torch.ones(len(rows), dtype=torch.bool)
            left[chosen] = False
            chosen += left.nonzero()[: k - len(chosen), 0].tolist()
            break
        count = max(1, min(len(chosen), _MOST_AT_ONCE, k - len(chosen)))
        weights = squared.cumsum(0)
        at = torch.rand(count, generator=generator, dtype=torch.float64) * weights[-1]
        drawn = torch.searchsorted(weights, at, right=True).clamp(max=len(rows) - 1)
        between = _between(prepared.rows[drawn.to(rows.device)])
        old = squared[drawn]
        now = old.clone()
        coin = torch.rand(count, generator=generator, dtype=torch.float64)
        accepted: list[int] = []
        for turn in range(count):
            if coin[turn] * old[turn] < now[turn]:
                accepted.append(int(drawn[turn]))
                now = torch.minimum(now, between[turn])
        squared = torch.minimum(squared, _squared(rows, prepared, accepted))
        chosen += accepted
        squared[chosen] = 0  # whatever rounding says
    return torch.tensor(chosen[:k], dtype=torch.int64)


def _squared(rows: Tensor, prepared: Prepared, chosen: list[int]) -> Tensor:
    """(n,) float64 on the CPU: the squared distance of each row to the nearest of those chosen."""
    some = prepared.rows[torch.tensor(chosen, device=rows.device)]
    lowest = torch.full((len(rows),), torch.inf, device=rows.device)
    for start in range(0, len(rows), 8192):
        part = slice(start, start + 8192)
        scores = torch.addmm(some.square().sum(dim=1), prepared.rows[part], some.T, alpha=-2)
        lowest[part] = scores.amin(dim=1) + prepared.norms[part]
    return lowest.double().clamp(min=0).cpu()


def _between(rows: Tensor) -> Tensor:
    """(m, m) float64 on the CPU, in the units of `_squared`."""
    return torch.cdist(rows.double(), rows.double()).square().cpu()
