"""The nearest centroids of every row in one kernel: distances are never written out.

Two kernels. The first gives one answer in rounded arithmetic and leaves the matrix units the least
to wait for. The second keeps the digits of float32, or of TF32, and knows the three lowest scores,
so that one can tell where rounding could have misled it.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

WIDEST = 256
"""Columns that a tile of rounded rows keeps on the chip while all centroids pass by."""

FAR = tl.constexpr(1e38)
"""The score of a centroid that is not there. Not infinity: the last bits are used for a number."""


class Tile(NamedTuple):
    """How the work is cut: rows and centroids of a tile, warps, and copies under way."""

    rows: int
    centroids: int
    warps: int
    stages: int


ROUNDED = Tile(256, 64, 8, 3)
PRECISE = Tile(128, 128, 8, 3)
_DEPTH = 32  # columns at once where rows are not kept on the chip
_TILES = 256  # whose numbers fit in the bits that a rounded score can spare

MOST_TO_CHOOSE_FROM = _TILES * ROUNDED.centroids
"""Centroids of which `nearest_rounded` can give more than the nearest."""


def nearest_rounded(
    rows: Tensor, centroids: Tensor, *, count: int = 1, tile: Tile = ROUNDED
) -> Tensor:
    """Centroids among which, rounding aside, the nearest is.

    Args:
        rows: (n, d) on a GPU, d at most `WIDEST`; bfloat16 is what this is made for.
        centroids: (k, d), of the same type.
        count: How many to give, at most k, the best first; more than one can be measured exactly
            afterwards, and needs k to be at most `MOST_TO_CHOOSE_FROM`.
        tile: How the work is cut; by default what was fastest on an H200.

    Returns:
        (n, count) int32.
    """
    (n, width), k = rows.shape, len(centroids)
    if width > WIDEST:
        raise ValueError(f"rows of {width} columns do not fit; {WIDEST} do")
    if count > 1 and not count <= k <= _TILES * tile.centroids:
        raise ValueError(f"{count} of {k} centroids cannot be chosen in one turn")
    result = torch.empty(n, count, dtype=torch.int32, device=rows.device)
    padded = max(16, triton.next_power_of_2(width))
    whole, half_norms = _filled_up(centroids, tile.centroids, padded)
    _rounded[(triton.cdiv(n, tile.rows),)](
        rows,
        whole,
        half_norms,
        result,
        n,
        len(whole) // tile.centroids,
        width,
        k,
        ROWS=tile.rows,
        CENTROIDS=tile.centroids,
        WIDTH=padded,
        COUNT=count,
        TILES=_TILES,
        num_warps=tile.warps,
        num_stages=tile.stages,
    )
    return result


def two_nearest(
    rows: Tensor,
    centroids: Tensor,
    precision: Literal["float32", "tf32"] = "float32",
    *,
    tile: Tile = PRECISE,
) -> tuple[Tensor, Tensor]:
    """The two nearest centroids, and the three lowest scores |c|^2 / 2 - x c.

    Args:
        rows: (n, d) float32 on a GPU.
        centroids: (k, d) float32.
        precision: Whether products keep the digits of float32 (as three of TF32), or of TF32.
        tile: How the work is cut.

    Returns:
        (n, 2) int32 and (n, 3) float32; where there are fewer centroids, scores of 1e38.
    """
    n, width = rows.shape
    index = torch.empty(n, 2, dtype=torch.int32, device=rows.device)
    scores = torch.empty(n, 3, dtype=torch.float32, device=rows.device)
    padded = triton.cdiv(width, _DEPTH) * _DEPTH
    if precision == "tf32":  # as the product will see them, so that the norms are theirs
        bits = (centroids.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF
        centroids = bits.view(torch.float32)
    whole, half_norms = _filled_up(centroids, tile.centroids, padded)
    _precise[(triton.cdiv(n, tile.rows),)](
        rows,
        whole,
        half_norms,
        index,
        scores,
        n,
        len(whole) // tile.centroids,
        width,
        ROWS=tile.rows,
        CENTROIDS=tile.centroids,
        WIDTH=padded,
        DEPTH=_DEPTH,
        PRECISION="tf32" if precision == "tf32" else "tf32x3",
        num_warps=tile.warps,
        num_stages=tile.stages,
    )
    return index, scores


def _filled_up(centroids: Tensor, tile: int, width: int) -> tuple[Tensor, Tensor]:
    """Whole tiles of centroids and half their squared norms; what is filled in is far away.

    |x - c|^2 = |x|^2 + 2 (|c|^2 / 2 - x c): what does not depend on c is left out.
    """
    k = len(centroids)
    whole = centroids.new_zeros(triton.cdiv(k, tile) * tile, width)
    whole[:k, : centroids.shape[1]] = centroids
    half_norms = torch.full((len(whole),), FAR.value, device=centroids.device)
    half_norms[:k] = centroids.float().square().sum(dim=1) / 2
    return whole, half_norms


@triton.jit
def _rounded(
    rows,
    centroids,
    half_norms,
    result,
    count,
    tiles,
    width,
    k,
    ROWS: tl.constexpr,  # noqa: N803 - Triton's custom for what is known when it compiles
    CENTROIDS: tl.constexpr,  # noqa: N803
    WIDTH: tl.constexpr,  # noqa: N803
    COUNT: tl.constexpr,  # noqa: N803
    TILES: tl.constexpr,  # noqa: N803
):
    """The nearest centroids of one tile of rows, which stays while all centroids pass by.

    For every column of the tile of scores the lowest so far is kept, with the number of its tile in
    the last bits: three instructions a score, and nothing crosses between threads before the end.
    Where more than the nearest is asked for, the second lowest of every column is kept too.
    """
    here = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    depth = tl.arange(0, WIDTH)
    column = tl.arange(0, CENTROIDS)
    is_row = here < count
    x = tl.load(
        rows + here[:, None] * width + depth[None, :],
        mask=is_row[:, None] & (depth < width)[None, :],
        other=0.0,
    )
    low_of_all = tl.full((ROWS,), FAR, dtype=tl.float32)
    at_of_all = tl.zeros((ROWS,), dtype=tl.int32)
    for first in range(0, tiles, TILES):
        best = tl.full((ROWS, CENTROIDS), FAR, dtype=tl.float32)
        second = best
        for t in range(first, tl.minimum(first + TILES, tiles)):
            which = (t * CENTROIDS + column).to(tl.int64)
            c = tl.load(centroids + which[None, :] * WIDTH + depth[:, None])
            norm = tl.load(half_norms + t * CENTROIDS + column)
            score = norm[None, :] - tl.dot(x, c)
            numbered = (score.to(tl.int32, bitcast=True) & -TILES) | (t - first)
            score = numbered.to(tl.float32, bitcast=True)
            if COUNT > 1:
                second = tl.minimum(second, tl.maximum(best, score))
            best = tl.minimum(best, score)
        if COUNT == 1:
            low, at = tl.min(best, axis=1, return_indices=True)
            tile = first + (low.to(tl.int32, bitcast=True) & (TILES - 1))
            better = low < low_of_all
            at_of_all = tl.where(better, tile * CENTROIDS + at, at_of_all)
            low_of_all = tl.minimum(low, low_of_all)
        else:
            for turn in tl.static_range(COUNT):
                low, at = tl.min(best, axis=1, return_indices=True)
                tile = first + (low.to(tl.int32, bitcast=True) & (TILES - 1))
                number = tl.minimum(tile * CENTROIDS + at, k - 1)
                tl.store(result + here * COUNT + turn, number, mask=is_row)
                taken = column[None, :] == at[:, None]
                best = tl.where(taken, second, best)
                second = tl.where(taken, FAR, second)
    if COUNT == 1:
        tl.store(result + here, tl.minimum(at_of_all, k - 1), mask=is_row)


@triton.jit
def _precise(
    rows,
    centroids,
    half_norms,
    index,
    scores,
    count,
    tiles,
    width,
    ROWS: tl.constexpr,  # noqa: N803
    CENTROIDS: tl.constexpr,  # noqa: N803
    WIDTH: tl.constexpr,  # noqa: N803
    DEPTH: tl.constexpr,  # noqa: N803
    PRECISION: tl.constexpr,  # noqa: N803
):
    """The two nearest centroids of one tile of rows, and the three lowest scores."""
    here = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, CENTROIDS)
    is_row = here < count
    low1 = tl.full((ROWS,), FAR, dtype=tl.float32)
    low2 = tl.full((ROWS,), FAR, dtype=tl.float32)
    low3 = tl.full((ROWS,), FAR, dtype=tl.float32)
    at1 = tl.zeros((ROWS,), dtype=tl.int32)
    at2 = tl.zeros((ROWS,), dtype=tl.int32)
    for t in range(0, tiles):
        products = tl.zeros((ROWS, CENTROIDS), dtype=tl.float32)
        for start in range(0, WIDTH, DEPTH):
            depth = start + tl.arange(0, DEPTH)
            x = tl.load(
                rows + here[:, None] * width + depth[None, :],
                mask=is_row[:, None] & (depth < width)[None, :],
                other=0.0,
            )
            which = (t * CENTROIDS + column).to(tl.int64)
            c = tl.load(centroids + which[None, :] * WIDTH + depth[:, None])
            products = tl.dot(x, c, products, input_precision=PRECISION)
        score = tl.load(half_norms + t * CENTROIDS + column)[None, :] - products
        for _ in tl.static_range(3):
            low, place = tl.min(
                score, axis=1, return_indices=True, return_indices_tie_break_left=True
            )
            score = tl.where(column[None, :] == place[:, None], FAR, score)
            at = t * CENTROIDS + place
            is_first = low < low1
            is_second = low < low2
            low3 = tl.where(is_second, low2, tl.minimum(low3, low))
            at2 = tl.where(is_first, at1, tl.where(is_second, at, at2))
            low2 = tl.where(is_first, low1, tl.where(is_second, low, low2))
            at1 = tl.where(is_first, at, at1)
            low1 = tl.where(is_first, low, low1)
    tl.store(index + here * 2, at1, mask=is_row)
    tl.store(index + here * 2 + 1, at2, mask=is_row)
    tl.store(scores + here * 3, low1, mask=is_row)
    tl.store(scores + here * 3 + 1, low2, mask=is_row)
    tl.store(scores + here * 3 + 2, low3, mask=is_row)
