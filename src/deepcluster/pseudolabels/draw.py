"""Which images an epoch trains on, and how much each counts.

If most images share a few clusters, the network learns to tell those few apart and nothing else.
So every cluster is drawn equally often (paper, section 3.3, "Trivial parametrization").
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from deepcluster.runtime.errors import UsageError


@dataclass(frozen=True)
class Draws:
    """An epoch's training set: draw d is an image, and counts `weights[d]` in the loss."""

    images: NDArray[np.int64]
    weights: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.images)


@dataclass(frozen=True)
class Draw:
    """How images are drawn from their clusters."""

    kind: Literal["uniform", "natural", "weighted"] = "uniform"
    """uniform: every cluster equally often (the paper). natural: every image equally often.
    weighted: natural, with the loss weighted by the inverse cluster size."""

    reassign: float = 1.0
    """Draws between two clusterings, as a multiple of the number of images."""

    def __call__(self, labels: NDArray[np.int64], generator: torch.Generator) -> Draws:
        """The draws of one epoch; images labelled -1 are never drawn."""
        if not 0 < self.reassign < math.inf:
            raise UsageError(f"--draw.reassign is {self.reassign:g}; it must be above 0")
        labels = np.asarray(labels)
        usable = np.flatnonzero(labels >= 0)
        _, groups, sizes = np.unique(labels[usable], return_inverse=True, return_counts=True)
        count = max(2, round(self.reassign * len(usable)))
        randomness = np.random.default_rng(_seed_from(generator))
        if self.kind == "uniform":
            images = usable[_evenly(groups, sizes, count, randomness)]
            weights = np.ones(count)
        else:
            everyone = np.zeros(len(usable), dtype=np.int64)
            chosen = _evenly(everyone, np.array([len(usable)]), count, randomness)
            images = usable[chosen]
            weights = np.ones(count)
            if self.kind == "weighted":
                # Summed over all images: each cluster weighs N / k, so the mean weight is 1.
                weights = len(usable) / (len(sizes) * sizes[groups[chosen]])
        return Draws(images, weights.astype(np.float32))


def _evenly(
    groups: NDArray[np.int64],
    sizes: NDArray[np.int64],
    count: int,
    randomness: np.random.Generator,
) -> NDArray[np.int64]:
    """`count` members, every group equally often; in a group all come before one repeats."""
    k = len(sizes)
    quotas = np.full(k, count // k)
    quotas[randomness.permutation(k)[: count % k]] += 1
    order = randomness.permutation(np.repeat(np.arange(k), quotas))

    # Each group's stream: as many passes over its members as its quota needs, every pass in an
    # order of its own. One sort lays all streams out, group after group, pass after pass.
    passes = -(-quotas // sizes)
    by_group = np.argsort(groups, kind="stable")
    repeats = passes[groups[by_group]]
    members = np.repeat(by_group, repeats)
    first = np.cumsum(repeats) - repeats
    turn = np.arange(len(members)) - np.repeat(first, repeats)
    stream = members[np.lexsort((randomness.random(len(members)), turn, groups[members]))]

    # The j-th slot of a group, in the order of time, takes the j-th member of its stream.
    slots = np.argsort(order, kind="stable")
    start = np.cumsum(passes * sizes) - passes * sizes
    place = np.arange(count) - np.repeat(np.cumsum(quotas) - quotas, quotas)
    drawn = np.empty(count, dtype=np.int64)
    drawn[slots] = stream[np.repeat(start, quotas) + place]
    return drawn


def _seed_from(generator: torch.Generator) -> int:
    return int(torch.randint(2**62, (1,), generator=generator))
