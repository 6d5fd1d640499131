"""How good an order of images is, when some of them count and others are not there at all."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Ranking:
    """Where the images that count stand, from 0, among those that are not ignored."""

    ranks: NDArray[np.int64]

    @staticmethod
    def of(
        order: NDArray[np.int64], positive: AbstractSet[int], ignored: AbstractSet[int]
    ) -> Ranking:
        """Of all images, the best first."""
        judged = order[~np.isin(order, list(ignored))]
        ranks = np.flatnonzero(np.isin(judged, list(positive)))
        if len(ranks) != len(positive):
            raise ValueError("every image that counts must be in the order, and not be ignored")
        return Ranking(ranks)

    @property
    def average_precision(self) -> float:
        """The area under precision over recall, by trapezoids, as Oxford's compute_ap has it.

        Each image found raises the recall by one step; the precision over that step is the mean
        of those just before and just after it (1 before the first image of the order).
        """
        found = np.arange(len(self.ranks))
        before = np.where(self.ranks > 0, found / np.maximum(self.ranks, 1), 1.0)
        after = (found + 1) / (self.ranks + 1)
        return float(((before + after) / 2).mean())

    def precision_at(self, count: int) -> float:
        """The share that counts among the first `count` (Radenovic and others, 2018).

        Where the last image that counts is found earlier, only the images up to it are judged.
        """
        judged = min(count, int(self.ranks.max()) + 1)
        return float((self.ranks < judged).sum() / judged)
