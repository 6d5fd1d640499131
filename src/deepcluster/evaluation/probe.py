"""Classifiers learnt on the frozen layers of a network: the engine of linear probe and MLP.

All layers and all candidate hyper-parameters learn from one pass of the network over the images.
The candidate is chosen on a part of the training images that is held out; the test images are
only looked at.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deepcluster.evaluation.accuracy import Accuracy, Counted, best
from deepcluster.evaluation.bench import Bench, frozen
from deepcluster.evaluation.candidates import (
    Candidate,
    Readout,
    Schedule,
    StackedSGD,
    grid,
    loss_of,
    step_factor,
)
from deepcluster.evaluation.frozen_features import FrozenFeatures, Scaling
from deepcluster.evaluation.labelled_images import (
    LabelledImages,
    refuse_different_classes,
    split,
)
from deepcluster.evaluation.limits import refuse_beyond
from deepcluster.evaluation.probe_result import ProbeResult, layer_result
from deepcluster.images.crops import CENTRE, SHIFTED, TEN, Place
from deepcluster.pseudolabels import Draws, training_batches
from deepcluster.pseudolabels.batches import batch_bounds
from deepcluster.runtime import interruption
from deepcluster.runtime.interruption import Interrupted
from deepcluster.runtime.seeds import generator, stream

_MEASURED = 4096  # training images that origin and unit of the features are found from

NewReadout = Callable[[int, Sequence[int]], Readout]
"""A readout for a number of candidates and the widths of the layers."""

Choices = Mapping[str, Candidate]
"""What was chosen for each layer elsewhere: by images that this network, too, is a stranger to."""


@dataclass(frozen=True)
class Probe:
    """How classifiers are learnt on frozen layers."""

    epochs: int = 30
    """Passes over the training images; the last one is reported."""

    batch: int = 256
    """Images per step."""

    steps: tuple[float, ...] = (3.0, 10.0, 30.0, 100.0, 300.0)
    """Candidate step sizes (learning rates), for features of unit length."""

    decays: tuple[float, ...] = (1e-7, 1e-6, 1e-5)
    """Candidate weight decays."""

    momentum: float = 0.9
    """Momentum of every candidate."""

    schedule: Schedule = "cosine"
    """cosine: to zero. steps: a tenth after each third. constant."""

    scaling: Scaling = "layer"
    """layer: one origin and unit for a layer. feature: for each number of it. none."""

    held_out: float = 0.1
    """Share of the training images that step and decay are chosen by."""

    retrain: bool = False
    """Learn the chosen candidates again, on all training images."""

    ten_crops: bool = False
    """Report the mean over ten crops beside the centre crop."""

    watch: int = 5
    """Epochs between two looks at the test images, for the best-on-test figure alone."""

    seed: int = 0
    """Names every random stream."""

    def validate(self) -> None:
        """Refuse what cannot be carried out."""
        steps, decays = self.steps, self.decays
        good_steps = bool(steps) and all(0 < step < math.inf for step in steps)
        good_decays = bool(decays) and all(0 <= decay < math.inf for decay in decays)
        refuse_beyond(
            ("--epochs", self.epochs, self.epochs >= 1, "at least 1"),
            ("--batch", self.batch, self.batch >= 1, "at least 1"),
            ("--steps", steps, good_steps, "numbers above 0"),
            ("--decays", decays, good_decays, "numbers from 0 on"),
            ("--momentum", self.momentum, 0 <= self.momentum < 1, "0 to below 1"),
            ("--held-out", self.held_out, 0 < self.held_out < 1, "a share between 0 and 1"),
            ("--watch", self.watch, self.watch >= 1, "at least 1"),
        )


@dataclass(frozen=True)
class _Seen:
    """The test figures of all candidates after an epoch."""

    epoch: int
    accuracy: Accuracy


def probed(
    settings: Probe,
    features: FrozenFeatures,
    new_readout: NewReadout,
    train: LabelledImages,
    test: LabelledImages,
    choices: Choices | None = None,
) -> ProbeResult:
    """Learn, choose, test: what each layer's classifier reaches.

    A network that has learnt the labels of the images held out cannot be chosen for by them:
    `choices` takes the place of that.
    """
    settings.validate()
    refuse_different_classes(train, test)
    with frozen(features.network):
        return _probed(settings, features, new_readout, train, test, choices)


def _probed(
    settings: Probe,
    features: FrozenFeatures,
    new_readout: NewReadout,
    train: LabelledImages,
    test: LabelledImages,
    choices: Choices | None,
) -> ProbeResult:
    kept, held = split(train, settings.held_out, settings.seed)
    candidates = grid(settings.steps, settings.decays)
    seconds: dict[str, float] = {}
    begun = time.monotonic()
    features.measure(train.images, _spread(kept, _MEASURED))
    engine = _Engine(settings, features, train, test, seconds)
    names, widths = list(features.widths), list(features.widths.values())
    readout = new_readout(len(candidates), widths)
    seen = engine.learn(readout, [candidates] * len(names), kept, "probing")
    by_held = engine.judged(readout, train, held)
    chosen = [
        best(share if finite else -1.0 for share, finite in zip(*of_layer, strict=True))
        for of_layer in zip(by_held.top1, by_held.finite, strict=True)
    ]
    if choices is not None:
        chosen = [candidates.index(choices[name]) for name in names]
    trained_on = kept
    places = chosen  # of the chosen candidates in the readout
    if settings.retrain:
        readout = new_readout(1, widths)
        trained_on = np.arange(len(train))
        again = [[candidates[choice]] for choice in chosen]
        seen = engine.learn(readout, again, trained_on, "probing again, what was chosen")
        places = [0] * len(names)
    ten = engine.ten_crops(readout, places) if settings.ten_crops else None
    seconds["all"] = round(time.monotonic() - begun, 3)
    layers = [
        layer_result(
            candidates,
            name,
            features.widths[name],
            chosen[layer],
            by_held.top1[layer],
            [(entry.epoch, _pair(entry.accuracy, layer, places[layer])) for entry in seen],
            None if ten is None else _pair(ten, layer, 0),
            on_held_finite=by_held.finite[layer],
            finite=seen[-1].accuracy.finite[layer][places[layer]],
        )
        for layer, name in enumerate(names)
    ]
    return ProbeResult(layers, len(trained_on), len(held), len(test), seconds)


def fit_epoch(
    readout: Readout,
    optimizer: StackedSGD,
    batches: Iterable[tuple[Sequence[Tensor], Tensor, int]],
    bench: Bench,
    factor_at: Callable[[int], float],
    dropout_seed_at: Callable[[int], int | None] = lambda step: None,
) -> None:
    """One step for every batch: features, classes, and images over all processes."""
    device, autocast = bench.world.device, bench.autocast
    for step, (features, classes, total) in enumerate(batches):
        with torch.autocast(device.type, autocast, enabled=autocast is not None):
            scores = readout.scores(features, dropout_seed_at(step))
        loss_of(scores, classes, total).backward()
        optimizer.step(factor_at(step), bench.world)
        if bench.world.any(interruption.asked() is not None):  # all stop after the same step
            raise Interrupted(interruption.asked() or interruption.TERMINATED)


class _Engine:
    """The passes over the images."""

    def __init__(
        self,
        settings: Probe,
        features: FrozenFeatures,
        train: LabelledImages,
        test: LabelledImages,
        seconds: dict[str, float],
    ) -> None:
        self.settings, self.features, self.train, self.test = settings, features, train, test
        self.bench, self.seconds = features.bench, seconds

    def learn(
        self,
        readout: Readout,
        candidates: Sequence[Sequence[Candidate]],
        ids: NDArray[np.int64],
        title: str,
    ) -> list[_Seen]:
        """Train the readout on these images; gives the test figures on the way, the last too."""
        settings, bench, world = self.settings, self.bench, self.bench.world
        optimizer = StackedSGD(readout.parameters, candidates, settings.momentum)
        everything = np.arange(len(self.test))
        looks = {*range(settings.watch, settings.epochs, settings.watch), settings.epochs}
        # One phase, so that what is left is said of the whole course: looks are part of it.
        total = settings.epochs * len(ids) + len(looks) * len(world.share(len(self.test)))
        looking = 0.0
        seen: list[_Seen] = []
        with bench.display.phase(title, total, self.seconds, "learn") as phase:
            for epoch in range(settings.epochs):
                order = generator(settings.seed, "probe-order", epoch)
                draws = Draws(
                    ids[torch.randperm(len(ids), generator=order).numpy()],
                    np.ones(len(ids), dtype=np.float32),
                )
                steps = len(batch_bounds(len(ids), settings.batch))

                def batches(
                    draws: Draws = draws, epoch: int = epoch
                ) -> Iterable[tuple[Sequence[Tensor], Tensor, int]]:
                    for batch in training_batches(
                        self.train.images,
                        self.train.classes,
                        draws,
                        batch=settings.batch,
                        seed=settings.seed,
                        epoch=epoch,
                        world=world,
                        workers=bench.workers,
                        view=SHIFTED,
                    ):
                        classes = batch.labels.to(world.device, non_blocking=True)
                        yield self.features(batch.images), classes, batch.total
                        phase.advance(batch.total)

                def factor_at(step: int, epoch: int = epoch, steps: int = steps) -> float:
                    progress = (epoch + step / steps) / settings.epochs
                    return step_factor(settings.schedule, min(progress, 1.0))

                def dropout_seed_at(step: int, epoch: int = epoch) -> int:
                    return stream(settings.seed, "probe-dropout", epoch, step, world.rank)

                fit_epoch(readout, optimizer, batches(), bench, factor_at, dropout_seed_at)
                if epoch + 1 in looks:
                    begun = time.monotonic()
                    found = self._accuracy(readout, self.test, everything, phase.advance)
                    seen.append(_Seen(epoch + 1, found))
                    looking += time.monotonic() - begun
        self.seconds["learn"] = round(self.seconds["learn"] - looking, 3)
        self.seconds["test"] = round(self.seconds.get("test", 0.0) + looking, 3)
        return seen

    def judged(
        self, readout: Readout, labelled: LabelledImages, ids: NDArray[np.int64]
    ) -> Accuracy:
        """The accuracy of every candidate on the centre crops of these images."""
        count = len(self.bench.world.share(len(ids)))
        with self.bench.display.phase("judging", count, self.seconds, "test") as phase:
            return self._accuracy(readout, labelled, ids, phase.advance)

    def _accuracy(
        self,
        readout: Readout,
        labelled: LabelledImages,
        ids: NDArray[np.int64],
        advance: Callable[[int], None],
    ) -> Accuracy:
        counted = Counted(*readout.shape, self.bench.world.device)
        for scores, classes, _ in self._looked(readout, labelled, ids, CENTRE, advance):
            counted.add(scores, classes)
        return counted.over(self.bench.world)

    def ten_crops(self, readout: Readout, places: list[int]) -> Accuracy:
        """The accuracy of the chosen candidates by their mean probabilities over ten crops."""
        device = self.bench.world.device
        mine = len(self.bench.world.share(len(self.test)))
        shape = (len(places), mine, 1, len(self.test.names))
        total = torch.zeros(shape, device=device)
        truth = torch.zeros(mine, dtype=torch.int64, device=device)
        chosen = torch.tensor(places, device=device)[:, None, None, None]
        ids = np.arange(len(self.test))
        with self.bench.display.phase("ten crops", len(TEN) * mine, self.seconds, "test") as phase:
            for place in TEN:
                seen = self._looked(readout, self.test, ids, place, phase.advance)
                for scores, classes, rows in seen:
                    where = chosen.expand(-1, scores.shape[1], 1, scores.shape[3])
                    total[:, rows] += scores.gather(2, where).float().softmax(dim=3)
                    truth[rows] = classes
        counted = Counted(len(places), 1, device)
        counted.add(total, truth)
        return counted.over(self.bench.world)

    def _looked(
        self,
        readout: Readout,
        labelled: LabelledImages,
        ids: NDArray[np.int64],
        place: Place,
        advance: Callable[[int], None],
    ) -> Iterator[tuple[Tensor, Tensor, slice]]:
        """This process's share of the images in batches: scores, classes and which rows."""
        world, bench = self.bench.world, self.bench
        share = world.share(len(ids))
        mine = ids[share.start : share.stop]
        done = 0
        crops = labelled.images.seen(mine.tolist(), bench.look_batch, bench.workers, place=place)
        for pixels in crops:
            rows = slice(done, done + len(pixels))
            classes = torch.from_numpy(labelled.classes[mine[rows]]).to(world.device)
            yield self._scores(readout, self.features(pixels)), classes, rows
            done += len(pixels)
            advance(len(pixels))
            if world.size == 1:
                interruption.raise_if_asked()

    @torch.no_grad()
    def _scores(self, readout: Readout, rows: Sequence[Tensor]) -> Tensor:
        device, autocast = self.bench.world.device, self.bench.autocast
        with torch.autocast(device.type, autocast, enabled=autocast is not None):
            return readout.scores(rows)


def _pair(accuracy: Accuracy, layer: int, place: int) -> tuple[float, float]:
    """Top-1 and top-5 of one candidate."""
    return accuracy.top1[layer][place], accuracy.top5[layer][place]


def _spread(ids: NDArray[np.int64], most: int) -> list[int]:
    """At most so many of the ids, evenly spread."""
    if len(ids) <= most:
        return ids.tolist()
    return ids[np.linspace(0, len(ids) - 1, most).astype(np.int64)].tolist()
