"""Rows joined by pairs that are alike: exactly, though few pairs are ever compared in full.

The product of two rows is at most that of their parts in a few directions, plus the product of the
lengths of what is left of them (Cauchy-Schwarz). So one product of a few columns rules nearly all
pairs out. Of the others, those that are not yet joined are compared in full, and by differences in
float64 where rounding could decide.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock

import torch
from torch import Tensor

from deepcluster.clusters.gate import fingerprints
from deepcluster.clusters.neighbours import full_float32
from deepcluster.clusters.shares import evenly, on_each_core

_BLOCK = 1024  # rows that meet as many others at once: their products stay in the cache
_MEETINGS = 128  # that a core holds before it tells of them
_DIRECTIONS = 31  # in which all pairs are compared
_SAMPLE = 2**16  # rows that say which directions
_PART = 2**14  # rows, or pairs, of which more than their numbers is held


def joined(
    rows: Tensor, alike: float, progress: Callable[[int], None] = lambda count: None
) -> Tensor:
    """(n,) int64, the first of the rows that each is joined with, by any chain of alike pairs.

    Two rows are alike if |a - b|^2 <= 2 - 2 * `alike`: that is their correlation.

    Args:
        rows: (n, d) float32, of unit length; a row of zeros is like no other.
        alike: From which correlation on two rows are.
        progress: Is told as the work goes on, in all of n; what it raises ends the work.
    """
    first, distinct = _equal_ones(rows, progress)
    slack = 2.0**-22 * rows.shape[1]  # more than rounding can do to a product of two rows
    search = _Search(rows, alike, slack, _Groups(first))
    blocks = distinct.split(_BLOCK)
    screens = _screened(rows, distinct, slack, progress).split(_BLOCK)
    offsets = range(len(blocks) // 2 + 1)  # so that each block meets each other one, or itself

    def meet(item: tuple[int, range]) -> None:
        block, some = item
        room = torch.empty((_BLOCK, _BLOCK))
        for other in ((block + offset) % len(blocks) for offset in some):
            bounds = room[: len(blocks[block]), : len(blocks[other])]
            torch.mm(screens[block], screens[other].T, out=bounds)
            search.compare(blocks[block], blocks[other], bounds)

    items = [
        (block, offsets[start : start + _MEETINGS])
        for block in range(len(blocks))
        for start in range(0, len(offsets), _MEETINGS)
    ]
    with full_float32():
        on_each_core(items, meet, evenly(len(rows), len(items), progress))
    return search.groups.of(torch.arange(len(rows)))


def _equal_ones(rows: Tensor, progress: Callable[[int], None]) -> tuple[Tensor, Tensor]:
    """(n,) the first row equal to each, and the numbers of those that are the first; no zeros."""
    number = torch.arange(len(rows))
    some, prints = torch.empty(len(rows), dtype=torch.bool), torch.empty_like(number)
    for here in number.split(_PART):
        part = rows[here]
        some[here], prints[here] = part.any(dim=1), fingerprints(part)
        progress(0)  # nothing is done yet, but it may end here
    _, which = prints.unique(return_inverse=True)
    first = torch.full_like(number, len(rows)).scatter_reduce_(0, which, number, "amin")[which]
    first = torch.where(some, first, number)
    return first, (some & (first == number)).nonzero()[:, 0]


def _screened(
    rows: Tensor, numbers: Tensor, slack: float, progress: Callable[[int], None]
) -> Tensor:
    """Rows in so few columns that the products of these are no less than those of the rows."""
    sample = rows[numbers[:: max(1, len(numbers) // _SAMPLE)]].double()
    directions = torch.linalg.eigh(sample.T @ sample).eigenvectors[:, -_DIRECTIONS:].float()
    screened = torch.empty((len(numbers), directions.shape[1] + 1))
    for place, part in zip(screened.split(_PART), numbers.split(_PART), strict=True):
        torch.mm(rows[part], directions, out=place[:, :-1])
        place[:, -1] = (1 + slack - place[:, :-1].square().sum(dim=1)).clamp(min=0).sqrt()
        progress(0)
    return screened


@dataclass(frozen=True)
class _Search:
    """What is compared, and what was found."""

    rows: Tensor
    alike: float
    slack: float
    groups: _Groups

    def compare(self, own: Tensor, other: Tensor, bounds: Tensor) -> None:
        """Join the pairs that are alike.

        Args:
            own: Numbers of rows.
            other: Numbers of rows.
            bounds: (own, other) no less than their correlations.
        """
        least = self.alike - self.slack
        mine = (bounds.amax(dim=1) >= least).nonzero()[:, 0]
        if not len(mine):
            return
        bounds = bounds[mine]
        theirs = (bounds.amax(dim=0) >= least).nonzero()[:, 0]
        own, other = own[mine], other[theirs]
        possible = (bounds[:, theirs] >= least) & self.groups.differ(own, other)
        if not possible.any():
            return
        products = self.rows[own] @ self.rows[other].T
        alike = possible & (products >= self.alike + self.slack)
        doubtful = possible & ~alike & (products >= least)
        for some in doubtful.nonzero().split(_PART):
            a, b = some.unbind(dim=1)
            apart = self.rows[own[a]].double() - self.rows[other[b]].double()
            alike[a, b] = apart.square().sum(dim=1) <= 2 - 2 * self.alike
        while alike.any():  # each is joined with one that it is like, which settles many others
            mine, theirs = (alike.any(dim=at).nonzero()[:, 0] for at in (1, 0))
            self.groups.join(own[mine], other[alike[mine].byte().argmax(dim=1)])
            self.groups.join(own[alike[:, theirs].byte().argmax(dim=0)], other[theirs])
            alike &= self.groups.differ(own, other)


class _Groups:
    """Which rows are joined; every core may ask while another one joins.

    Args:
        first: (n,) for each row itself, or a row before it that it is joined with.
    """

    def __init__(self, first: Tensor) -> None:
        self._first = first
        self._numbers = first.numpy()  # the same memory, quicker for one at a time
        self._joining = Lock()

    def of(self, rows: Tensor) -> Tensor:
        """The first row of the group of each."""
        while not torch.equal(before := self._first[rows], rows):
            rows = before
        return rows

    def differ(self, some: Tensor, others: Tensor) -> Tensor:
        """(some, others) whether two rows are not in one group."""
        return self.of(some)[:, None] != self.of(others)

    def join(self, some: Tensor, others: Tensor) -> None:
        """Join each with its other."""
        with self._joining:
            for pair in zip(some.tolist(), others.tolist(), strict=True):
                low, high = sorted(map(self._root, pair))
                self._numbers[high] = low

    def _root(self, row: int) -> int:
        while (before := int(self._numbers[row])) != row:
            self._numbers[row] = self._numbers[before]  # a shorter way for the next
            row = before
        return row
