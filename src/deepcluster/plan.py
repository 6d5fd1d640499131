"""What a run would need on this machine: memory, disk and time, the time measured on a sample."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count

import torch

from deepcluster.beginning import new_network
from deepcluster.clusters import KMeans
from deepcluster.clusters.neighbours import nearest
from deepcluster.images.crops import normalize
from deepcluster.images.index import Index
from deepcluster.intake import colour_for
from deepcluster.networks import Network, fresh_head, looked_at
from deepcluster.pseudolabels.batches import Batch
from deepcluster.runtime.seeds import generator
from deepcluster.runtime.world import World
from deepcluster.settings import Run
from deepcluster.training.epoch import EpochProgress, train_epoch
from deepcluster.training.step import recorder_for

SECONDS = 2.0
"""How long each phase is measured."""


@dataclass(frozen=True)
class Needs:
    """Bytes."""

    features: int
    """Not whitened yet, float16, while an epoch looks; on a GPU, or in a file."""
    whitened: int
    """What is clustered."""
    checkpoints: int
    store: int
    """The decoded images; 0 where they are not kept."""

    @property
    def disk(self) -> int:
        """In the run folder at the same time."""
        return self.features + self.whitened + self.checkpoints + self.store


@dataclass(frozen=True)
class Rates:
    """Images a second."""

    look: float
    group: float
    learn: float


def needs(run: Run, index: Index) -> Needs:
    """The memory and disk of a run on these images."""
    network, side = new_network(run).eval(), run.network.input_size
    weights = sum(parameter.numel() for parameter in network.trunk.parameters())
    images = len(index)
    with torch.inference_mode():
        feature = looked_at(network, run.network.clustered)(torch.zeros(1, 3, side, side))
    return Needs(
        features=2 * images * feature.shape[1],
        whitened=4 * images * run.whitening.dimensions,
        checkpoints=8 * weights * (run.speed.checkpoints + 1),  # weights and momentum, one spare
        store=_pixels(run, index) if run.pixels.keep == "store" else 0,
    )


def rates(run: Run, images: int, world: World) -> Rates:
    """How fast this machine carries out each phase of the loop, on made-up images."""
    network = new_network(run).to(world.device)
    if run.speed.channels_last:
        network = network.to(memory_format=torch.channels_last)
    look = _timed(lambda: _look(network, run, images, world), world)
    group = _timed(lambda: _group(run, images, world), world)
    return Rates(look, group, learn=_learning(network, run, images, world))


def _pixels(run: Run, index: Index) -> int:
    """Bytes of the images brought to the store's short side; a smaller one is not enlarged."""
    width, height = (index.usable[side].to_numpy().astype(float) for side in ("width", "height"))
    short = height.clip(max=width)
    scale = (run.pixels.short_side / short).clip(max=1)
    area = short**2 if run.pixels.shape == "square" else width * height
    return int((area * scale**2).sum()) * _channels(run)


def _channels(run: Run) -> int:
    return 1 if colour_for(run) == "grey" else 3


def _look(network: Network, run: Run, images: int, world: World) -> int:
    batch = _batch(run, min(run.speed.look_batch, images), world)
    network.eval()
    with (
        torch.inference_mode(),
        torch.autocast(world.device.type, run.autocast, enabled=run.autocast is not None),
    ):
        looked_at(network, run.network.clustered, run.network.views)(normalize(batch.images))
    return batch.total


def _group(run: Run, images: int, world: World) -> int:
    """A part of the rows meets all centroids, as often as k-means iterates."""
    assert isinstance(run.clustering, KMeans)
    rows = torch.randn(min(images, 4096), run.whitening.dimensions, device=world.device)
    nearest(rows, rows[torch.arange(run.clustering.k) % len(rows)], 1)
    return max(1, len(rows) // run.clustering.iterations)


def _learning(network: Network, run: Run, images: int, world: World) -> float:
    count = run.clustering.k if isinstance(run.clustering, KMeans) else 2
    network.head = fresh_head(network.width, count, generator(0, "head", 0)).to(world.device)
    optimizers = run.training.for_trunk(network), run.training.for_head(network)
    recorder = recorder_for(network, world) if run.speed.record_steps else None

    def learn(batches: Iterator[Batch]) -> EpochProgress:
        return train_epoch(
            network,
            batches,
            optimizers,
            world,
            progress=EpochProgress(),
            dropout_stream=(0, 0),
            autocast=run.autocast,
            recorder=recorder,
        )

    drawn = max(1, round(images * run.draw.reassign))  # few images are drawn many times
    batch = _batch(run, min(run.training.batch, drawn), world)
    learn(iter([batch]))  # the first step of all prepares what the others use
    begun = time.monotonic()
    done = learn(_for_a_while(batch))
    _finished(world)
    return done.images / (time.monotonic() - begun)


def _for_a_while(batch: Batch) -> Iterator[Batch]:
    end = time.monotonic() + SECONDS
    yield batch
    for step in count(1):  # numbered, so that the host looks at the GPU now and then
        if time.monotonic() > end:
            return
        yield replace(batch, step=step)


def _batch(run: Run, size: int, world: World) -> Batch:
    side = run.network.input_size
    images = torch.randint(0, 256, (size, _channels(run), side, side), dtype=torch.uint8)
    labels = torch.arange(size) % 2
    return Batch(0, images.to(world.device), labels, torch.ones(size), size)


def _timed(step: Callable[[], int], world: World) -> float:
    """How many things a second the step does; its first time does not count."""
    step()
    _finished(world)
    done, begun = 0, time.monotonic()
    while done == 0 or time.monotonic() - begun < SECONDS:
        done += step()
        _finished(world)
    return done / (time.monotonic() - begun)


def _finished(world: World) -> None:
    if world.device.type == "cuda":
        torch.cuda.synchronize(world.device)
