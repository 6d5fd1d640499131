"""An epoch's draws in batches: the order is global, every process takes its share of each batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deepcluster.images.crops import RandomView
from deepcluster.images.jitter import JITTER_NUMBERS, NONE, Jitter
from deepcluster.images.loader import Images
from deepcluster.pseudolabels.draw import Draws
from deepcluster.runtime.seeds import uniforms
from deepcluster.runtime.world import World


@dataclass(frozen=True)
class Batch:
    """This process's share of one step's images, with what the network should say of them."""

    step: int
    images: Tensor  # b x 3 x size x size, levels from 0 to 255
    labels: Tensor  # b, int64
    weights: Tensor  # b, float32
    total: int  # images of this step in all processes


def batch_bounds(count: int, batch: int) -> list[tuple[int, int]]:
    """The draws of each step, as [start, stop), whatever the number of processes.

    A remainder of less than a quarter of a batch, which might not give every process the two
    images that batch norm wants, goes with the step before.
    """
    starts = list(range(0, count, batch))
    if len(starts) > 1 and count - starts[-1] < max(2, batch / 4):
        starts.pop()
    return list(zip(starts, [*starts[1:], count], strict=True))


def training_batches(
    images: Images,
    labels: NDArray[np.int64],
    draws: Draws,
    *,
    batch: int,
    seed: int,
    epoch: int,
    world: World,
    workers: int,
    start: int = 0,
    jitter: Jitter = NONE,
    view: RandomView | None = None,
) -> Iterator[Batch]:
    """The batches of one epoch from step `start` on; a repeated image gets another crop."""
    bounds = batch_bounds(len(draws), batch)[start:]
    mine = [_share(first, last, world) for first, last in bounds]
    crops = images.drawn(mine, draws.images, seed=seed, epoch=epoch, workers=workers, view=view)
    for number, ((first, last), (pixels, numbers)) in enumerate(zip(bounds, crops, strict=True)):
        if jitter.changes:
            random = uniforms(seed, "jitter", epoch, numbers, JITTER_NUMBERS)
            pixels = jitter(pixels.to(world.device, non_blocking=True), torch.from_numpy(random))
        yield Batch(
            start + number,
            pixels,
            torch.from_numpy(labels[draws.images[numbers]]),
            torch.from_numpy(draws.weights[numbers]),
            last - first,
        )


def _share(first: int, last: int, world: World) -> NDArray[np.int64]:
    share = world.share(last - first)
    return np.arange(first + share.start, first + share.stop, dtype=np.int64)
