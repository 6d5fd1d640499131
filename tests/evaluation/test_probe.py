"""The protocol of the probes, held against plain torch on images that nobody reads right."""

from __future__ import annotations

import copy
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from phases import Phases
from PIL import Image
from rich.console import Console
from torch import Tensor, nn
from torch.nn import functional as F

from deepcluster.evaluation.bench import Bench
from deepcluster.evaluation.candidates import Candidate, LinearReadout, grid
from deepcluster.evaluation.frozen_features import FrozenFeatures
from deepcluster.evaluation.labelled_images import LabelledImages, opened, split
from deepcluster.evaluation.probe import Probe, probed
from deepcluster.evaluation.probe_result import ProbeResult, layer_result
from deepcluster.images.crops import SHIFTED, normalize
from deepcluster.images.kept import DEVIATION, MEAN
from deepcluster.runtime import display
from deepcluster.runtime.display import Display
from deepcluster.runtime.seeds import generator

CPU = torch.device("cpu")
CLASSES = 7
SETTINGS = Probe(
    epochs=4, batch=32, steps=(0.01, 1.0, 30.0), decays=(0.0, 1e-3), held_out=0.4, watch=1
)


@pytest.fixture(scope="module")
def overlapping(tmp_path_factory: pytest.TempPathFactory) -> list[LabelledImages]:
    """Training and test images of classes that are hard to tell apart.

    Those to test on are brighter: they have another mean.
    """
    root, randomness = tmp_path_factory.mktemp("overlapping"), np.random.default_rng(0)
    centres = randomness.normal(0, 22, (CLASSES, 4, 4, 3))
    parts = []
    for part, count, light in (("train", 15, 0), ("test", 20, 25)):
        for number in range(CLASSES * count):
            folder = root / part / f"class{number % CLASSES}"
            folder.mkdir(parents=True, exist_ok=True)
            field = centres[number % CLASSES] + randomness.normal(110 + light, 40, (4, 4, 3))
            pixels = np.kron(field, np.ones((5, 5, 1))).clip(0, 255)
            Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{number}.png")
        parts.append(opened(root / part, 16, "rgb", root / "stores", Bench()))
    return parts


def fields(images: Tensor) -> dict[str, Tensor]:
    """Two layers: a fine field of colours and a coarse one."""
    sides = {"fine": 4, "coarse": 2}
    return {name: F.adaptive_avg_pool2d(images, side).flatten(1) for name, side in sides.items()}


def probed_by(
    settings: Probe,
    read: Callable[[Tensor], dict[str, Tensor]],
    train: LabelledImages,
    test: LabelledImages,
    start: Callable[[LinearReadout], None] = lambda readout: None,
    shown: Display | None = None,
) -> tuple[ProbeResult, LinearReadout]:
    """What the probe says of features, and the last classifiers that it has learnt."""
    made: list[LinearReadout] = []

    def new_readout(candidates: int, widths: Sequence[int]) -> LinearReadout:
        made.append(LinearReadout(candidates, len(train.names), widths, CPU, in_one=False))
        start(made[-1])
        return made[-1]

    bench = Bench() if shown is None else Bench(display=shown)
    features = FrozenFeatures(nn.Identity(), read, bench, settings.scaling)  # type: ignore[arg-type]
    return probed(settings, features, new_readout, train, test), made[-1]


class Reference:
    """The classifiers of a layer in plain torch, each learnt alone."""

    def __init__(self, settings: Probe, layer: str, train: LabelledImages) -> None:
        self.settings, self.layer, self.train = settings, layer, train
        self.kept, self.held = split(train, settings.held_out, settings.seed)
        self.origin, self.unit = torch.zeros(()), torch.ones(())
        rows = self._seen(train, self.kept)
        self.origin = rows.mean(dim=0)
        self.unit = (rows - self.origin).square().sum(dim=1).mean().sqrt()

    def learnt(self, candidate: Candidate, ids: NDArray[np.int64]) -> list[nn.Linear]:
        """The classifier after each epoch over these images."""
        settings, after = self.settings, []
        linear = nn.Linear(len(self.origin), CLASSES)
        for parameter in linear.parameters():
            nn.init.zeros_(parameter)
        decayed = {"params": [linear.weight], "weight_decay": candidate.decay}
        optimizer = torch.optim.SGD(
            [decayed, {"params": [linear.bias]}], lr=candidate.step, momentum=settings.momentum
        )
        steps = settings.epochs * math.ceil(len(ids) / settings.batch)
        cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        for epoch in range(settings.epochs):
            order = generator(settings.seed, "probe-order", epoch)
            drawn = ids[torch.randperm(len(ids), generator=order).numpy()]
            parts = np.split(np.arange(len(ids)), range(settings.batch, len(ids), settings.batch))
            crops = self.train.images.drawn(parts, drawn, settings.seed, epoch, 1, view=SHIFTED)
            for pixels, draws in crops:
                optimizer.zero_grad()
                classes = torch.from_numpy(self.train.classes[drawn[draws]])
                F.cross_entropy(linear(self._rows(pixels)), classes).backward()
                optimizer.step()
                cosine.step()
            after.append(copy.deepcopy(linear))
        return after

    @torch.no_grad()
    def right(self, linear: nn.Linear, part: LabelledImages, ids: NDArray[np.int64]) -> list[float]:
        """Top-1 and top-5 on the centre crops of these images."""
        order = linear(self._seen(part, ids)).argsort(dim=1, descending=True).numpy()
        among = order == part.classes[ids, None]
        return [float(among[:, :guesses].any(axis=1).mean()) for guesses in (1, 5)]

    def _seen(self, part: LabelledImages, ids: NDArray[np.int64]) -> Tensor:
        return torch.cat([self._rows(crops) for crops in part.images.seen(ids.tolist(), 50, 1)])

    def _rows(self, pixels: Tensor) -> Tensor:
        return (fields(normalize(pixels))[self.layer] - self.origin) / self.unit


@pytest.mark.parametrize("retrain", [False, True])
def test_the_protocol_is_that_of_plain_torch(overlapping: list[LabelledImages], retrain: bool):
    train, test = overlapping
    settings = replace(SETTINGS, retrain=retrain)
    result, readout = probed_by(settings, fields, train, test)
    assert (result.trained_on, result.chosen_on, result.tested_on) == (
        (105, 42, 140) if retrain else (63, 42, 140)
    )
    candidates, everything = grid(settings.steps, settings.decays), np.arange(len(test))
    one_image = 1.01 / result.chosen_on  # rounding may turn the order of two scores
    for number, layer in enumerate(result.layers):
        reference = Reference(settings, layer.layer, train)
        # The images held out are not learnt from, and the choice is by these alone.
        learnt = [reference.learnt(candidate, reference.kept) for candidate in candidates]
        held = [reference.right(after[-1], train, reference.held)[0] for after in learnt]
        ours = [one["held_out_top1"] for one in layer.candidates]
        assert ours == pytest.approx(held, abs=one_image)
        known = [reference.right(after[-1], train, reference.kept)[0] for after in learnt]
        assert max(known) > max(held) + 2 * one_image  # else there would be nothing to tell apart
        place = int(np.argmax(ours))
        assert (layer.step, layer.decay, layer.held_out_top1) == (*candidates[place], max(ours))
        if retrain:
            learnt, place = [reference.learnt(candidates[place], np.arange(len(train)))], 0
        for which, after in enumerate(learnt):
            for mine, its in zip(readout.parameters[number], after[-1].parameters(), strict=True):
                assert torch.allclose(mine[which], its, rtol=1e-3, atol=1e-4)
        on_test = [reference.right(linear, test, everything) for linear in learnt[place]]
        assert [layer.top1, layer.top5] == pytest.approx(on_test[-1], abs=one_image / 3)
        assert layer.best_on_test_top1 == pytest.approx(
            max(top1 for top1, _ in on_test), abs=one_image / 3
        )


def test_a_course_is_shown_as_a_whole(overlapping: list[LabelledImages]):
    train, test = overlapping
    settings = replace(SETTINGS, epochs=5, watch=2, retrain=True, ten_crops=True)
    shown = Phases()
    result, _ = probed_by(settings, fields, train, test, shown=shown)
    looks = 3 * len(test)  # after epochs 2, 4 and 5
    first, again = (5 * count + looks for count in (63, 105))
    assert shown.ended == [
        ("probing", first, first),
        ("judging", 42, 42),
        ("probing again, what was chosen", again, again),
        ("ten crops", 10 * len(test), 10 * len(test)),
    ]
    spent = result.seconds
    assert min(spent.values()) > 0
    assert spent["learn"] + spent["test"] <= spent["all"] + 0.01  # nothing is counted twice


def test_a_log_tells_how_far_the_whole_course_is(
    overlapping: list[LabelledImages], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(display, "_QUIET_SECONDS", -1.0)
    written = io.StringIO()
    shown = Display(console=Console(file=written, width=100))
    probed_by(SETTINGS, fields, *overlapping, shown=shown)
    lines = [line for line in written.getvalue().splitlines() if "probing" in line]
    assert lines[0].startswith("  probing: 32 of 812, ")  # 4 times 63 images, and 140 to test on
    assert lines[-1].startswith("  probing: 812 of 812, ")


def test_the_last_epoch_is_reported_though_an_earlier_one_was_better_on_test():
    seen = [(2, (0.4, 0.8)), (4, (0.7, 0.9)), (6, (0.5, 0.6))]
    result = layer_result(grid([1.0], [0.0]), "conv1", 9, 0, [0.3], seen, None)
    assert (result.top1, result.top5, result.held_out_top1) == (0.5, 0.6, 0.3)
    assert (result.best_on_test_top1, result.best_on_test_epoch) == (0.7, 4)


def test_a_choice_at_either_end_of_the_steps_is_at_the_edge():
    def at_edges(steps: Sequence[float]) -> list[bool]:
        candidates, seen = grid(steps, [0.0]), [(1, (0.5, 0.5))]
        held = [0.5] * len(candidates)
        return [
            layer_result(candidates, "conv1", 9, choice, held, seen, None).is_at_edge
            for choice in range(len(candidates))
        ]

    assert at_edges([3.0, 10.0, 30.0]) == [True, False, True]
    assert at_edges([10.0, 30.0, 3.0]) == [False, True, True]
    assert at_edges([10.0]) == [False]  # no grid, no edge
    assert at_edges([10.0, 30.0]) == [False, False]  # nothing else


@pytest.mark.parametrize("retrain", [False, True])
def test_what_diverged_is_out_and_said_where_all_did(
    overlapping: list[LabelledImages], retrain: bool
):
    train, test = overlapping
    settings = replace(SETTINGS, steps=(1e20, 1e30), decays=(1e-3,), retrain=retrain)
    result, _ = probed_by(settings, fields, train, test)
    for layer in result.layers:
        assert layer.diverged
        assert [one["diverged"] for one in layer.candidates] == [True, True]
    names = ", ".join(layer.layer for layer in result.layers)
    assert "," in names
    assert result.remarks == [
        f"{names}: learning diverged with every step tried; with smaller ones it may not (--steps)"
    ]
    some, _ = probed_by(replace(settings, steps=(1e30, 1e25, 1e-46)), fields, train, test)
    for layer in some.layers:  # 1e-46 is zero in float32: what learns nothing guesses no worse
        assert (layer.step, layer.diverged) == (1e-46, False)
        assert [one["diverged"] for one in layer.candidates] == [True, True, False]
        assert "is at the edge" in layer.remark


def test_a_choice_that_diverges_as_it_is_learnt_again_is_said():
    seen = [(1, (0.1, 0.5))]
    result = layer_result(grid([1.0], [0.0]), "conv1", 9, 0, [0.3], seen, None, finite=False)
    assert result.remark == "learning diverged; with smaller ones it may not (--steps)"


# Where in an image of 18 x 18 pixels the top left pixel of each crop of 16 lies: of two corners at
# the top, two at the bottom, the centre; and flipped, where that is the top right one.
PLACES = [(0, 0), (0, 2), (2, 0), (2, 2), (1, 1), (0, 15), (0, 17), (2, 15), (2, 17), (1, 16)]
LOUD, SOFT, AGAINST = 255, 144, 120  # scores of 15.9, 2 and -1 for the second of two classes


def by_pixel(readout: LinearReadout) -> None:
    """The first class has a score of 0, the second (level - 128) / 8."""
    weight, bias = (parameter.data for parameter in readout.parameters[0])
    weight[:, 1] = 255 * DEVIATION[0] / 8
    bias[:, 1] = (255 * MEAN[0] - 128) / 8


def test_ten_crops_are_ten_and_their_probabilities_are_averaged(tmp_path: Path):
    for number, (truth, levels) in enumerate(
        [
            (0, [LOUD] + 9 * [AGAINST]),  # by the sum of its scores it would be of the second
            (0, 2 * (4 * [AGAINST] + [SOFT])),  # by its centre, too
            (1, 5 * [AGAINST] + 5 * [SOFT]),  # by those that are not flipped of the first
            (1, 2 * (4 * [SOFT] + [AGAINST])),
        ]
    ):
        pixels = np.zeros((18, 18, 3), dtype=np.uint8)
        for place, level in zip(PLACES, levels, strict=True):
            pixels[place] = level
        (tmp_path / "images" / f"class{truth}").mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(tmp_path / "images" / f"class{truth}" / f"{number}.png")
    images = opened(tmp_path / "images", 16, "rgb", tmp_path / "stores", Bench())
    # Steps so small that the classifier stays as it is.
    settings = Probe(epochs=1, steps=(1e-30,), decays=(0.0,), scaling="none", ten_crops=True)
    result, _ = probed_by(
        settings, lambda crops: {"pixel": crops[:, :1, 0, 0]}, images, images, by_pixel
    )
    (layer,) = result.layers
    assert layer.top1 == 0.25  # of the first image alone the centre is right
    assert layer.ten_crops_top1 == 1.0
