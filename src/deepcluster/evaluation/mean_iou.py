"""Mean intersection over union of classes, pixel by pixel; what is not judged does not count."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deepcluster.runtime.world import World


class Confusion:
    """How many pixels of each true class were given to each class (true x given)."""

    def __init__(self, classes: int, ignored: int, device: torch.device) -> None:
        self.classes, self.ignored = classes, ignored
        self._counts = torch.zeros(classes * classes, dtype=torch.int64, device=device)

    def add(self, truth: Tensor, given: Tensor) -> None:
        """Count pixels: two tensors of one shape with class numbers."""
        judged = truth != self.ignored
        pairs = truth[judged].long() * self.classes + given[judged].long()
        self._counts += torch.bincount(pairs, minlength=self.classes**2)

    def over(self, world: World) -> NDArray[np.int64]:
        """The counts of all processes together, classes x classes."""
        counts = world.sum(self._counts).cpu().numpy()
        return counts.reshape(self.classes, self.classes)


@dataclass(frozen=True)
class Overlap:
    """What a confusion of classes comes to; shares from 0 to 1."""

    mean: float
    """Over the classes that are there or were given; the others have no figure."""
    classes: list[float | None]
    pixels: float
    """Share of the judged pixels that were given their class."""

    @staticmethod
    def of(counts: NDArray[np.int64]) -> Overlap:
        """From true x given; at least one pixel was judged."""
        both = counts.diagonal()
        either = counts.sum(axis=0) + counts.sum(axis=1) - both
        there = either > 0
        shares = [
            float(one / of_all) if of_all else None
            for one, of_all in zip(both, either, strict=True)
        ]
        mean = float((both[there] / either[there]).mean())
        return Overlap(mean, shares, float(both.sum() / counts.sum()))
