"""What a clustering gives: labels, centroids, and how well each row fits its group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from deepcluster.runtime.world import World

ALONE = World()


@dataclass(frozen=True)
class Clusters:
    """The groups of n rows, the same in every process; all tensors are on the CPU."""

    labels: Tensor
    """(n,) int64: label i is the group of row i, counted over all processes."""
    count: int
    """How many groups there are."""
    sizes: Tensor
    """(count,) int64: the rows in each group."""
    objective: list[float]
    """Mean squared distance of a row to its centroid, after each assignment; the last is final."""
    repaired: int
    """How many times an empty group was given rows of another."""
    centroids: Tensor
    """(count, d) float32: of k-means the centroids, of other methods the means of the groups.

    float64 where rows of float64 were too far from zero to be told apart in float32.
    """
    distances: Tensor
    """(n,) float32: from each row to the centroid of its own group."""
    margins: Tensor
    """(n,) float32: how much farther the nearest other centroid is; inf if there is no other."""
    search: str = "float32 products on cpu"
    """How the nearest were found."""


class Clustering(Protocol):
    """Anything that groups rows; its fields are its settings."""

    def __call__(
        self, rows: Tensor, world: World = ALONE, generator: torch.Generator | None = None
    ) -> Clusters:
        """The groups of the rows of all processes.

        Args:
            rows: (n_local, d), this process's rows. Processes hold consecutive blocks, in the order
                of their ranks, of any sizes.
            world: The processes.
            generator: The only source of randomness, in the same state in every process.
        """
        ...
