"""The sum of each cluster's rows, without contention: rows are put in order of their cluster."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_ROWS = 32  # read at once
_PIECE = 512  # rows that one program sums in float32 before they join the others in float64


def sums_by_kernel(
    rows: Tensor, labels: Tensor, k: int, mean: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Of each cluster's rows less `mean`: the sum, the squared lengths, and how many they are.

    (k, d) float64, (k,) float64 and (k,) int64. Every piece of at most `_PIECE` rows of one
    cluster is summed by one program in one order, so the same rows and labels give the same bits.
    """
    count, width = rows.shape
    ordered, order = torch.sort(labels, stable=True)
    ends = torch.searchsorted(ordered, torch.arange(k, device=rows.device), right=True)
    starts = torch.cat([ends.new_zeros(1), ends[:-1]])
    sizes = ends - starts
    pieces = (sizes + _PIECE - 1) // _PIECE
    first_piece = torch.cumsum(pieces, 0) - pieces
    total = count // _PIECE + k  # at least as many as there are, known without waiting
    number = torch.arange(total, device=rows.device)
    owner = torch.searchsorted(first_piece + pieces, number, right=True)  # k: nobody's
    padded = max(16, triton.next_power_of_2(width))
    partial = torch.empty(total, width, dtype=torch.float32, device=rows.device)
    partial_squares = torch.empty(total, dtype=torch.float32, device=rows.device)
    _sums[(total,)](
        rows,
        mean,
        order,
        owner,
        starts,
        sizes,
        first_piece,
        partial,
        partial_squares,
        k,
        width,
        ROWS=_ROWS,
        PIECE=_PIECE,
        WIDTH=padded,
    )
    sums = torch.empty(k, width, dtype=torch.float64, device=rows.device)
    squares = torch.empty(k, dtype=torch.float64, device=rows.device)
    _joined[(k,)](partial, partial_squares, first_piece, pieces, sums, squares, width, WIDTH=padded)
    return sums, squares, sizes


@triton.jit
def _sums(
    rows,
    mean,
    order,
    owner,
    starts,
    sizes,
    first_piece,
    partial,
    partial_squares,
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
        inside = depth < width
        middle = tl.load(mean + depth, mask=inside, other=0.0)
        total = tl.zeros((WIDTH,), dtype=tl.float32)
        squares = tl.zeros((WIDTH,), dtype=tl.float32)
        for first in range(start, stop, ROWS):
            place = first + tl.arange(0, ROWS)
            is_row = place < stop
            which = tl.load(order + base + place, mask=is_row, other=0)
            x = tl.load(
                rows + which[:, None] * width + depth[None, :],
                mask=is_row[:, None] & inside[None, :],
                other=0.0,
            )
            about = tl.where(is_row[:, None], x.to(tl.float32) - middle[None, :], 0.0)
            total += tl.sum(about, axis=0)
            squares += tl.sum(about * about, axis=0)
        tl.store(partial + piece.to(tl.int64) * width + depth, total, mask=inside)
        tl.store(partial_squares + piece, tl.sum(squares, axis=0))


@triton.jit
def _joined(
    partial,
    partial_squares,
    first_piece,
    pieces,
    sums,
    squares,
    width,
    WIDTH: tl.constexpr,  # noqa: N803
):
    """The sum of all pieces of one cluster, one after another."""
    cluster = tl.program_id(0).to(tl.int64)
    first = tl.load(first_piece + cluster)
    depth = tl.arange(0, WIDTH)
    total = tl.zeros((WIDTH,), dtype=tl.float64)
    square = tl.zeros((), dtype=tl.float64)
    for piece in range(0, tl.load(pieces + cluster)):
        part = tl.load(partial + (first + piece) * width + depth, mask=depth < width, other=0.0)
        total += part.to(tl.float64)
        square += tl.load(partial_squares + first + piece).to(tl.float64)
    tl.store(sums + cluster * width + depth, total, mask=depth < width)
    tl.store(squares + cluster, square)
