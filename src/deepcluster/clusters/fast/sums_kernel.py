"""The sum of each cluster's rows, without contention: rows are put in order of their cluster."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_ROWS = 32  # read at once
_PIECE = 512  # rows that one program sums in float32 before they join the others in float64


def sums_by_kernel(rows: Tensor, labels: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The sum (k x d, float64) and the number (k, int64) of each cluster's rows.

    Every piece of at most `_PIECE` rows of one cluster is summed by one program in one order, so
    the same rows and labels give the same bits.
    """
    count, width = rows.shape
    order = torch.sort(labels, stable=True).indices
    sizes = torch.bincount(labels, minlength=k)
    starts = torch.cumsum(sizes, 0) - sizes
    pieces = (sizes + _PIECE - 1) // _PIECE
    first_piece = torch.cumsum(pieces, 0) - pieces
    total = count // _PIECE + k  # at least as many as there are, known without waiting
    number = torch.arange(total, device=rows.device)
    owner = torch.searchsorted(first_piece + pieces, number, right=True)  # k: nobody's
    padded = max(16, triton.next_power_of_2(width))
    partial = torch.empty(total, width, dtype=torch.float32, device=rows.device)
    _sums[(total,)](
        rows,
        order,
        owner,
        starts,
        sizes,
        first_piece,
        partial,
        k,
        width,
        ROWS=_ROWS,
        PIECE=_PIECE,
        WIDTH=padded,
    )
    sums = torch.empty(k, width, dtype=torch.float64, device=rows.device)
    _joined[(k,)](partial, first_piece, pieces, sums, width, WIDTH=padded)
    return sums, sizes


@triton.jit
def _sums(
    rows,
    order,
    owner,
    starts,
    sizes,
    first_piece,
    partial,
    k,
    width,
    ROWS: tl.constexpr,  # noqa: N803 - Triton's custom for what is known when it compiles
    PIECE: tl.constexpr,  # noqa: N803
    WIDTH: tl.constexpr,  # noqa: N803
):
    """The sum of one piece of one cluster."""
    piece = tl.program_id(0)
    cluster = tl.load(owner + piece)
    if cluster < k:
        start = (piece - tl.load(first_piece + cluster)) * PIECE
        stop = tl.minimum(start + PIECE, tl.load(sizes + cluster))
        base = tl.load(starts + cluster)
        depth = tl.arange(0, WIDTH)
        total = tl.zeros((WIDTH,), dtype=tl.float32)
        for first in range(start, stop, ROWS):
            place = first + tl.arange(0, ROWS)
            is_row = place < stop
            which = tl.load(order + base + place, mask=is_row, other=0)
            x = tl.load(
                rows + which[:, None] * width + depth[None, :],
                mask=is_row[:, None] & (depth < width)[None, :],
                other=0.0,
            )
            total += tl.sum(x.to(tl.float32), axis=0)
        tl.store(partial + piece.to(tl.int64) * width + depth, total, mask=depth < width)


@triton.jit
def _joined(
    partial,
    first_piece,
    pieces,
    sums,
    width,
    WIDTH: tl.constexpr,  # noqa: N803
):
    """The sum of all pieces of one cluster, one after another."""
    cluster = tl.program_id(0).to(tl.int64)
    first = tl.load(first_piece + cluster)
    depth = tl.arange(0, WIDTH)
    total = tl.zeros((WIDTH,), dtype=tl.float64)
    for piece in range(0, tl.load(pieces + cluster)):
        part = tl.load(partial + (first + piece) * width + depth, mask=depth < width, other=0.0)
        total += part.to(tl.float64)
    tl.store(sums + cluster * width + depth, total, mask=depth < width)
