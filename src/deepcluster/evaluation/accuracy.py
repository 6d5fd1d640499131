"""How many images are given their class, at the first guess and among the first five."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from deepcluster.runtime.world import World

FIVE = 5


@dataclass(frozen=True)
class Accuracy:
    """Shares of the images, from 0 to 1, by layer and candidate."""

    top1: list[list[float]]
    top5: list[list[float]]
    finite: list[list[bool]]
    """Whether all scores were finite; the guesses of others mean nothing."""


class Counted:
    """Right guesses so far; they stay on the device until they are asked for."""

    def __init__(self, layers: int, candidates: int, device: torch.device) -> None:
        self._right = torch.zeros(2, layers, candidates, dtype=torch.int64, device=device)
        self._strange = torch.zeros(layers, candidates, dtype=torch.int64, device=device)
        self._images = 0

    def add(self, scores: Tensor, classes: Tensor) -> None:
        """Count the guesses of layers x B x candidates x classes scores; -inf is no guess."""
        best = scores.topk(min(FIVE, scores.shape[3]), dim=3)
        right = (best.indices == classes[:, None, None]) & (best.values > -torch.inf)
        self._right[0] += right[..., 0].sum(dim=1)
        self._right[1] += right.any(dim=3).sum(dim=1)
        self._strange += (~scores.isfinite()).sum(dim=(1, 3))
        self._images += len(classes)

    def over(self, world: World) -> Accuracy:
        """The shares among the images of all processes."""
        images = sum(world.counts(self._images))
        top1, top5 = (world.sum(self._right).double() / images).tolist()
        return Accuracy(top1, top5, (world.sum(self._strange) == 0).tolist())


def best(values: Iterable[float]) -> int:
    """The place of the highest; of equals the first."""
    found = list(values)
    return found.index(max(found))
