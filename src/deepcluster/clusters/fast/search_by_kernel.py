"""The search for the nearest centroid by kernels on a GPU, in one of three kinds of arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from deepcluster.clusters.fast.nearest_kernel import (
    MOST_TO_CHOOSE_FROM,
    WIDEST,
    nearest_rounded,
    two_nearest,
)
from deepcluster.clusters.fast.sums_kernel import sums_by_kernel
from deepcluster.clusters.neighbours import Neighbours, Prepared, measured
from deepcluster.clusters.rows import Rows
from deepcluster.clusters.search import Accounts
from deepcluster.clusters.totals import Totals
from deepcluster.runtime.world import World

_MEASURED = 4  # centroids near a row by rounded arithmetic, which are then measured exactly
_NUMBERS = 2**27  # of candidates measured at once
# Of a row's squared length: a smaller squared distance is too small a difference of rounded
# numbers to be told to a thousandth. A row with a centroid that near is searched exactly.
_TIGHT = 0.2
_SMALLEST, _LARGEST = 1e-10, 1e14  # numbers, the largest of the rows, whose squares can be told


class SearchByKernel:
    """Rows are searched about their mean, where the digits tell most.

    In float32 the answer is the exact one: where rounding could have misled the kernel, the row is
    measured. In bfloat16 and TF32 it is, for rows of unit length that are not much nearer than 0.3
    to a centroid, nearest to within a thousandth; the final labels are the nearest of the best few,
    measured exactly, and those of rows that are nearer are found in float32.
    """

    def __init__(
        self, rows: Rows, world: World, precision: Literal["float32", "tf32", "bfloat16"]
    ) -> None:
        if precision == "bfloat16" and rows.width > WIDEST:
            raise ValueError(f"{rows.width} columns, and the kernel takes {WIDEST}")
        self.path = f"{precision} kernels on {rows.device.type}"
        self._rows, self._precision = rows, precision
        self._accounts = Accounts(rows, world)
        largest = self._accounts.largest
        if largest and not _SMALLEST < largest < _LARGEST:
            raise ValueError(f"the largest number is {largest:.0e}, and squares are of float32")
        self._labels = torch.empty(len(rows), dtype=torch.int32, device=rows.device)
        self._block = len(rows) if rows.resident else self._accounts.block
        self._about = self._moved(rows.source) if rows.resident else None
        try:
            self._try(rows.at(torch.arange(min(16, len(rows)))))
        except Exception as error:  # no compiler, too small a chip, ...: many kinds, one meaning
            raise ValueError(f"{type(error).__name__}: {error}") from error

    def _try(self, few: Tensor) -> None:
        """Launch each kernel once, so that what cannot work is known before it is relied upon."""
        if not len(few):
            return
        if self._precision == "bfloat16":
            nearest_rounded(self._moved(few), self._moved(few))
        else:
            two_nearest(self._moved(few), self._moved(few), self._exactly)
        labels = torch.zeros(len(few), dtype=torch.int32, device=few.device)
        sums_by_kernel(few, labels, 1, self._accounts.mean)
        torch.cuda.synchronize(few.device)

    def totals(self, centroids: Tensor) -> Totals:
        """The totals of the clusters of the rows nearest to each centroid, as far as rounded."""
        k, mean = len(centroids), self._accounts.mean
        find = self._finding(centroids)
        sums: tuple[Tensor, Tensor, Tensor] | None = None
        for place, block in self._rows.blocks(max(1, self._block)):
            labels = find(place, block)
            more = sums_by_kernel(block, labels, k, mean)
            if sums is not None:
                more = sums[0] + more[0], sums[1] + more[1], sums[2] + more[2]
            sums = more
            self._labels[place] = labels
        if sums is None:  # this process has no rows
            nothing = torch.zeros(centroids.shape, dtype=torch.float64, device=centroids.device)
            sums = nothing, nothing[:, 0], nothing[:, 0].long()
        return self._accounts.closed(*sums, centroids, self._labels)

    def two_nearest(self, centroids: Tensor) -> Neighbours:
        """The two nearest centroids of each row, of those that the kernel proposes."""
        k = len(centroids)
        count = min(2, k)
        index = torch.empty((len(self._rows), count), dtype=torch.int64, device=centroids.device)
        distance = torch.empty(index.shape, dtype=torch.float64, device=centroids.device)
        rounded = self._precision == "bfloat16" and k <= MOST_TO_CHOOSE_FROM
        about = self._moved(centroids) if rounded else centroids - self._accounts.mean
        for place, block in self._rows.blocks(max(1, self._block)):
            watch = None
            if rounded:
                moved = self._ready(place, block)
                near = nearest_rounded(moved, about, count=min(_MEASURED, k))
            else:
                kept = self._precision != "bfloat16"
                moved = self._ready(place, block) if kept else block - self._accounts.mean
                near, scores = two_nearest(moved, about, self._exactly)
                near = near[:, :count]
                if self._precision == "float32":
                    watch = _in_doubt(moved, scores[:, count - 1], scores[:, count])
            step = max(1, _NUMBERS // (block.shape[1] * near.shape[1]))
            for start in range(0, len(block), step):
                part = slice(start, start + step)
                # Each difference to the last digit of float32, at a third of the traffic.
                found = measured(
                    block[part], centroids, near[part].long(), count, difference=torch.float32
                )
                here = slice(place.start + start, place.start + min(start + step, len(block)))
                index[here], distance[here] = found
            if watch is None:
                length = torch.linalg.vector_norm(moved, dim=1, dtype=torch.float32)
                watch = distance[place, 0] < _TIGHT * length.square()
            watch = watch | ~(distance[place, -1] < 1e30)  # centroids far away, squares overflow
            for doubtful in watch.nonzero()[:, 0].split(step):
                exact = Prepared.of(centroids).nearest(block[doubtful], count)
                index[doubtful + place.start] = exact.index
                distance[doubtful + place.start] = exact.distance
        return Neighbours(index, distance)

    @property
    def _exactly(self) -> Literal["float32", "tf32"]:
        """How the precise kernel multiplies; for bfloat16 it stands in where k is very large."""
        return "float32" if self._precision == "float32" else "tf32"

    def _finding(self, centroids: Tensor) -> Callable[[slice, Tensor], Tensor]:
        """The function that gives a block's labels, (n,) int32."""
        if self._precision == "bfloat16":
            rounded = self._moved(centroids)
            return lambda place, block: nearest_rounded(self._ready(place, block), rounded)[:, 0]
        about = centroids - self._accounts.mean
        prepared = Prepared.of(centroids) if self._precision == "float32" else None

        def find(place: slice, block: Tensor) -> Tensor:
            moved = self._ready(place, block)
            near, scores = two_nearest(moved, about, self._exactly)
            labels = near[:, 0]
            if prepared is not None:
                doubtful = _in_doubt(moved, scores[:, 0], scores[:, 1]).nonzero()[:, 0]
                if len(doubtful):
                    labels[doubtful] = prepared.nearest(block[doubtful], 1).index[:, 0].int()
            return labels.contiguous()

        return find

    def _ready(self, place: slice, block: Tensor) -> Tensor:
        return self._about[place] if self._about is not None else self._moved(block)

    def _moved(self, rows: Tensor) -> Tensor:
        """Rows less their mean, as the kernel wants them."""
        about = rows - self._accounts.mean
        return about.bfloat16() if self._precision == "bfloat16" else about


def _in_doubt(rows: Tensor, last: Tensor, watch: Tensor) -> Tensor:
    """(n,) whether rounding could have put a score above `watch` that belongs below `last`.

    As in the plain search: scores are half of those there, and three products of TF32 stand for one
    of float32, so the tolerance is the same. What underflows or overflows is in doubt.
    """
    norm = rows.square().sum(dim=1)
    reach = (norm.sqrt() + (norm + 2 * last).clamp(min=0).sqrt()).square()
    tolerance = 2.0**-20 * (rows.shape[1] ** 0.5 + 1) * reach + 1e-30
    return ~((watch - last > tolerance) & (reach < 1e30))
