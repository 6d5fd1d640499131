"""What one search for the nearest centroid leaves to the next: how far others must come nearer.

A row keeps its centroid for certain while that is nearer than every other one can have come. A few
centroids move much farther than the rest, so these are measured, and only the others bounded.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from deepcluster.clusters.neighbours import Prepared, Screened

_MEASURED = 0.25  # of the centroids, those that moved farthest
_WORTH = 0.6  # share of rows in question up to which it pays to look at these first
_MOST = 2**13  # of them, as many as are screened at once
_ROUNDING = 1 + 1e-5  # of what is measured, in float32
_STEP = 2.0**-22  # by which a bound widens whenever something is added to it, and rounded


@dataclass(frozen=True)
class Moved:
    """The centroids that moved farthest, and how far any other one did."""

    place: Tensor  # (k,) int64: of each centroid among these; the number of these, if it is not
    rows: Tensor  # (fast, d) float32, as prepared
    norms: Tensor  # (fast,) float32
    others: float


class Bounds:
    """For each row an upper bound of its distance to its centroid, a lower one to all others."""

    def __init__(self, count: int, device: torch.device) -> None:
        self._own = torch.full((count,), torch.inf, device=device)
        self._others = torch.zeros(count, device=device)
        self._before: Tensor | None = None
        self._moves: Tensor | None = None

    def renewed(self, centroids: Tensor, labels: Tensor) -> Tensor:
        """(n,) the rows that may have another nearest centroid now.

        The lower bounds of these are still those from before the centroids moved.
        """
        before, self._before = self._before, centroids.clone()
        if before is None or before.shape != centroids.shape:
            self._own.fill_(torch.inf)
            self._moves = None
            return torch.ones_like(labels, dtype=torch.bool)
        moves = (centroids.double() - before.double()).norm(dim=1)
        self._moves = (moves * _ROUNDING).float()
        self._own = (self._own + self._moves[labels]) * (1 + _STEP)
        reached = (self._others - self._moves.max()) * (1 - _STEP)
        kept = self._own < reached
        self._others = torch.where(kept, reached, self._others)
        return ~kept

    def fastest(self, prepared: Prepared, doubted: Tensor) -> Moved | None:
        """The centroids to measure first, if that settles enough of the rows in question."""
        moves = self._moves
        if moves is None:
            return None
        count = min(int(_MEASURED * len(moves)), _MOST)
        order = moves.argsort(descending=True, stable=True)
        others = float(moves[order[count]])
        open_still = doubted & ~(self._own < self._others - others)
        if not count or int(open_still.sum()) > _WORTH * int(doubted.sum()):
            return None
        fast = order[:count].sort().values
        place = torch.full_like(order, count)
        place[fast] = torch.arange(count, device=place.device)
        return Moved(place, prepared.rows[fast], prepared.norms[fast], others)

    def in_question(
        self,
        prepared: Prepared,
        moved: Moved,
        rows: Tensor,
        number: Tensor,
        squares: Tensor,
        labels: Tensor,
    ) -> Tensor:
        """(m,) of some rows, those that may have another nearest centroid even so.

        Args:
            prepared: The centroids.
            moved: Those that moved farthest.
            rows: (m, d) float32.
            number: (m,) their numbers.
            squares: (m,) their squared distances to the centre.
            labels: (m,) the centroids they had.
        """
        queries, norm = prepared.ready(rows), _norm(prepared, squares)
        own = prepared.norms[labels] - 2 * prepared.rows[labels].mul_(queries).sum(dim=1)
        count = len(moved.rows)
        scores = queries.new_empty((len(queries), count + 1))
        torch.addmm(moved.norms, queries, moved.rows.T, alpha=-2, out=scores[:, :count])
        scores[:, count] = torch.inf
        scores.scatter_(1, moved.place[labels][:, None], torch.inf)
        upper = _upper(prepared, norm, own)
        lower = _lower(prepared, norm, scores.amin(dim=1))
        lower = torch.minimum(lower, (self._others[number] - moved.others) * (1 - _STEP))
        self._own[number], self._others[number] = upper, lower
        return ~(upper < lower)

    def keep(self, prepared: Prepared, number: Tensor, squares: Tensor, found: Screened) -> None:
        """Take notice of what a screen has found; see `in_question`."""
        norm = _norm(prepared, squares)
        upper = _upper(prepared, norm, found.lowest)
        self._own[number] = torch.where(found.certain, upper, torch.inf)
        self._others[number] = _lower(prepared, norm, found.second)


def _norm(prepared: Prepared, squares: Tensor) -> Tensor:
    return (squares * prepared.scale**2).float()


def _upper(prepared: Prepared, norm: Tensor, score: Tensor) -> Tensor:
    """(m,) at least the distance that a score stands for."""
    squared = (norm + score).clamp(min=0) + prepared.tolerance(norm, score)
    return squared.sqrt() * (_ROUNDING / prepared.scale)


def _lower(prepared: Prepared, norm: Tensor, score: Tensor) -> Tensor:
    """(m,) at most the distance that a score, or any higher one, stands for."""
    squared = (norm + score - prepared.tolerance(norm, score)).clamp(min=0)
    return squared.sqrt() / (_ROUNDING * prepared.scale)
