"""The totals of k-means by kernels on a GPU, in bfloat16."""

from __future__ import annotations

import torch
from torch import Tensor

from deepcluster.clusters.fast.nearest_kernel import WIDEST, nearest_by_kernel
from deepcluster.clusters.fast.sums_kernel import sums_by_kernel
from deepcluster.clusters.totals import Totals
from deepcluster.runtime.world import World

__all__ = ["WIDEST", "TotalsByKernel"]


class TotalsByKernel:
    """`Totals.at` for the same rows again and again, with rounded products.

    The rows are searched in bfloat16, about their mean, where the digits tell most; what is summed
    and measured of the clusters found is float32 within a piece and float64 from there on.
    """

    def __init__(self, rows: Tensor, world: World) -> None:
        self._rows, self._world = rows, world
        total = sum(world.counts(len(rows)))
        self._mean = (world.sum(rows.sum(dim=0, dtype=torch.float64)) / total).float()
        self._rounded = (rows - self._mean).bfloat16()
        self._squares = rows.square().sum(dim=1, dtype=torch.float64)

    def at(self, centroids: Tensor) -> Totals:
        """The totals of the clusters of the rows nearest to each centroid, as far as rounded."""
        k = len(centroids)
        rounded = (centroids - self._mean).bfloat16()
        labels = nearest_by_kernel(self._rounded, rounded)[:, 0]
        sums, sizes = sums_by_kernel(self._rows, labels, k)
        squares = self._squares.new_zeros(k).index_add_(0, labels, self._squares)
        sums, squares = self._world.sum(sums), self._world.sum(squares)
        sizes = self._world.sum(sizes)
        # The squared distances, from the sums: |x|^2 - 2 x c + |c|^2.
        exact = centroids.double()
        spread = squares - 2 * (sums * exact).sum(dim=1) + sizes * exact.square().sum(dim=1)
        return Totals(sizes, sums / sizes[:, None].clamp(min=1), spread.clamp(min=0))
