"""Teaching a network the class of every pixel, and counting what it has learnt."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from deepcluster.evaluation.bench import Bench
from deepcluster.evaluation.candidates import Schedule, step_factor
from deepcluster.evaluation.common_scale import SETTLED, settling
from deepcluster.evaluation.evaluated import Evaluated
from deepcluster.evaluation.fully_convolutional import Dropout, FullyConvolutional
from deepcluster.evaluation.kept_views import room_on
from deepcluster.evaluation.mean_iou import Confusion
from deepcluster.evaluation.segmented_images import Fronted, SegmentedImages
from deepcluster.evaluation.voc import BORDER
from deepcluster.runtime import interruption
from deepcluster.runtime.errors import NumericsError
from deepcluster.runtime.interruption import Interrupted
from deepcluster.runtime.seeds import generator, stream, uniforms


@dataclass(frozen=True)
class Course:
    """How a network is taught; see `VOCSegmentation` for what the numbers mean."""

    learnt: Literal["fc6-8", "all"]
    finest: int
    epochs: int
    batch: int
    step: float
    decay: float
    momentum: float
    schedule: Schedule
    dropout: float
    seed: int


def taught(
    subject: Evaluated,
    train: SegmentedImages,
    ids: NDArray[np.int64],
    course: Course,
    bench: Bench,
    classes: int,
    title: str,
    seconds: dict[str, float],
) -> FullyConvolutional | None:
    """The network after the last epoch, or None where its loss is no number any more.

    Every process learns the same: only the test images are shared out.
    """
    device, autocast = bench.world.device, bench.autocast
    network = FullyConvolutional(
        subject.network, subject.shape.input_size, classes, course.finest
    ).eval()
    if device.type == "cuda":
        network = network.to(memory_format=torch.channels_last)
    learning: nn.Module = network
    if course.learnt == "fc6-8":
        network.requires_grad_(False)
        learning = nn.ModuleList(network.learnt_anew)
    learning.requires_grad_(True).train()
    fronted = Fronted(train, network.fronted, room_on(device) // 2)
    _bring_to_scale(network, fronted, ids, course.batch)
    optimizer = torch.optim.SGD(
        _groups(learning, course.decay), lr=course.step, momentum=course.momentum
    )
    batches = -(-len(ids) // course.batch)
    with bench.display.phase(title, course.epochs * len(ids), seconds, "learn") as phase:
        for epoch in range(course.epochs):
            order = torch.randperm(
                len(ids), generator=generator(course.seed, "segmentation-order", epoch)
            ).numpy()
            flips = (
                uniforms(course.seed, "segmentation-flip", epoch, np.arange(len(ids)), 1)[:, 0]
                < 0.5
            )
            loss = torch.zeros((), device=device)
            for number in range(batches):
                part = slice(number * course.batch, (number + 1) * course.batch)
                shown = ids[order[part]], flips[part]
                truth = train.masks(*shown)
                progress = (epoch + number / batches) / course.epochs
                for group in optimizer.param_groups:
                    group["lr"] = course.step * step_factor(course.schedule, progress)
                dropped = stream(course.seed, "segmentation-dropout", epoch, number)
                canvas = network.canvas(fronted(*shown))
                with torch.autocast(device.type, autocast, enabled=autocast is not None):
                    scores = network(
                        canvas,
                        (truth.shape[1], truth.shape[2]),
                        Dropout(course.dropout, dropped, device) if course.dropout else None,
                    )
                # Rows of pixels: the loss over maps has no gradient that is the same each time.
                rows = scores.movedim(1, 3).flatten(0, 2)
                # Added up apart: in one, a GPU takes all rows by a single block of threads.
                lost = F.cross_entropy(
                    rows, truth.flatten().long(), ignore_index=BORDER, reduction="none"
                ).sum()
                one = lost / (truth != BORDER).sum().clamp_min(1)  # a batch may be all border
                optimizer.zero_grad(set_to_none=True)
                one.backward()
                optimizer.step()
                loss += one.detach()
                phase.advance(len(truth))
                if bench.world.any(interruption.asked() is not None):
                    raise Interrupted(interruption.asked() or interruption.TERMINATED)
            if not bool(loss.isfinite()):
                return None
    network.eval()
    if bench.world.size > 1:  # equal up to rounding; the test is of one of them
        for tensor in network.state_dict().values():
            tensor.copy_(bench.world.broadcast(tensor))
    return network


@torch.no_grad()
def _bring_to_scale(
    network: FullyConvolutional, fronted: Fronted, ids: NDArray[np.int64], batch: int
) -> None:
    """Settle the batch norms of an untrained network; give every network the same scale."""
    some = ids[:SETTLED]
    parts = [some[start : start + batch] for start in range(0, len(some), batch)]

    def canvases() -> Iterator[Tensor]:
        for part in parts:
            yield network.canvas(fronted(part, np.zeros(len(part), dtype=np.bool_)))

    modes = {part: part.training for part in network.convolutions.modules()}
    network.convolutions.eval()  # what settles is fixed, also where it learns later on
    with settling(network.convolutions) as wanted:
        for canvas in canvases() if wanted else ():
            network.convolutions(canvas)
    network.measure(canvases())
    for part, mode in modes.items():
        part.training = mode


@torch.no_grad()
def confusion_of(
    network: FullyConvolutional,
    segmented: SegmentedImages,
    ids: NDArray[np.int64],
    classes: int,
    bench: Bench,
    seconds: dict[str, float],
    batch: int = 8,
) -> NDArray[np.int64]:
    """True classes beside those that the network gives, over the pixels of these images.

    Scores that are no numbers give no classes: the network's last step was one too far.
    """
    device, autocast, world = bench.world.device, bench.autocast, bench.world
    counted = Confusion(classes, BORDER, device)
    finite = torch.ones((), dtype=torch.bool, device=device)
    share = world.share(len(ids))
    mine = ids[share.start : share.stop].tolist()
    with bench.display.phase("judging", len(mine), seconds, "test") as phase:
        for alike in segmented.alike(mine, batch):
            still = np.zeros(len(alike), dtype=np.bool_)
            truth = segmented.masks(np.array(alike), still)
            canvas = network.canvas([network.fronted(segmented[one][0]) for one in alike])
            with torch.autocast(device.type, autocast, enabled=autocast is not None):
                scores = network(canvas, (truth.shape[1], truth.shape[2]))
            finite &= scores.isfinite().all()
            counted.add(truth, scores.argmax(dim=1))
            phase.advance(len(alike))
            if world.size == 1:
                interruption.raise_if_asked()
    if world.any(not bool(finite)):
        raise NumericsError(
            "what the network says of some pixels is not finite: learning has diverged; try "
            "smaller numbers for --steps"
        )
    return counted.over(world)


def _groups(module: nn.Module, decay: float) -> list[dict[str, Any]]:
    """Weights decay; biases and batch norms do not."""
    parameters = list(module.parameters())
    return [
        {"params": [one for one in parameters if one.ndim > 1], "weight_decay": decay},
        {"params": [one for one in parameters if one.ndim == 1], "weight_decay": 0.0},
    ]
