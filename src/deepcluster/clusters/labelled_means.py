"""Centroids for k-means to start from, where rows were labelled before."""

from __future__ import annotations

import torch
from torch import Tensor

from deepcluster.clusters.totals import group_means
from deepcluster.runtime.world import World


def means_of_labelled(
    rows: Tensor, labels: Tensor, k: int, world: World, generator: torch.Generator
) -> Tensor:
    """(k, d) float32: the mean of the rows with each label; a random row where a label has none.

    Args:
        rows: (n_local, d), this process's rows.
        labels: (n_local,) int64: theirs, from -1 (unknown) to k - 1.
        k: How many labels there are.
        world: The processes.
        generator: In the same state in every process.
    """
    labels = labels.to(rows.device)
    known = labels >= 0
    sizes = world.sum(torch.bincount(labels[known], minlength=k))
    means = group_means(rows[known], labels[known], sizes, world).float()
    empty = (sizes == 0).nonzero()[:, 0]
    if len(empty):
        total = sum(world.counts(len(rows)))
        chosen = torch.randint(total, (len(empty),), generator=generator)
        means[empty] = world.rows_at(rows, chosen).float()
    return means
