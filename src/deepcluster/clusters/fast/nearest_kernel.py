"""The nearest centroid of every row in one kernel: distances are never written out."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

WIDEST = 256
"""Columns that a tile of rows keeps on the chip while all centroids pass by."""


class Tile(NamedTuple):
    """How the work is cut: rows and centroids of a tile, warps, and copies under way."""

    rows: int
    centroids: int
    warps: int
    stages: int


BFLOAT16 = Tile(256, 64, 8, 3)
FLOAT32 = Tile(64, 64, 4, 2)


def nearest_by_kernel(
    rows: Tensor, centroids: Tensor, *, second: bool = False, tile: Tile | None = None
) -> Tensor:
    """The number of the nearest centroid, or of the two nearest, as far as rounding tells.

    Args:
        rows: (n, d) on a GPU, d at most `WIDEST`; its type, bfloat16 or float32, is that of the
            arithmetic (float32 is multiplied as torch is set to: in full, or as TF32).
        centroids: (k, d), of the same type.
        second: Whether the next nearest is asked for too.
        tile: How the work is cut; by default what was fastest on an H200.

    Returns:
        (n, 2 or 1) int32.
    """
    count, width = rows.shape
    if width > WIDEST:
        raise ValueError(f"rows of {width} columns do not fit; {WIDEST} do")
    tile = tile or (BFLOAT16 if rows.dtype == torch.bfloat16 else FLOAT32)
    result = torch.empty(count, 1 + second, dtype=torch.int32, device=rows.device)
    # |x - c|^2 = |x|^2 + 2 (|c|^2 / 2 - x c): what does not depend on c is left out. Filled up to
    # whole tiles with centroids at infinity, so that the loop need not ask where it ends.
    padded = max(16, triton.next_power_of_2(width))
    tiles = triton.cdiv(len(centroids), tile.centroids)
    whole = centroids.new_zeros(tiles * tile.centroids, padded)
    whole[: len(centroids), :width] = centroids
    half_norms = torch.full((len(whole),), torch.inf, device=rows.device)
    half_norms[: len(centroids)] = centroids.float().square().sum(dim=1) / 2
    in_full = torch.get_float32_matmul_precision() == "highest"
    _nearest[(triton.cdiv(count, tile.rows),)](
        rows,
        whole,
        half_norms,
        result,
        count,
        len(whole),
        width,
        ROWS=tile.rows,
        CENTROIDS=tile.centroids,
        WIDTH=padded,
        SECOND=second,
        TIES=rows.dtype == torch.float32,  # in bfloat16 a tie is a matter of rounding
        PRECISION="ieee" if in_full else "tf32",
        num_warps=tile.warps,
        num_stages=tile.stages,
    )
    return result


@triton.jit
def _nearest(
    rows,
    centroids,
    half_norms,
    result,
    count,
    k,
    width,
    ROWS: tl.constexpr,  # noqa: N803 - Triton's custom for what is known when it compiles
    CENTROIDS: tl.constexpr,  # noqa: N803
    WIDTH: tl.constexpr,  # noqa: N803
    SECOND: tl.constexpr,  # noqa: N803
    TIES: tl.constexpr,  # noqa: N803
    PRECISION: tl.constexpr,  # noqa: N803
):
    """The nearest centroids of one tile of rows, which stays while all centroids pass by."""
    here = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    depth = tl.arange(0, WIDTH)
    is_row = here < count
    inside = depth < width
    x = tl.load(
        rows + here.to(tl.int64)[:, None] * width + depth[None, :],
        mask=is_row[:, None] & inside[None, :],
        other=0.0,
    )
    best = tl.full((ROWS,), float("inf"), dtype=tl.float32)
    best_at = tl.zeros((ROWS,), dtype=tl.int32)
    next_best = tl.full((ROWS,), float("inf"), dtype=tl.float32)
    next_at = tl.zeros((ROWS,), dtype=tl.int32)
    for start in range(0, k, CENTROIDS):
        column = start + tl.arange(0, CENTROIDS)
        c = tl.load(centroids + column[None, :] * WIDTH + depth[:, None])
        norm = tl.load(half_norms + column)
        score = norm[None, :] - tl.dot(x, c, input_precision=PRECISION)
        low, at = tl.min(score, axis=1, return_indices=True, return_indices_tie_break_left=TIES)
        better = low < best  # the lower number wins a tie: tiles come in order
        if SECOND:
            others = tl.where(column[None, :] == (start + at)[:, None], float("inf"), score)
            low2, at2 = tl.min(
                others, axis=1, return_indices=True, return_indices_tie_break_left=TIES
            )
            # Next is the old best or the tile's second, if the tile won; else the tile's best.
            from_tile = better & (low2 < best)
            candidate = tl.where(better, tl.where(from_tile, low2, best), low)
            candidate_at = tl.where(better, tl.where(from_tile, start + at2, best_at), start + at)
            next_at = tl.where(candidate < next_best, candidate_at, next_at)
            next_best = tl.minimum(next_best, candidate)
        best_at = tl.where(better, start + at, best_at)
        best = tl.minimum(best, low)
    if SECOND:
        tl.store(result + here * 2, best_at, mask=is_row)
        tl.store(result + here * 2 + 1, next_at, mask=is_row)
    else:
        tl.store(result + here, best_at, mask=is_row)
