"""Exact nearest rows in bounded memory: screened in float32, measured in float64.

The screen is one matrix product, |r|^2 - 2 q.r, of rows whose mean is moved to zero so that a large
offset costs no digits. It only proposes candidates: the distances that decide are differences taken
directly. Where rounding could have hidden a nearer row from the screen, that query is measured
against every row. So the answer depends neither on blocks nor on the device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from deepcluster.runtime.errors import UsageError

_ROWS = 2**13  # rows screened at once
_SCORES = {"cpu": 2**22, "cuda": 2**27}  # scores held at once


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
        queries: (m, d), on the device of the rows.
        rows: (n, d).
        count: How many rows to find for each query.
        skip_self_from: Where the queries are rows themselves, the number among the rows of the
            first query; query i then leaves out row `skip_self_from` + i, whatever lies at
            distance zero.
    """
    available = len(rows) - (skip_self_from is not None)
    if not 1 <= count <= available:
        raise UsageError(f"{count} neighbours were asked for, and {available} rows are there")
    screen = _Screen.of(rows)
    index = torch.empty((len(queries), count), dtype=torch.int64, device=rows.device)
    distance = torch.empty((len(queries), count), dtype=torch.float64, device=rows.device)
    held = _SCORES.get(rows.device.type, 2**24)
    # Candidates are measured in float64 and several times over: their share is smaller.
    block = max(1, held // max(min(len(rows), _ROWS), 8 * rows.shape[1] * (count + 1)))
    with _full_float32():
        for start in range(0, len(queries), block):
            chunk = queries[start : start + block].double()
            own = None
            if skip_self_from is not None:
                own = torch.arange(len(chunk), device=rows.device) + skip_self_from + start
            candidates, certain = screen.candidates(chunk, count, available, own)
            doubtful = (~certain).nonzero()[:, 0]
            if len(doubtful):
                candidates[doubtful] = _candidates_by_direct_measure(
                    chunk[doubtful],
                    rows,
                    candidates.shape[1],
                    own[doubtful] if own is not None else None,
                )
            here = slice(start, start + len(chunk))
            index[here], distance[here] = _measured(chunk, rows, candidates, count)
    return Neighbours(index, distance)


@dataclass(frozen=True)
class _Screen:
    """Rows made ready for a float32 product: centred and scaled to [-1, 1]."""

    rows: Tensor  # (n, d) float32
    norms: Tensor  # (n,) float32, squared
    centre: Tensor  # (d,) float64
    scale: Tensor  # () float64

    @staticmethod
    def of(rows: Tensor) -> _Screen:
        parts = [rows[p : p + _ROWS] for p in range(0, len(rows), _ROWS)]
        total = sum((p.double().sum(dim=0) for p in parts), rows.new_zeros(1, dtype=torch.float64))
        centre = total / len(rows)
        largest = torch.stack([(p.double() - centre).abs().max() for p in parts]).max()
        scale = torch.where(largest > 0, 1 / largest, 1.0)
        centred = torch.cat([((p.double() - centre) * scale).float() for p in parts])
        return _Screen(centred, centred.square().sum(dim=1), centre, scale)

    def candidates(
        self, chunk: Tensor, count: int, available: int, own: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """(m, count + 1) rows to measure, and (m,) whether the nearest are certainly among them.

        One candidate more than asked for keeps a plain near-tie out of the slow path; the score
        after it, the watch, bounds from below those of all rows that are not candidates.
        """
        kept = min(count + 2, available)
        chunk32 = ((chunk - self.centre) * self.scale).float()
        scores, index = _best_by_parts(
            len(self.rows),
            kept,
            own,
            lambda p: torch.addmm(self.norms[p], chunk32, self.rows[p].T, alpha=-2),
        )
        if kept < count + 2:  # every row is a candidate, unless the scores overflowed
            return index, scores.isfinite().all(dim=1)
        # A row that competes with the last one asked for, at distance D, has a norm of at most
        # |q| + D, so rounding moves its score by some 2^-24 sqrt(d) (|q| + D)^2. Sixteen times that
        # is far beyond what products show; the constant stands for squares that underflow. The
        # comparison is written so that what is not a number counts as doubtful.
        last = scores[:, count - 1]
        norm = chunk32.square().sum(dim=1)
        reach = (norm.sqrt() + (norm + last).clamp(min=0).sqrt()).square()
        tolerance = 2.0**-20 * (chunk.shape[1] ** 0.5 + 1) * reach + 1e-35
        return index[:, : count + 1], scores[:, count + 1] - last > tolerance


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
        return torch.topk(scores, min(kept, scores.shape[1]), largest=False)

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


def _measured(chunk: Tensor, rows: Tensor, candidates: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """(m, count) the nearest candidates and their squared distances, by differences in float64."""
    # By row number first, so that the stable sort leaves ties in that order.
    candidates = candidates.sort(dim=1).values
    distance = (chunk[:, None] - rows[candidates].double()).square().sum(dim=2)
    order = distance.argsort(dim=1, stable=True)[:, :count]
    return candidates.gather(1, order), distance.gather(1, order)


@contextmanager
def _full_float32() -> Iterator[None]:
    """While open, products keep all digits of float32, whatever training has set."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
