"""Teaching a detector: a few images a step, a few regions of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD

from deepcluster.evaluation.bench import Bench
from deepcluster.evaluation.boxes import flipped, offsets
from deepcluster.evaluation.detector_images import KeptMaps, Scale, decoded, room_on
from deepcluster.evaluation.fast_rcnn import FastRCNN
from deepcluster.evaluation.proposals import Regions
from deepcluster.evaluation.region_samples import NOTHING, Candidates
from deepcluster.evaluation.voc import VocImage
from deepcluster.runtime import interruption
from deepcluster.runtime.errors import NumericsError
from deepcluster.runtime.interruption import Interrupted
from deepcluster.runtime.run_folder import RunFolder
from deepcluster.runtime.seeds import generator, stream, uniforms
from deepcluster.runtime.world import World

SAVE_SECONDS = 300.0
"""How often what was learnt so far is saved, so that a killed evaluation loses no more."""

SETTLED = 64
"""Training images from which an untrained network's batch norms get their statistics."""

_LOOK_EVERY = 50  # steps on a GPU, before the host looks at the loss: looking means waiting


@dataclass(frozen=True)
class Course:
    """How a detector is taught; see `VOCDetection` for what the numbers mean."""

    learnt: str
    step: float
    iterations: int
    images_per_step: int
    regions_per_image: int
    foreground: float
    lowest_background: float
    momentum: float
    decay: float
    dropout: float
    seed: int

    def step_at(self, iteration: int) -> float:
        """The step falls to a tenth after three quarters."""
        return self.step * (0.1 if 4 * iteration >= 3 * self.iterations else 1.0)


@dataclass
class Progress:
    """How far the teaching has come."""

    iteration: int = 0
    losses: list[list[float]] = field(default_factory=list)
    """Of a number of steps each, the mean loss of scores and of boxes."""


@dataclass(frozen=True)
class Halfway:
    """A file that holds what was learnt so far."""

    folder: RunFolder
    name: str

    def save(self, model: FastRCNN, optimizer: SGD, progress: Progress) -> None:
        """Keep weights, momentum and progress."""
        tensors = {
            "iteration": torch.tensor(progress.iteration),
            "losses": torch.tensor(progress.losses, dtype=torch.float64).reshape(-1, 2),
        }
        for key, value in _learnt(model).items():
            tensors[f"weight.{key}"] = value.detach()
            if (momentum := optimizer.state[value].get("momentum_buffer")) is not None:
                tensors[f"momentum.{key}"] = momentum
        whole = {key: value.cpu().contiguous() for key, value in tensors.items()}
        self.folder.write(self.name, partial(save_file, whole))

    def resumed(self, model: FastRCNN, optimizer: SGD, world: World) -> Progress:
        """Where an earlier attempt was left, with its weights; the beginning without one."""
        found = self._read()
        iteration = int(found["iteration"]) if found else 0
        if found is None or len({*world.counts(iteration)}) > 1:
            return Progress()
        with torch.no_grad():
            for key, value in _learnt(model).items():
                value.copy_(found[f"weight.{key}"])
                if (momentum := found.get(f"momentum.{key}")) is not None:
                    # In the weight's own layout: on a GPU the step goes through both as they lie.
                    own = torch.empty_like(value).copy_(momentum)
                    optimizer.state[value]["momentum_buffer"] = own
        return Progress(iteration, found["losses"].tolist())

    def forget(self) -> None:
        """Delete it: the result is there."""
        (self.folder.path / self.name).unlink(missing_ok=True)

    def _read(self) -> dict[str, Tensor] | None:
        """What was saved; nothing where nothing whole is there."""
        try:
            return load_file(self.folder.path / self.name)
        except (OSError, SafetensorError):
            return None


@dataclass
class Batch:
    """What one image of a step asks, ready for the device."""

    place: int
    is_flipped: bool
    boxes: Tensor
    labels: Tensor
    offsets: Tensor


class Lessons:
    """The training images with their regions, and what is drawn from them at each step."""

    def __init__(
        self, images: Sequence[VocImage], regions: Regions, scale: Scale, course: Course
    ) -> None:
        self.images, self.scale, self.course = images, scale, course
        self._lap, self._places = -1, list[int]()
        lowest = course.lowest_background
        self.candidates = [
            Candidates.of(image, boxes, lowest)
            for image, boxes in zip(images, regions.boxes, strict=True)
        ]

    def at(self, iteration: int) -> list[Batch]:
        """The images of a step and the regions of each; a function of the seed and the step."""
        count = self.course.images_per_step
        draws = np.arange(iteration * count, (iteration + 1) * count)
        turned = uniforms(self.course.seed, "detection-flips", 0, draws, 1)[:, 0] < 0.5
        return [
            self._lesson(int(draw), bool(turn)) for draw, turn in zip(draws, turned, strict=True)
        ]

    def _lesson(self, draw: int, turned: bool) -> Batch:
        course = self.course
        place = self._order(draw // len(self.images))[draw % len(self.images)]
        image = self.images[place]
        randomness = np.random.default_rng(stream(course.seed, "detection-regions", draw))
        sampled = self.candidates[place].sampled(
            course.regions_per_image, course.foreground, randomness
        )
        boxes, aims = sampled.boxes, sampled.aims
        if turned:
            boxes, aims = flipped(boxes, image.width), flipped(aims, image.width)
        factors = torch.tensor(self.scale.factors(image), dtype=torch.float64).repeat(2)
        scaled, aimed = torch.from_numpy(boxes) * factors, torch.from_numpy(aims) * factors
        return Batch(
            place,
            turned,
            scaled.float(),
            torch.from_numpy(sampled.labels),
            offsets(scaled[: len(aims)], aimed).float(),
        )

    def _order(self, lap: int) -> list[int]:
        """Every image once a lap, each lap in another order."""
        if self._lap != lap:
            self._lap = lap
            randomness = generator(self.course.seed, "detection-order", lap)
            self._places = torch.randperm(len(self.images), generator=randomness).tolist()
        return self._places


def taught(
    model: FastRCNN,
    images: Sequence[VocImage],
    regions: Regions,
    scale: Scale,
    course: Course,
    bench: Bench,
    half: Halfway,
) -> Progress:
    """Teach the model in place, from where an interrupted course was left."""
    device, world = bench.world.device, bench.world
    model.learn(course.learnt, course.dropout)
    lessons = Lessons(images, regions, scale, course)
    pixels = list(decoded(images, device, bench.workers))
    model.settle(scale(image) for image in pixels[:SETTLED])
    optimizer = _optimizer(model, course, device)
    progress = half.resumed(model, optimizer, world)

    def computed(place: int, is_flipped: bool) -> Tensor:
        picture = scale(pixels[place])
        with torch.autocast(device.type, bench.autocast, enabled=bench.autocast is not None):
            return model.maps(picture.flip(2) if is_flipped else picture)

    maps: Callable[[int, bool], Tensor] = computed
    if course.learnt != "all":
        maps = KeptMaps(torch.no_grad()(computed), room_on(device))

    def save() -> None:
        if world.leads:
            half.save(model, optimizer, progress)

    running = torch.zeros(2, device=device)
    since, saved = 0, monotonic()
    title = f"learning {course.learnt}, step {course.step:g}"
    with bench.display.phase(title, course.iterations, {}, "learn") as phase:
        phase.advance(progress.iteration)
        while progress.iteration < course.iterations:
            for group in optimizer.param_groups:
                group["lr"] = course.step_at(progress.iteration) * group["times"]
            running += _step(model, lessons, maps, optimizer, progress.iteration, bench)
            progress.iteration += 1
            since += 1
            if (
                device.type == "cpu"
                or since == _LOOK_EVERY
                or progress.iteration == course.iterations
            ):
                means = (running / since).tolist()
                if not np.isfinite(means).all():
                    raise NumericsError(
                        f"the detector diverged at iteration {progress.iteration:,} with step "
                        f"{course.step:g}; use a smaller --steps"
                    )
                progress.losses.append(means)
                running.zero_()
                phase.advance(since)
                since = 0
            if world.any(interruption.asked() is not None):
                save()
                raise Interrupted(interruption.asked() or interruption.TERMINATED)
            if monotonic() - saved > SAVE_SECONDS:
                save()
                saved = monotonic()
    save()  # looking for objects takes a while too
    return progress


def _step(
    model: FastRCNN,
    lessons: Lessons,
    maps: Callable[[int, bool], Tensor],
    optimizer: SGD,
    iteration: int,
    bench: Bench,
) -> Tensor:
    """One step of all processes, each with its share of the images; gives the two losses."""
    world, device, course = bench.world, bench.world.device, lessons.course
    every = lessons.at(iteration)
    total = sum(len(batch.labels) for batch in every)
    share = world.share(len(every))
    mine = every[share.start : share.stop]
    optimizer.zero_grad(set_to_none=True)
    losses = torch.zeros(2, device=device)
    if mine:
        sent = partial(torch.Tensor.to, device=device, non_blocking=True)
        pooled = torch.cat(
            [model.pooled(maps(batch.place, batch.is_flipped), sent(batch.boxes)) for batch in mine]
        )
        labels = torch.cat([batch.labels for batch in mine])
        aims = sent(torch.cat([batch.offsets for batch in mine]))
        fore = torch.nonzero(labels != NOTHING)[:, 0]  # on the host, which need not wait for it
        classes = sent(labels[fore])
        # Dropout is a named stream too; the caller's own randomness is put back.
        with (
            torch.random.fork_rng(devices=[device] if device.type == "cuda" else []),
            torch.autocast(device.type, bench.autocast, enabled=bench.autocast is not None),
        ):
            torch.manual_seed(stream(course.seed, "detection-dropout", iteration, world.rank))
            scores, moves = model(pooled)
        by_class = F.cross_entropy(scores, sent(labels), reduction="sum") / total
        by_box = F.smooth_l1_loss(moves[sent(fore), classes], aims, reduction="sum") / total
        (by_class + by_box).backward()
        losses = torch.stack([by_class.detach(), by_box.detach()])
    if world.size > 1:
        _sum_gradients(optimizer, world)
        losses = world.sum(losses)
    optimizer.step()
    return losses


def _optimizer(model: FastRCNN, course: Course, device: torch.device) -> SGD:
    """Biases take steps twice as large and do not decay, as in Caffe's networks."""
    learnt = _learnt(model)
    biases = [value for name, value in learnt.items() if name.endswith("bias")]
    weights = [value for name, value in learnt.items() if not name.endswith("bias")]
    groups: list[dict[str, Any]] = [
        {"params": weights, "weight_decay": course.decay, "times": 1.0},
        {"params": biases, "weight_decay": 0.0, "times": 2.0},
    ]
    fused = device.type == "cuda"
    return SGD(groups, lr=course.step, momentum=course.momentum, fused=fused)


def _sum_gradients(optimizer: SGD, world: World) -> None:
    for group in optimizer.param_groups:
        for value in group["params"]:
            own = torch.zeros_like(value) if value.grad is None else value.grad
            value.grad = world.sum(own)


def _learnt(model: nn.Module) -> dict[str, nn.Parameter]:
    return {name: value for name, value in model.named_parameters() if value.requires_grad}
