"""One step of learning, and how to take many of them quickly."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD

from deepcluster.images.crops import normalize
from deepcluster.networks import Network
from deepcluster.networks.plain import PlainConvnet
from deepcluster.pseudolabels.batches import Batch
from deepcluster.runtime.errors import NumericsError
from deepcluster.runtime.world import World

_PLAIN_FIRST = 3  # steps: libraries choose their kernels, momentum comes to be


class Outcome(NamedTuple):
    """What a step leaves on the device."""

    loss: Tensor  # the sum of this process's weighted losses
    right: Tensor  # how many of this process's images got their label
    health: Tensor  # a number that is finite as long as every process's loss is


Given = tuple[Tensor, Tensor, Tensor]
"""Normalised images, labels and weights."""


class Recorder(Protocol):
    """Records what some work does on a device."""

    def warm(self, work: Callable[[], Outcome]) -> Outcome:
        """Carry the work out where it will be recorded, so that all it needs comes to be there."""

    def record(self, work: Callable[[], Outcome]) -> Callable[[], Outcome]:
        """The same work again whenever it is called, from the same memory into the same memory."""


class CudaGraphs:
    """Recordings of a GPU's work. The newest is kept, since its memory is lent to the next."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._stream = device, torch.cuda.Stream(device)
        self._kept: torch.cuda.CUDAGraph | None = None

    def warm(self, work: Callable[[], Outcome]) -> Outcome:
        """Carry the work out on the stream that is recorded."""
        with self._aside():
            return work()

    def record(self, work: Callable[[], Outcome]) -> Callable[[], Outcome]:
        """What the work launches; it is not carried out meanwhile."""
        if torch.cuda.mem_get_info(self._device)[0] < torch.cuda.memory_reserved(self._device):
            torch.cuda.empty_cache()  # a recording has memory of its own
        graph = torch.cuda.CUDAGraph()
        lent = None if self._kept is None else self._kept.pool()
        with self._aside():
            # Other threads may use the GPU meanwhile: one saves checkpoints.
            graph.capture_begin(lent, capture_error_mode="thread_local")
            try:
                outcome = work()
            finally:
                graph.capture_end()
        self._kept = graph

        def again() -> Outcome:
            graph.replay()
            return outcome

        return again

    @contextmanager
    def _aside(self) -> Iterator[None]:
        """What is done here comes after all before it, and before all after it."""
        main = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(main)
        with torch.cuda.stream(self._stream):
            yield
        main.wait_stream(self._stream)


class Steps:
    """The steps of an epoch.

    A GPU is done with a step of a small network sooner than the host has launched its hundreds of
    kernels. Where there is a recorder, one step is recorded after a few plain ones, and whatever
    has its size and its settings is then a single launch: the same kernels, the same numbers.
    """

    def __init__(
        self,
        learner: nn.Module,
        optimizers: tuple[SGD, SGD],
        world: World,
        autocast: torch.dtype | None,
        smoothing: float,
        recorder: Recorder | None = None,
    ) -> None:
        self._learner, self._optimizers, self._world = learner, optimizers, world
        self._autocast, self._smoothing, self._recorder = autocast, smoothing, recorder
        self._taken = 0
        self._inputs: Given | None = None  # where a recorded step reads from
        self._last: object = None
        self._recorded_for: object = None
        self._again: Callable[[], Outcome] | None = None

    def prepare(self, batch: Batch) -> None:
        """Record a step like that of the batch if it is time to; nothing is learnt by it.

        That is when it is like the one before: what changes from step to step never comes again.
        """
        if self._recorder is None or self._again is not None or self._taken < _PLAIN_FIRST:
            return
        if self._kind(batch) != self._last:
            return
        images, labels, weights = self._given(batch)
        self._inputs = inputs = images.clone(), labels.clone(), weights.clone()
        self._recorded_for = self._last
        try:
            self._again = self._recorder.record(lambda: self._step(*inputs, batch))
        except torch.OutOfMemoryError:
            self._recorder = None
            warnings.warn("no memory to record steps in: they are slower", stacklevel=2)

    def __call__(self, batch: Batch) -> Outcome:
        """Take the step of a batch. What a recorded one gives, the next one overwrites."""
        self._taken += 1
        self._last = self._kind(batch)
        given = self._given(batch)
        if self._recorder is None:
            return self._step(*given, batch)
        if self._again is None or self._inputs is None or self._last != self._recorded_for:
            return self._recorder.warm(lambda: self._step(*given, batch))
        for place, value in zip(self._inputs, given, strict=True):
            place.copy_(value, non_blocking=True)
        return self._again()

    def _given(self, batch: Batch) -> Given:
        """Normalised images, labels and weights, on the device."""
        device = self._world.device
        images = normalize(batch.images.to(device, non_blocking=True))
        labels = batch.labels.to(device, non_blocking=True)
        return images, labels, batch.weights.to(device, non_blocking=True)

    def _kind(self, batch: Batch) -> object:
        """All that a step depends on and a recording holds fast; what lies on the GPU it reads."""
        sizes = (group["lr"] for one in self._optimizers for group in one.param_groups)
        fast = tuple(size for size in sizes if not isinstance(size, Tensor))
        return batch.images.shape, batch.total, fast

    def _step(self, inputs: Tensor, labels: Tensor, weights: Tensor, batch: Batch) -> Outcome:
        """One step of all processes."""
        world, optimizers = self._world, self._optimizers
        with torch.autocast(world.device.type, self._autocast, enabled=self._autocast is not None):
            logits = self._learner(inputs)
        losses = weights * F.cross_entropy(
            logits.float(), labels, reduction="none", label_smoothing=self._smoothing
        )
        # The reducer averages over processes; shares of a batch may differ by one image.
        loss = losses.sum() * (world.size / batch.total)
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=True)
        loss.backward()
        # The gradients are common: if one process has diverged, no other may move, or save.
        gradients = [p.grad for p in optimizers[1].param_groups[0]["params"]]
        health = loss.detach() + sum(gradient.sum() for gradient in gradients)
        if world.device.type == "cpu":
            refuse_nonfinite(health, batch.step)
        for optimizer in optimizers:
            optimizer.step()
        right = (logits.detach().argmax(dim=1) == labels).sum()
        return Outcome(losses.detach().sum(), right, health)


def recorder_for(network: Network, world: World) -> Recorder | None:
    """What records steps, if they can be.

    Of one process on a GPU: several wait for each other in every step. And of the paper's networks:
    of others nobody knows whether they ask the host for anything.
    """
    alone = world.device.type == "cuda" and world.size == 1
    plain = isinstance(network.trunk.convnet, PlainConvnet)
    return CudaGraphs(world.device) if alone and plain else None


def refuse_nonfinite(loss: Tensor, step: int) -> None:
    """Raise where a loss, or what was added to it, is not a number."""
    if not bool(loss.isfinite()):
        raise NumericsError(
            f"the loss is no longer finite at step {step}: training has diverged; the last "
            "checkpoint is whole; start again with --fresh and a smaller --training.step"
        )
