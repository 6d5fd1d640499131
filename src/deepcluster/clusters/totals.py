"""What the clusters of an assignment sum to, over all processes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from deepcluster.runtime.world import World

_BLOCK = 2**20  # numbers summed at once


@dataclass(frozen=True)
class Totals:
    """Sizes, means and spread of the clusters."""

    sizes: Tensor  # (k,) int64
    means: Tensor  # (k, d) float64; zero where there are no rows
    spread: Tensor  # (k,) float64, the squared distances of its rows to the centroid
    within: Tensor  # (k,) float64, those to their mean


def add_to_groups(sums: Tensor, groups: Tensor, numbers: Tensor) -> None:
    """Add to the sum of each group, in place, the numbers of its rows, always in the same order.

    Args:
        sums: (count, ...) of the groups.
        groups: (m,) int64, the group of each row.
        numbers: (m, ...) of the rows, of the type of the sums.
    """
    if sums.is_cuda:  # by sorting first, where index_add_ lets rows race
        sums.index_put_((groups,), numbers, accumulate=True)
    else:
        sums.index_add_(0, groups, numbers)


def group_means(rows: Tensor, labels: Tensor, sizes: Tensor, world: World) -> Tensor:
    """(count, d) float64: the mean of each group's rows over all processes; zero without rows."""
    sums = rows.new_zeros((len(sizes), rows.shape[1]), dtype=torch.float64)
    block = max(1, _BLOCK // rows.shape[1])
    for start in range(0, len(rows), block):
        here = slice(start, start + block)
        add_to_groups(sums, labels[here], rows[here].double())
    return world.sum(sums) / sizes[:, None].clamp(min=1)
