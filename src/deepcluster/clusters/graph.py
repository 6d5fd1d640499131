"""The nearest others of every row: a product tells both of its rows how near the other one is.

So half of the products that a search for queries would take are enough. Blocks of rows meet in
pairs, as in a tournament: in each round every block is in one pair, and the cores share the pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from deepcluster.clusters.gate import matrix
from deepcluster.clusters.neighbours import (
    Neighbours,
    Prepared,
    full_float32,
    nearest,
    refuse_broken,
)
from deepcluster.clusters.shares import evenly, on_each_core

_BLOCK = 2048  # rows that meet as many others at once
_PART = 512  # rows whose scores are held at once, by each core
_GROUP = 64  # scores of which the lowest is looked at first


def nearest_others(
    rows: Tensor, count: int, progress: Callable[[int], None] = lambda count: None
) -> Neighbours:
    """The `count` other rows nearest to each row, in squared Euclidean distance, ties by number.

    The same as `nearest` of all rows among themselves, each leaving out itself.

    Args:
        rows: (n, d), finite.
        count: How many others to find for each row.
        progress: Is told as the work goes on, in all of n; what it raises ends the work.
    """
    rows = matrix(rows)
    if rows.device.type != "cpu" or len(rows) < 2 * _BLOCK or count + 2 > _GROUP:
        return nearest(rows, rows, count, skip_self_from=0)
    refuse_broken(rows)
    prepared = Prepared.of(rows)
    if not bool(prepared.norms.isfinite().all()):  # beyond what scores can tell
        return nearest(rows, rows, count, skip_self_from=0)
    board = _Board.of(prepared, kept=count + 2)
    blocks = range(-(-len(rows) // _BLOCK))

    def settled(block: int) -> Neighbours:
        own = torch.arange(block * _BLOCK, min(len(rows), (block + 1) * _BLOCK))
        norm = prepared.norms[own]
        scores = 2 * board.scores[own] - norm[:, None]
        certain = prepared.beyond_doubt(norm, scores[:, count - 1], scores[:, count + 1])
        candidates = board.index[own, : count + 1]
        return prepared.measured(rows[own], candidates, certain, own, count)

    step = evenly(len(rows), len(blocks) * (len(blocks) + 3) // 2, progress)
    with full_float32():
        on_each_core([(block, block) for block in blocks], board.meet, step)
        for pairs in rounds(len(blocks)):
            on_each_core(pairs, board.meet, step)
        found = on_each_core(blocks, settled, step)
    return Neighbours(
        torch.cat([each.index for each in found]), torch.cat([each.distance for each in found])
    )


def rounds(count: int) -> Iterator[list[tuple[int, int]]]:
    """All pairs of `count` players, in rounds in which nobody plays twice."""
    players: list[int | None] = [*range(count), *([None] if count % 2 else [])]
    for _ in range(len(players) - 1):
        half = len(players) // 2
        met = zip(players[:half], reversed(players[half:]), strict=True)
        yield [(a, b) for a, b in met if a is not None and b is not None]
        players[1:] = [players[-1], *players[1:-1]]


@dataclass(frozen=True)
class _Board:
    """The lowest scores of each row so far. A score is half of a squared distance."""

    factors: Tensor  # (n, d + 2) float32: row, half of its squared length, one
    scores: Tensor  # (n, kept) float32, rising
    index: Tensor  # (n, kept) int64, whose they are

    @staticmethod
    def of(prepared: Prepared, kept: int) -> _Board:
        n = len(prepared.rows)
        factors = torch.empty((n, prepared.rows.shape[1] + 2))
        factors[:, :-2] = prepared.rows
        factors[:, -2] = prepared.norms / 2
        factors[:, -1] = 1
        scores = torch.full((n, kept), torch.inf)
        return _Board(factors, scores, torch.zeros((n, kept), dtype=torch.int64))

    def meet(self, pair: tuple[int, int]) -> None:
        """Let the rows of two blocks, or of one, take notice of each other."""
        first, second = (slice(block * _BLOCK, (block + 1) * _BLOCK) for block in pair)
        other = self.factors[second].clone()
        other[:, -1] = -self.factors[second, -2]
        other[:, -2] = -1
        room = torch.empty((_PART, _BLOCK))
        for start in range(first.start, min(first.stop, len(self.factors)), _PART):
            part = self.factors[start : min(start + _PART, first.stop)]
            here = room[: len(part), : len(other)]
            torch.addmm(here, part, other.T, beta=0, alpha=-1, out=here)
            room[len(part) :] = torch.inf
            room[:, len(other) :] = torch.inf
            if first == second:  # the first meeting: nothing is on the board yet
                here.diagonal(start - first.start).fill_(torch.inf)
                own, most = (
                    slice(start, start + len(part)),
                    min(here.shape[1], self.scores.shape[1]),
                )
                lowest = here.topk(most, dim=1, largest=False)
                self.scores[own, :most] = lowest.values
                self.index[own, :most] = lowest.indices + second.start
                continue
            across, down = room.unflatten(1, (-1, _GROUP)), room.unflatten(0, (-1, _GROUP))
            self._notice(across, across.amin(dim=2), start, second.start)
            self._notice(down.permute(2, 0, 1), down.amin(dim=1).T, second.start, start)

    def _notice(self, scores: Tensor, minima: Tensor, mine: int, theirs: int) -> None:
        """Put the scores on the board that are lower than the highest there.

        Args:
            scores: (rows, groups, scores of a group), infinite where there is no row.
            minima: (rows, groups) the lowest of each group.
            mine: The number of the first row, whose board it is.
            theirs: The number of the row that the first score is about.
        """
        limit = torch.full((len(scores),), -torch.inf)
        known = self.scores[mine : mine + len(scores), -1]
        limit[: len(known)] = known
        row, group = (minima < limit[:, None]).nonzero().unbind(dim=1)
        inside = scores[row, group]
        hit, place = (inside < limit[row][:, None]).nonzero().unbind(dim=1)
        if len(hit):
            other = theirs + group[hit] * _GROUP + place
            self._enter(mine + row[hit], other, inside[hit, place])

    def _enter(self, row: Tensor, other: Tensor, score: Tensor) -> None:
        """Merge scores, in any order, with those on the board."""
        kept = self.scores.shape[1]
        order = score.argsort()
        order = order[row[order].argsort(stable=True)]
        who, count = torch.unique_consecutive(row[order], return_counts=True)
        rank = torch.arange(len(row)) - (count.cumsum(0) - count).repeat_interleave(count)
        line = torch.arange(len(who)).repeat_interleave(count)
        best = rank < kept
        scores = torch.full((len(who), kept), torch.inf)
        scores[line[best], rank[best]] = score[order][best]
        index = torch.zeros((len(who), kept), dtype=torch.int64)
        index[line[best], rank[best]] = other[order][best]
        both = torch.cat([self.scores[who], scores], dim=1)
        lowest, place = both.topk(kept, dim=1, largest=False)
        self.scores[who] = lowest
        self.index[who] = torch.cat([self.index[who], index], dim=1).gather(1, place)
