"""Teaching a detector: a few images a step, a few regions of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD

from deepcluster.evaluation.bench import Bench
from deepcluster.evaluation.boxes import flipped, offsets
from deepcluster.evaluation.common_scale import SETTLED, settling
from deepcluster.evaluation.detector_images import Pictures, Scale, Seen
from deepcluster.evaluation.fast_rcnn import FastRCNN
from deepcluster.evaluation.kept_views import Kept, View, room_on
from deepcluster.evaluation.proposals import Regions
from deepcluster.evaluation.region_samples import Sampled
from deepcluster.evaluation.voc import VocImage
from deepcluster.runtime import interruption
from deepcluster.runtime.errors import NumericsError
from deepcluster.runtime.interruption import Interrupted
from deepcluster.runtime.run_folder import RunFolder
from deepcluster.runtime.seeds import generator, stream, uniforms
from deepcluster.runtime.world import World

SAVE_SECONDS = 300.0
"""How often what was learnt so far is saved, so that a killed evaluation loses no more."""

WORTH_SAVING = 30.0
"""Seconds of learning, above which what was learnt is saved before objects are looked for."""

_MEASURED = 8  # images at a time, of those that the scale is found from
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
        """It grows over the first twentieth, and falls to a tenth after three quarters."""
        begun = min(1.0, (iteration + 1) / max(1, self.iterations // 20))
        return self.step * (0.1 if 4 * iteration >= 3 * self.iterations else begun)


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


class Lesson(NamedTuple):
    """The regions of one image at a step."""

    view: View
    sampled: Sampled


@dataclass(frozen=True)
class Asked:
    """What the images of a step ask, on the host; row i of each is region i."""

    of: Tensor
    """Which image the region is of."""
    boxes: Tensor
    """In pixels of the scaled image."""
    labels: Tensor
    holding: Tensor
    """Rows that hold an object."""
    offsets: Tensor
    """From these to their objects."""


class Lessons:
    """The training images with their regions, and what is drawn from them at each step."""

    def __init__(
        self, images: Sequence[VocImage], regions: Regions, scale: Scale, course: Course
    ) -> None:
        self.images, self.scale, self.course = images, scale, course
        self._lap, self._places = -1, list[int]()
        self.candidates = regions.candidates(images, course.lowest_background)
        self._factors = [np.array(scale.factors(image) * 2) for image in images]

    def at(self, iteration: int) -> list[Lesson]:
        """The images of a step and the regions of each; a function of the seed and the step."""
        count = self.course.images_per_step
        draws = np.arange(iteration * count, (iteration + 1) * count)
        turned = uniforms(self.course.seed, "detection-flips", 0, draws, 1)[:, 0] < 0.5
        return [
            self.lesson(int(draw), bool(turn)) for draw, turn in zip(draws, turned, strict=True)
        ]

    def lesson(self, draw: int, turned: bool) -> Lesson:
        """Some regions of the image whose turn it is."""
        course = self.course
        place = self._order(draw // len(self.images))[draw % len(self.images)]
        randomness = np.random.default_rng(stream(course.seed, "detection-regions", draw))
        sampled = self.candidates[place].sampled(
            course.regions_per_image, course.foreground, randomness
        )
        return Lesson(View(place, turned), sampled)

    def asked(self, lessons: Sequence[Lesson]) -> Asked:
        """What these lessons ask, one after another."""
        boxes, aims, of, holding, begin = [], [], [], [], 0
        for number, (view, sampled) in enumerate(lessons):
            width, factors = self.images[view.place].width, self._factors[view.place]
            some, aimed = sampled.boxes, sampled.aims
            if view.is_flipped:
                some, aimed = flipped(some, width), flipped(aimed, width)
            boxes.append(some * factors)
            aims.append(aimed * factors)
            of.append(np.full(len(some), number))
            holding.append(np.arange(begin, begin + len(aimed)))
            begin += len(some)
        scaled = torch.from_numpy(np.concatenate(boxes))
        rows = torch.from_numpy(np.concatenate(holding))
        return Asked(
            torch.from_numpy(np.concatenate(of)),
            scaled.float(),
            torch.from_numpy(np.concatenate([sampled.labels for _, sampled in lessons])),
            rows,
            offsets(scaled[rows], torch.from_numpy(np.concatenate(aims))).float(),
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
    pictures: Pictures | None = None,
) -> Progress:
    """Teach the model in place, from where an interrupted course was left."""
    device, world = bench.world.device, bench.world
    model.learn(course.learnt, course.dropout)
    lessons = Lessons(images, regions, scale, course)
    pixels = list((pictures or Pictures(device, bench.workers))(images))
    room = room_on(device)
    learns_all = course.learnt == "all"
    seen = Seen(
        model,
        images,
        scale,
        pixels.__getitem__,
        bench.autocast,
        fronts=Kept(room if learns_all else 0),
        maps=Kept(0 if learns_all else room),
    )
    _bring_to_scale(seen, lessons)
    optimizer = _optimizer(model, course, device)
    progress = half.resumed(model, optimizer, world)

    def save() -> None:
        if world.leads:
            half.save(model, optimizer, progress)

    running = torch.zeros(2, device=device)
    since, saved = 0, monotonic()
    begun = saved
    title = f"learning {course.learnt}, step {course.step:g}"
    with bench.display.phase(title, course.iterations, {}, "learn") as phase:
        phase.advance(progress.iteration)
        while progress.iteration < course.iterations:
            for group in optimizer.param_groups:
                group["lr"] = course.step_at(progress.iteration) * group["times"]
            running += _step(seen, lessons, optimizer, progress.iteration, bench)
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
    if monotonic() - begun > WORTH_SAVING:  # looking for objects takes a while too
        save()
    return progress


@torch.no_grad()
def _bring_to_scale(seen: Seen, lessons: Lessons) -> None:
    """Settle the batch norms of an untrained network; give every network the same scale."""
    count = min(SETTLED, len(lessons.images))
    views = [View(place) for place in range(count)]
    parts = [views[start : start + _MEASURED] for start in range(0, count, _MEASURED)]
    with settling(seen.model.convolutions) as wanted:
        for part in parts if wanted else []:
            for shape in {seen.scale.canvas(lessons.images[view.place]) for view in part}:
                seen.computed(
                    [v for v in part if seen.scale.canvas(lessons.images[v.place]) == shape], shape
                )
    device = seen.model.scores.weight.device

    def pooled() -> Iterator[Tensor]:
        for start in range(0, count, _MEASURED):
            some = [
                lessons.lesson(draw, False) for draw in range(start, min(start + _MEASURED, count))
            ]
            yield from _pooled(seen, [lesson.view for lesson in some], lessons.asked(some), device)[
                0
            ]

    seen.model.measure(pooled())


def _pooled(
    seen: Seen, views: Sequence[View], asked: Asked, device: torch.device
) -> tuple[list[Tensor], list[Tensor]]:
    """Of each group of views that share a canvas the pooled regions, and which rows they are."""
    pooled, rows = [], []
    for numbers, maps in seen.together(views):
        within = torch.full((len(views),), -1)
        within[numbers] = torch.arange(len(numbers))
        of = within[asked.of]
        mine = torch.nonzero(of >= 0)[:, 0]  # on the host, which need not wait for it
        boxes, whose = (part[mine].to(device, non_blocking=True) for part in (asked.boxes, of))
        pooled.append(seen.model.pooled(maps, boxes, whose))
        rows.append(mine)
    return pooled, rows


def _step(seen: Seen, lessons: Lessons, optimizer: SGD, iteration: int, bench: Bench) -> Tensor:
    """One step of all processes, each with its share of the images; gives the two losses."""
    world, device, course = bench.world, bench.world.device, lessons.course
    every = lessons.at(iteration)
    total = sum(len(lesson.sampled.labels) for lesson in every)
    share = world.share(len(every))
    mine = every[share.start : share.stop]
    optimizer.zero_grad(set_to_none=True)
    losses = torch.zeros(2, device=device)
    if mine:
        sent = partial(torch.Tensor.to, device=device, non_blocking=True)
        asked = lessons.asked(mine)
        with torch.set_grad_enabled(course.learnt == "all"):
            pooled, rows = _pooled(seen, [lesson.view for lesson in mine], asked, device)
        order = torch.cat(rows)  # regions of one canvas follow each other
        labels = asked.labels[order]
        back = torch.empty_like(order)
        back[order] = torch.arange(len(order))
        fore = back[asked.holding]
        classes = sent(labels[fore])
        # Dropout is a named stream too; the caller's own randomness is put back.
        with (
            torch.random.fork_rng(devices=[device] if device.type == "cuda" else []),
            torch.autocast(device.type, bench.autocast, enabled=bench.autocast is not None),
        ):
            torch.manual_seed(stream(course.seed, "detection-dropout", iteration, world.rank))
            scores, moves = seen.model(torch.cat(pooled))
        by_class = F.cross_entropy(scores, sent(labels), reduction="sum") / total
        moved = moves[sent(fore), classes]
        by_box = F.smooth_l1_loss(moved, sent(asked.offsets), reduction="sum") / total
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
