"""Mean and covariance of rows that stream past."""

from __future__ import annotations

import torch
from torch import Tensor

from deepcluster.runtime.world import World


class Moments:
    """Count, mean and scatter of all rows seen so far, about a running mean.

    Each block is centred about its own mean before it is squared, and the blocks are merged
    (Chan, Golub and LeVeque, 1979): a large mean costs no digits. All in float64: float32 would
    give directions that hold no variance at all a share of the largest one's.
    """

    def __init__(self, width: int, device: torch.device) -> None:
        self.count = 0
        self.mean = torch.zeros(width, dtype=torch.float64, device=device)
        self.scatter = torch.zeros(width, width, dtype=torch.float64, device=device)

    def add(self, block: Tensor) -> None:
        """Take in a block of rows (n x d, float32)."""
        if not len(block):
            return
        rows = block.double()
        mean = rows.mean(dim=0)
        centred = rows - mean
        self._merge(len(block), mean, centred.T @ centred)

    def over(self, world: World) -> Moments:
        """The moments of all processes' rows together."""
        if world.size == 1:
            return self
        total = Moments(len(self.mean), self.mean.device)
        total.count = sum(world.counts(self.count))
        if total.count:
            total.mean = world.sum(self.count * self.mean) / total.count
            apart = self.mean - total.mean
            total.scatter = world.sum(self.scatter + self.count * torch.outer(apart, apart))
        return total

    @property
    def covariance(self) -> Tensor:
        """The covariance (d x d, float64), with the sample's own count as divisor."""
        return self.scatter / max(1, self.count)

    def _merge(self, count: int, mean: Tensor, scatter: Tensor) -> None:
        total = self.count + count
        apart = mean - self.mean
        self.scatter += scatter + torch.outer(apart, apart) * (self.count * count / total)
        self.mean += apart * (count / total)
        self.count = total
