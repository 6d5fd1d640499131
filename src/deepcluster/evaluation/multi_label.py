"""fc6 to fc8 learnt for images that may show several classes, or none, at a time.

All candidates of step and decay learn from one pass where the convolutions are frozen; where they
learn too, every candidate has its own network.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import SGD

from deepcluster.evaluation.bench import Bench
from deepcluster.evaluation.candidates import Candidate, Schedule, StackedSGD, step_factor
from deepcluster.evaluation.common_scale import SETTLED, settling
from deepcluster.evaluation.frozen_features import FrozenFeatures
from deepcluster.evaluation.mlp import MLPReadout, read_convolutions
from deepcluster.images.crops import NUMBERS, TEN, CropRange, RandomView, learn, random_boxes
from deepcluster.images.loader import Images
from deepcluster.networks import Network
from deepcluster.networks.plain import PlainConvnet
from deepcluster.pseudolabels import Draws, training_batches
from deepcluster.pseudolabels.batches import batch_bounds
from deepcluster.runtime import interruption
from deepcluster.runtime.interruption import Interrupted
from deepcluster.runtime.seeds import generator, stream

TestCrops = Literal["random", "ten"]
_MEASURED = 4096  # training images that origin and unit of the features are found from


@dataclass(frozen=True)
class MultiLabelled:
    """Some images of a store with their labels; place i, and labels i, are those of image i."""

    images: Images
    places: NDArray[np.int64]
    """Where in the store each image is."""
    labels: NDArray[np.int64]
    """n x classes: 1 is there, -1 is not, 0 is not judged."""

    def __len__(self) -> int:
        return len(self.places)


@dataclass(frozen=True)
class Course:
    """How classifiers learn."""

    epochs: int
    batch: int
    momentum: float
    schedule: Schedule
    view: RandomView
    seed: int


def part_view(purpose: str, least: float, most: float) -> RandomView:
    """Random squares whose area is between two shares of the image's, flipped half of the time."""
    within = CropRange(scale=least, ratio=1.0)  # from `least` to all of the image
    shrink = np.ones(NUMBERS)
    shrink[:-3:2] = (most - least) / (1 - least)  # of the numbers that choose the area

    def cut(
        image: Image.Image, size: int, numbers: Sequence[float] | NDArray[np.float64]
    ) -> Tensor:
        return learn(image, size, (np.asarray(numbers) * shrink).tolist(), within)

    def boxes(
        widths: NDArray[np.int64],
        heights: NDArray[np.int64],
        _size: int,
        numbers: NDArray[np.float64],
    ) -> NDArray[np.int64]:
        return random_boxes(widths, heights, numbers * shrink, within)

    return RandomView(purpose, NUMBERS, cut, boxes, is_cut_first=True)


def multi_label_loss(scores: Tensor, labels: Tensor, total: int) -> Tensor:
    """The logistic losses of all classes that are judged, added up, over `total` images.

    Those of the candidates are added up as well.

    Args:
        scores: 1 x B x candidates x classes.
        labels: B x classes: 1, -1, or 0 for what is not judged.
        total: Images over all processes.
    """
    there = labels[None, :, None].expand_as(scores)
    losses = F.softplus(-scores.float() * there)
    return (losses * (there != 0)).sum() / total


class LearningFeatures(FrozenFeatures):
    """The same features, through which the convolutions learn; origin and unit stay."""

    def __call__(self, pixels: Tensor) -> list[Tensor]:
        """B x width of the one layer there is, float32."""
        return self._scaled(self.rows_of(pixels))


class Classifiers:
    """The readouts of some candidates on one network, as they learn and as they judge."""

    def __init__(
        self,
        network: Network,
        candidates: Sequence[Candidate],
        hidden: int,
        dropout: float,
        course: Course,
        bench: Bench,
        *,
        fine_tuned: bool,
    ) -> None:
        """Where the network is fine-tuned, there is one candidate, and the network changes."""
        assert len(candidates) == 1 or not fine_tuned
        self.candidates, self.course, self.bench = candidates, course, bench
        kind = LearningFeatures if fine_tuned else FrozenFeatures
        self.features = kind(network, read_convolutions(network), bench)
        self._hidden, self._dropout = hidden, dropout
        self._tuned = _convolutions(network) if fine_tuned else nn.Sequential()
        self._learning = list(self._tuned.parameters())

    def learn(self, part: MultiLabelled, title: str, seconds: dict[str, float]) -> None:
        """Learn from these images."""
        course, bench, world = self.course, self.bench, self.bench.world
        self._settle(part)
        every = np.unique(np.linspace(0, len(part) - 1, _MEASURED).astype(np.int64))
        # Before batches tell norms what is usual: origin and unit depend on no batch.
        self.features.measure(part.images, part.places[every].tolist())
        self._normalise_by_batch(True)
        (width,) = self.features.widths.values()
        widths = (width, self._hidden, part.labels.shape[1])
        self.readout = MLPReadout(
            len(self.candidates), widths, self._dropout, course.seed, world.device
        )
        optimizer = StackedSGD(self.readout.parameters, [self.candidates], course.momentum)
        step, decay = self.candidates[0]
        trunk = self._learning and SGD(
            self._learning, lr=step, momentum=course.momentum, weight_decay=decay
        )
        labels = np.zeros((len(part.images), part.labels.shape[1]), dtype=np.int64)
        labels[part.places] = part.labels
        steps = len(batch_bounds(len(part), course.batch))
        with bench.display.phase(title, course.epochs * len(part), seconds, "learn") as phase:
            for epoch in range(course.epochs):
                order = generator(course.seed, "transfer-order", epoch)
                shuffled = torch.randperm(len(part), generator=order).numpy()
                for batch in training_batches(
                    part.images,
                    labels,
                    Draws(part.places[shuffled], np.ones(len(part), dtype=np.float32)),
                    batch=course.batch,
                    seed=course.seed,
                    epoch=epoch,
                    world=world,
                    workers=bench.workers,
                    view=course.view,
                ):
                    named = stream(course.seed, "transfer-dropout", epoch, batch.step, world.rank)
                    truth = batch.labels.to(world.device, non_blocking=True)
                    multi_label_loss(
                        self._scores(batch.images, named), truth, batch.total
                    ).backward()
                    progress = (epoch + batch.step / steps) / course.epochs
                    factor = step_factor(course.schedule, min(progress, 1.0))
                    optimizer.step(factor, world)
                    if trunk:
                        self._step_trunk(trunk, step * factor)
                    phase.advance(batch.total)
                    if world.any(interruption.asked() is not None):  # all stop at the same step
                        raise Interrupted(interruption.asked() or interruption.TERMINATED)
        self._normalise_by_batch(False)
        for buffer in self._tuned.buffers():  # each process has averaged its own images
            buffer.copy_(world.broadcast(buffer))

    def _settle(self, part: MultiLabelled) -> None:
        """Give an untrained network's batch norms the statistics of some training images."""
        with settling(self.features.network.trunk) as wanted:
            if wanted:
                some = part.places[:SETTLED].tolist()
                for pixels in part.images.seen(some, len(some), self.bench.workers):
                    self.features.rows_of(pixels)

    def _normalise_by_batch(self, by_batch: bool) -> None:
        """Whether batch norms that learn use the batch's statistics, or those they have kept."""
        for module in self._tuned.modules():
            if isinstance(module, _BatchNorm):
                module.train(by_batch)

    def _step_trunk(self, trunk: SGD, size: float) -> None:
        trunk.param_groups[0]["lr"] = size
        for parameter in self._learning:
            assert parameter.grad is not None
            parameter.grad = self.bench.world.sum(parameter.grad)
        trunk.step()
        trunk.zero_grad(set_to_none=True)

    @torch.no_grad()
    def judge(
        self,
        part: MultiLabelled,
        crops: TestCrops,
        view: RandomView,
        title: str,
        seconds: dict[str, float],
    ) -> NDArray[np.float64]:
        """Images x candidates x classes: the mean score over ten crops of each image."""
        world, bench = self.bench.world, self.bench
        share = world.share(len(part))
        mine = part.places[share.start : share.stop]
        shape = (len(mine), len(self.candidates), part.labels.shape[1])
        total = torch.zeros(shape, dtype=torch.float64, device=world.device)
        with bench.display.phase(title, len(TEN) * len(mine), seconds, "test") as phase:
            for number in range(len(TEN)):
                done = 0
                for pixels in self._crops(part, share, crops, view, number):
                    scores = self._scores(pixels)[0]
                    total[done : done + len(pixels)] += scores.double()
                    done += len(pixels)
                    phase.advance(len(pixels))
                    if world.size == 1:
                        interruption.raise_if_asked()
        return (world.gather(total) / len(TEN)).cpu().numpy()

    def _crops(
        self, part: MultiLabelled, share: range, crops: TestCrops, view: RandomView, number: int
    ) -> Iterator[Tensor]:
        """This process's share of the images, by crop number so and so, in batches."""
        images, bench = part.images, self.bench
        if crops == "ten":
            mine = part.places[share.start : share.stop].tolist()
            yield from images.seen(mine, bench.look_batch, bench.workers, place=TEN[number])
            return
        # A crop is named by the image's number, whichever process looks at it.
        draws = np.arange(share.start, share.stop, dtype=np.int64)
        parts = [draws[at : at + bench.look_batch] for at in range(0, len(draws), bench.look_batch)]
        for pixels, _ in images.drawn(
            parts, part.places, self.course.seed, number, bench.workers, view
        ):
            yield pixels

    def _scores(self, pixels: Tensor, dropout_seed: int | None = None) -> Tensor:
        device, autocast = self.bench.world.device, self.bench.autocast
        rows = self.features(pixels)
        with torch.autocast(device.type, autocast, enabled=autocast is not None):
            return self.readout.scores(rows, dropout_seed)


def _convolutions(network: Network) -> nn.Module:
    """What is fine-tuned below fc6."""
    convnet = network.trunk.convnet
    return convnet.convolutions if isinstance(convnet, PlainConvnet) else convnet
