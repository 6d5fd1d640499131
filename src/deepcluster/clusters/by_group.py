"""How far rows are from the nearest row of their own group and from that of any other."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from deepcluster.clusters.neighbours import full_float32

_ROWS = 2**13  # rows compared with at once
_SCORES = {"cpu": 2**22, "cuda": 2**27}  # scores held at once


class OwnAndOther(NamedTuple):
    """The nearest row of the own group, and that of any other; inf where there is none."""

    own: Tensor  # (m,) float32
    other: Tensor  # (m,) float32


def own_and_other(
    queries: Tensor, groups: Tensor, rows: Tensor, labels: Tensor, left_out: Tensor
) -> OwnAndOther:
    """The distances of queries to the nearest rows by group, in bounded memory.

    The nearest are chosen by products in float32, and their distances then measured: of rows of
    about unit length another one could be nearer by a millionth, no more.

    Args:
        queries: (m, d).
        groups: (m,) the group of each query.
        rows: (n, d), on the same device.
        labels: (n,) the group of each row.
        left_out: (m,) the number of a row that is not compared with, the query itself; -1: none.
    """
    at_once = max(1, _SCORES.get(queries.device.type, 2**22) // _ROWS)
    found = [
        _of_some(queries[part], groups[part], rows, labels, left_out[part])
        for part in (slice(at, at + at_once) for at in range(0, len(queries), at_once))
    ]
    empty = queries.new_empty(0)
    return OwnAndOther(
        torch.cat([one.own for one in found] or [empty]),
        torch.cat([one.other for one in found] or [empty]),
    )


def _of_some(
    queries: Tensor, groups: Tensor, rows: Tensor, labels: Tensor, left_out: Tensor
) -> OwnAndOther:
    inf = torch.full((len(queries),), torch.inf, device=queries.device)
    nobody = torch.zeros(len(queries), dtype=torch.int64, device=queries.device)
    best = {True: (inf, nobody), False: (inf, nobody)}  # own group or not: score, row
    for start in range(0, len(rows), _ROWS):
        block = rows[start : start + _ROWS]
        with full_float32():
            scores = block.square().sum(dim=1) - 2 * (queries @ block.T)
        here = left_out - start
        itself = ((here >= 0) & (here < len(block))).nonzero()[:, 0]
        scores[itself, here[itself]] = torch.inf
        same = groups[:, None] == labels[start : start + _ROWS]
        for own in (True, False):
            lowest, place = scores.masked_fill(same != own, torch.inf).min(dim=1)
            score, row = best[own]
            nearer = lowest < score
            best[own] = torch.where(nearer, lowest, score), torch.where(nearer, place + start, row)
    return OwnAndOther(*(_measured(queries, rows, *best[own]) for own in (True, False)))


def _measured(queries: Tensor, rows: Tensor, score: Tensor, row: Tensor) -> Tensor:
    apart = (queries.double() - rows[row].double()).norm(dim=1).float()
    return torch.where(score.isfinite(), apart, torch.inf)
