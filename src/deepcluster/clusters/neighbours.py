"""Exact nearest rows in bounded memory: screened in float32, measured in float64.

The screen is one matrix product, |r|^2 - 2 q.r, of rows whose mean is moved to zero so that a large
offset costs no digits. It only proposes candidates: the distances that decide are differences taken
directly. Where rounding could have hidden a nearer row from the screen, that query is measured
against every row. So the answer depends neither on blocks nor on the device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from deepcluster.clusters.gate import matrix, refuse_nonfinite
from deepcluster.runtime.errors import UsageError
from deepcluster.runtime.world import World

_ROWS = 2**13  # rows screened at once
_SCORES = {"cpu": 2**21, "cuda": 2**27}  # scores held at once
_GROUP = 64  # scores of which the lowest is found together
_NO_MORE_DIGITS = {torch.float32, torch.float16, torch.bfloat16, torch.uint8, torch.int8}


@dataclass(frozen=True)
class Neighbours:
    """The nearest rows of each query, nearest first, ties by the lower row number."""

    index: Tensor
    """(queries, count) int64."""
    distance: Tensor
    """(queries, count) float64, squared."""


def nearest(
    queries: Tensor, rows: Tensor, count: int, *, skip_self_from: int | None = None
) -> Neighbours:
    """The `count` rows nearest to each query in squared Euclidean distance.

    Args:
        queries: (m, d), finite, on the device of the rows.
        rows: (n, d); one that is not finite is farther away than any that is.
        count: How many rows to find for each query.
        skip_self_from: Where the queries are rows themselves, the number among the rows of the
            first query; query i then leaves out row `skip_self_from` + i, whatever lies at
            distance zero.
    """
    queries, rows = matrix(queries), matrix(rows)
    if queries.shape[1] != rows.shape[1]:
        raise UsageError(
            f"queries of {queries.shape[1]} columns cannot be compared with rows of {rows.shape[1]}"
        )
    refuse_broken(queries)
    return Prepared.of(rows).nearest(queries, count, skip_self_from=skip_self_from)


def refuse_broken(rows: Tensor) -> None:
    """Name the rows that are not finite in float32."""
    largest = torch.finfo(torch.float32).max
    lowest, highest = rows.amin(dim=1).double(), rows.amax(dim=1).double()
    broken = (~((lowest >= -largest) & (highest <= largest))).nonzero()[:, 0]
    refuse_nonfinite(broken, len(rows), len(rows), World())


@dataclass(frozen=True)
class Screened:
    """What scores in float32 tell of each query. A score is a squared distance less |query|^2."""

    index: Tensor
    """(m,) int64, the row of the lowest score."""
    certain: Tensor
    """(m,) whether rounding cannot hide a nearer one; if not, it is to be given to `nearest`."""
    lowest: Tensor
    """(m,) its score."""
    second: Tensor
    """(m,) the next lowest."""


@dataclass(frozen=True)
class Prepared:
    """Rows made ready to be found by many queries: centred, and scaled where they are extreme."""

    exact: Tensor  # (n, d), as given
    rows: Tensor  # (n, d) float32
    norms: Tensor  # (n,) float32, squared
    centre: Tensor  # (d,) float32
    scale: float  # a power of two, so that scaling rounds nothing

    @staticmethod
    def of(rows: Tensor, centre: Tensor | None = None) -> Prepared:
        """Make ready, in parts, so that the memory needed is that of the float32 rows.

        Args:
            rows: (n, d).
            centre: (d,) float32, what is moved to zero; by default the mean of the rows.
        """
        parts = [rows[p : p + _ROWS] for p in range(0, len(rows), _ROWS)]
        if centre is None:
            zero = rows.new_zeros(1, dtype=torch.float64)
            total = sum((p.double().sum(dim=0) for p in parts), zero)
            centre = (total / max(1, len(rows))).float()
        # One maximum and one tensor of norms: many small ones would keep the memory between them.
        farthest = rows.new_zeros((), dtype=torch.float64)
        for part in parts:
            if part.numel():
                torch.maximum(farthest, (part.double() - centre).abs().amax(), out=farthest)
        largest = float(farthest)
        # Only where squares could overflow or vanish: to scale is one more pass over every query.
        extreme = 1e-38 < largest < 1e38 and not 1e-6 < largest < 1e6
        scale = 2.0 ** -math.frexp(largest)[1] if extreme else 1.0
        centred = torch.empty(rows.shape, dtype=torch.float32, device=rows.device)
        norms = torch.empty(len(rows), dtype=torch.float32, device=rows.device)
        for start, part in zip(range(0, len(rows), _ROWS), parts, strict=True):
            moved = centred[start : start + _ROWS]
            moved[:] = (part.double() - centre) * scale
            torch.sum(moved.square(), dim=1, out=norms[start : start + _ROWS])
        return Prepared(rows, centred, norms, centre, scale)

    def nearest(
        self, queries: Tensor, count: int, *, skip_self_from: int | None = None
    ) -> Neighbours:
        """The `count` rows nearest to each query; see the function of this name."""
        rows = self.exact
        available = len(rows) - (skip_self_from is not None)
        if not 1 <= count <= available:
            raise UsageError(f"{count} neighbours were asked for, and {available} rows are there")
        index = torch.empty((len(queries), count), dtype=torch.int64, device=rows.device)
        distance = torch.empty((len(queries), count), dtype=torch.float64, device=rows.device)
        most = self.at_once()
        with full_float32():
            for start in range(0, len(queries), most):
                chunk = queries[start : start + most]
                own = None
                if skip_self_from is not None:
                    own = torch.arange(len(chunk), device=rows.device) + skip_self_from + start
                candidates, certain = self._candidates(chunk, count, available, own)
                found = self.measured(chunk, candidates, certain, own, count)
                here = slice(start, start + len(chunk))
                index[here], distance[here] = found.index, found.distance
        return Neighbours(index, distance)

    def measured(
        self, queries: Tensor, candidates: Tensor, certain: Tensor, own: Tensor | None, count: int
    ) -> Neighbours:
        """The nearest of the candidates; where it is not certain that they are it, of all rows.

        Args:
            queries: (m, d).
            candidates: (m, at least count) row numbers; overwritten where they are not certain.
            certain: (m,) whether the nearest rows are among the candidates.
            own: (m,) the row that each query may not find.
            count: How many to find.
        """
        doubtful = (~certain).nonzero()[:, 0]
        if len(doubtful):
            candidates[doubtful] = _candidates_by_direct_measure(
                queries[doubtful].double(),
                self.exact,
                candidates.shape[1],
                own[doubtful] if own is not None else None,
            )
        # Candidates are measured in float64 and several times over: fewer at once.
        few = self.at_once(8 * self.exact.shape[1] * candidates.shape[1])
        parts = [
            measured(queries[p : p + few], self.exact, candidates[p : p + few], count)
            for p in range(0, len(queries), few)
        ]
        index, distance = zip(*parts, strict=True)
        return Neighbours(torch.cat(index), torch.cat(distance))

    def room(self) -> Tensor:
        """Memory for the scores of `at_once` queries, to be used again and again."""
        numbers = self.at_once() * self._line
        return torch.empty(numbers, dtype=torch.float32, device=self.rows.device)

    def nearest_one(self, queries: Tensor, squares: Tensor, room: Tensor) -> Screened:
        """The nearest row of each query, as far as the screen can tell.

        Args:
            queries: (m, d) float32, at most `at_once`.
            squares: (m,) their squared distances to the centre.
            room: Memory for their scores.
        """
        with full_float32():
            best, at, second = self._two_lowest(self.ready(queries), room)
            norm = (squares * self.scale**2).float()
        return Screened(at, self.beyond_doubt(norm, best, second), best, second)

    def at_once(self, least: int = 1) -> int:
        """How many queries to screen at once, where each holds `least` numbers more."""
        held = _SCORES.get(self.rows.device.type, 2**24)
        return max(1, held // max(self._line, least))

    def ready(self, queries: Tensor) -> Tensor:
        """(m, d) float32: the queries, moved and scaled as the rows are."""
        if queries.dtype not in _NO_MORE_DIGITS:
            return ((queries.double() - self.centre) * self.scale).float()
        moved = queries.float() - self.centre
        return moved if self.scale == 1 else moved.mul_(self.scale)

    def _candidates(
        self, queries: Tensor, count: int, available: int, own: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """(m, count + 1) rows to measure, and (m,) whether the nearest are certainly among them.

        One candidate more than asked for keeps a plain near-tie out of the slow path; the score
        after it, the watch, bounds from below those of all rows that are not candidates.
        """
        kept = min(count + 2, available)
        chunk = self.ready(queries)
        scores, index = _best_by_parts(
            len(self.rows),
            kept,
            own,
            lambda p: torch.addmm(self.norms[p], chunk, self.rows[p].T, alpha=-2),
        )
        if kept < count + 2:  # every row is a candidate, unless the scores overflowed
            return index, scores.isfinite().all(dim=1)
        watch = scores[:, count + 1]
        norm = chunk.square().sum(dim=1)
        return index[:, : count + 1], self.beyond_doubt(norm, scores[:, count - 1], watch)

    def beyond_doubt(self, norm: Tensor, last: Tensor, watch: Tensor) -> Tensor:
        """(m,) whether rounding cannot have put a score above `watch` that belongs below `last`.

        A row that competes with the last one asked for, at distance D, has a norm of at most
        |q| + D, so rounding moves its score by some 2^-24 sqrt(d) (|q| + D)^2. Sixteen times that
        is far beyond what products show; the constant stands for squares that underflow. The
        comparison is written so that what is not a number counts as doubtful.
        """
        return watch - last > self.tolerance(norm, last)

    def tolerance(self, norm: Tensor, score: Tensor) -> Tensor:
        """(m,) more than rounding can have moved a score, or any that competes with it."""
        reach = (norm.sqrt() + (norm + score).clamp(min=0).sqrt()).square()
        return 2.0**-20 * (self.rows.shape[1] ** 0.5 + 1) * reach + 1e-35

    @property
    def _line(self) -> int:
        """How long a line of scores is: whole groups, an odd number, so that lines fall apart."""
        return (-(-min(len(self.rows), _ROWS) // _GROUP) | 1) * _GROUP

    def _two_lowest(self, chunk: Tensor, room: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(m,) the lowest score, whose it is, and the next lowest."""
        lowest = torch.full((len(chunk),), torch.inf, device=chunk.device)
        at, second = lowest.new_zeros(len(chunk), dtype=torch.int64), lowest.clone()
        scores = room[: len(chunk) * self._line].view(len(chunk), self._line)
        for start in range(0, len(self.rows), _ROWS):
            part = slice(start, start + _ROWS)
            count = len(self.norms[part])
            scores[:, count:] = torch.inf
            torch.addmm(self.norms[part], chunk, self.rows[part].T, alpha=-2, out=scores[:, :count])
            low, where, next_low = _two_lowest(scores)
            better = low < lowest
            beaten = torch.where(better, lowest, low)
            second = torch.minimum(beaten, torch.minimum(second, next_low))
            at = torch.where(better, where + start, at)
            lowest = torch.minimum(lowest, low)
        return lowest, at, second


def _two_lowest(scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(m,) the lowest of each line, its place, and the next lowest."""
    groups = scores.view(len(scores), -1, _GROUP)
    minima = groups.amin(dim=2)
    lowest, which = minima.min(dim=1)
    inside = groups.gather(1, which[:, None, None].expand(-1, 1, _GROUP))[:, 0]
    place = inside.argmin(dim=1)
    inside.scatter_(1, place[:, None], torch.inf)
    minima.scatter_(1, which[:, None], torch.inf)
    return lowest, which * _GROUP + place, torch.minimum(inside.amin(dim=1), minima.amin(dim=1))


def _candidates_by_direct_measure(
    chunk: Tensor, rows: Tensor, kept: int, own: Tensor | None
) -> Tensor:
    """(m, kept) nearest rows by differences in float64: slow, and right whatever the numbers."""
    return _best_by_parts(
        len(rows),
        kept,
        own,
        lambda p: torch.cdist(chunk, rows[p].double(), compute_mode="donot_use_mm_for_euclid_dist"),
        stable=True,
    )[1]


def _best_by_parts(
    length: int,
    kept: int,
    own: Tensor | None,
    scores_of: Callable[[slice], Tensor],
    stable: bool = False,
) -> tuple[Tensor, Tensor]:
    """(m, kept) lowest scores over all rows, rising, and whose they are; `own` rows are left out.

    Args:
        length: How many rows there are.
        kept: How many scores to keep.
        own: (m,) the row that each query may not find.
        scores_of: (m, part) scores for a part of the rows.
        stable: Whether equal scores keep the order of the rows.
    """

    def best(scores: Tensor) -> tuple[Tensor, Tensor]:
        if stable:
            values, where = scores.sort(dim=1, stable=True)
            return values[:, :kept], where[:, :kept]
        return _lowest(scores, min(kept, scores.shape[1]))

    values = index = torch.empty(0)
    for start in range(0, length, _ROWS):
        scores = scores_of(slice(start, start + _ROWS))
        if own is not None:
            here = own - start
            mine = ((here >= 0) & (here < scores.shape[1])).nonzero()[:, 0]
            scores[mine, here[mine]] = torch.inf
        part_values, part_index = best(scores)
        part_index = part_index + start
        if start == 0:
            values, index = part_values, part_index
        else:  # what was found before comes first, being of lower row numbers
            values, where = best(torch.cat([values, part_values], dim=1))
            index = torch.cat([index, part_index], dim=1).gather(1, where)
    return values, index


def _lowest(scores: Tensor, kept: int) -> tuple[Tensor, Tensor]:
    """(m, kept) the lowest of each line, rising, and their places; the scores are overwritten.

    The minima of groups are cheap; then only the lowest group is looked through, again and again.
    """
    count = scores.shape[1]
    if scores.is_cuda or count < 4 * _GROUP or kept > _GROUP // 8:
        return torch.topk(scores, kept, largest=False)
    whole = count // _GROUP * _GROUP
    values, where = _lowest_of_groups(scores[:, :whole], kept)
    if whole < count:
        rest = torch.arange(whole, count, device=scores.device).expand(len(scores), -1)
        values, where = (
            torch.cat([values, scores[:, whole:]], dim=1),
            torch.cat([where, rest], dim=1),
        )
        values, chosen = torch.topk(values, kept, largest=False)
        where = where.gather(1, chosen)
    return values, where


def _lowest_of_groups(scores: Tensor, kept: int) -> tuple[Tensor, Tensor]:
    """(m, kept) the lowest of each line, rising, and their places; the scores are overwritten."""
    groups = scores.view(len(scores), -1, _GROUP)
    minima = groups.amin(dim=2)
    line = torch.arange(len(scores), device=scores.device)
    values, where = [], []
    for _ in range(kept):
        lowest, which = minima.min(dim=1)
        inside = groups[line, which]
        place = inside.argmin(dim=1)
        inside.scatter_(1, place[:, None], torch.inf)
        groups[line, which, place] = torch.inf
        minima[line, which] = inside.amin(dim=1)
        values.append(lowest)
        where.append(which * _GROUP + place)
    return torch.stack(values, dim=1), torch.stack(where, dim=1)


def measured(
    chunk: Tensor,
    rows: Tensor,
    candidates: Tensor,
    count: int,
    difference: torch.dtype = torch.float64,
) -> tuple[Tensor, Tensor]:
    """(m, count) the nearest candidates and their squared distances, by differences.

    Args:
        chunk: (m, d).
        rows: (n, d).
        candidates: (m, c) numbers of rows.
        count: How many of the candidates to give.
        difference: The type of each difference; squares are summed in float64 in any case.
    """
    # By row number first, so that the stable sort leaves ties in that order.
    candidates = candidates.sort(dim=1).values
    between = rows[candidates].to(difference).sub_(chunk.to(difference)[:, None])
    distance = between.square_().sum(dim=2, dtype=torch.float64)
    order = distance.argsort(dim=1, stable=True)[:, :count]
    return candidates.gather(1, order), distance.gather(1, order)


@contextmanager
def full_float32() -> Iterator[None]:
    """While open, products keep all digits of float32, whatever training has set."""
    before = torch.get_float32_matmul_precision()
    if before == "highest":  # nothing to do, and nothing to put back: threads may be at work
        yield
        return
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
