"""One epoch of learning to predict the clusters (paper, equation 1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD

from deepcluster.networks import Network
from deepcluster.pseudolabels.batches import Batch
from deepcluster.runtime import faults, interruption
from deepcluster.runtime.errors import WorldError
from deepcluster.runtime.interruption import Interrupted
from deepcluster.runtime.seeds import stream
from deepcluster.runtime.world import World, failures_named
from deepcluster.training.step import Outcome, Recorder, Steps, refuse_nonfinite

# How many steps may pass on a GPU before the host looks at the loss: looking means waiting.
_LOOK_EVERY = 20

# Batch norm's averages need not be the leader's in every step: they become so at the end.
_OWN_BUFFERS: dict[str, Any] = {
    "forward_sync_buffers"  # as newer versions of torch call it
    if "forward_sync_buffers" in signature(DistributedDataParallel).parameters
    else "broadcast_buffers": False
}


@dataclass
class EpochProgress:
    """How far an epoch of training has come."""

    step: int = 0  # steps done
    loss_sum: float = 0.0  # over all images of those steps
    images: int = 0
    right: int = 0  # images whose label the network said

    @property
    def loss(self) -> float:
        """Mean loss over the images so far."""
        return self.loss_sum / max(1, self.images)


def train_epoch(
    network: Network,
    batches: Iterable[Batch],
    optimizers: tuple[SGD, SGD],
    world: World,
    *,
    progress: EpochProgress,
    dropout_stream: tuple[int, int],
    autocast: torch.dtype | None = None,
    smoothing: float = 0.0,
    recorder: Recorder | None = None,
    before_step: Callable[[int], None] = lambda step: None,
    after_step: Callable[[int], None] = lambda count: None,
    over: Callable[[], bool] = lambda: False,
    due: Callable[[], bool] = lambda: False,
    save: Callable[[EpochProgress], None] = lambda progress: None,
) -> EpochProgress:
    """Train on the batches and return the progress.

    `before_step` is told the number of each step, and may set its size; `after_step` how many
    images it had; where `over` then says so, to all processes alike, the epoch ends there. `save`
    is called when the run must stop, and when `due`.

    Where a `recorder` is given, steps are recorded by it and played again.

    `dropout_stream` is (seed, epoch): dropout is a named stream too, by step and process.
    """
    network.train()
    learner = _in_reducer(network, world)
    take = Steps(learner, optimizers, world, autocast, smoothing, recorder)
    pending = _Pending(world.device)
    saved = progress.step
    try:
        for batch in batches:
            before_step(batch.step)
            seed = stream(dropout_stream[0], "dropout", dropout_stream[1], batch.step, world.rank)
            take.prepare(batch)
            with _all_or_nothing(network, world), failures_named(), _seeded(seed, world.device):
                outcome = take(batch)
            pending.add(outcome, batch, progress)
            progress.step = batch.step + 1
            if world.device.type == "cpu" or progress.step % _LOOK_EVERY == 0:
                pending.settle(progress)
            faults.point("train.step")
            after_step(batch.total)
            if world.any(interruption.asked() is not None):  # all stop after the same step
                raise Interrupted(interruption.asked() or interruption.TERMINATED)
            if over():
                break
            if due():
                pending.settle(progress)
                save(progress)
                saved = progress.step
    except (Interrupted, WorldError):
        # The leading process saves alone: the others may be gone already.
        if progress.step > saved:
            pending.settle(progress)
            save(progress)
        raise
    pending.settle(progress)
    # Batch norm's averages are each process's own; from here on all look with the leader's.
    _become_the_leaders(network.buffers(), world)
    return progress


class _Pending:
    """Losses and counts that wait on the device until the host asks for them."""

    def __init__(self, device: torch.device) -> None:
        self._sum = torch.zeros((), dtype=torch.float64, device=device)
        self._health = torch.zeros((), dtype=torch.float64, device=device)
        self._right = torch.zeros((), dtype=torch.int64, device=device)

    def add(self, outcome: Outcome, batch: Batch, progress: EpochProgress) -> None:
        self._sum += outcome.loss
        self._health += outcome.health
        self._right += outcome.right
        progress.images += len(batch.labels)

    def settle(self, progress: EpochProgress) -> None:
        refuse_nonfinite(self._sum + self._health, progress.step - 1)
        progress.loss_sum += float(self._sum)
        progress.right += int(self._right)
        self._sum.zero_()
        self._right.zero_()


def _in_reducer(network: Network, world: World) -> nn.Module:
    """The network itself, or wrapped anew so that the fresh head's gradients are averaged too."""
    if world.size == 1:
        return network
    devices = [world.device] if world.device.type == "cuda" else None
    # Torch's own way of making all alike may wait for a process that has died (`World.broadcast`).
    _become_the_leaders(network.state_dict().values(), world)
    with failures_named():
        return DistributedDataParallel(network, device_ids=devices, init_sync=False, **_OWN_BUFFERS)


def _become_the_leaders(tensors: Iterable[Tensor], world: World) -> None:
    for tensor in tensors:
        tensor.copy_(world.broadcast(tensor))


@contextmanager
def _all_or_nothing(network: Network, world: World) -> Iterator[None]:
    """A step that fails because another process died leaves batch norm's averages as they were."""
    if world.size == 1:
        yield
        return
    before = [buffer.clone() for buffer in network.buffers()]
    try:
        yield
    except WorldError:
        for buffer, kept in zip(network.buffers(), before, strict=True):
            buffer.copy_(kept)
        raise


@contextmanager
def _seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Global randomness (dropout) from a named stream; the caller's own is put back."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield
