"""VOC segmentation: the class of every pixel (paper, section 4.4, table 2)."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from deepcluster.evaluation.bench import Bench
from deepcluster.evaluation.candidates import Schedule
from deepcluster.evaluation.evaluated import Evaluated
from deepcluster.evaluation.limits import refuse_beyond
from deepcluster.evaluation.mean_iou import Overlap
from deepcluster.evaluation.segmented_images import SegmentedImages
from deepcluster.evaluation.segmenter_training import Course, confusion_of, taught
from deepcluster.evaluation.step_search import best_step, remark, searched
from deepcluster.evaluation.transfer import (
    Contender,
    Material,
    Outcome,
    Shown,
    Stages,
    percent,
    time_spent,
)
from deepcluster.evaluation.voc import (
    Devkit,
    Split,
    VocSet,
    Year,
    find_devkit,
    refuse_common,
    warn_of_left_out,
)
from deepcluster.evaluation.voc_objects import CLASSES
from deepcluster.images.folder import encoded
from deepcluster.runtime.errors import DataError, NumericsError, UsageError
from deepcluster.runtime.seeds import generator

NAMES = ("background", *CLASSES)


@dataclass(frozen=True)
class VOCSegmentation:
    """How the classes of pixels are learnt; the step is chosen on a part of the training set."""

    train: Literal["fc6-8", "all"] = "fc6-8"
    """fc6-8: the convolutions and their batch norms stay. all: both learn too."""

    seeds: tuple[int, ...] = (0,)
    """Each names the randomness of one training; of random, its weights too."""

    year: Year | None = None
    """Which folder of a VOCdevkit that has several; 2012 if it is there."""

    learn_on: Split | None = None
    """Set to learn from; train of VOC2012 and trainval of VOC2007 if not given."""

    judge_on: Split | None = None
    """Set to judge on; val of VOC2012 and test of VOC2007 if not given."""

    finest: Literal[32, 16, 8] = 32
    """Pixels between scores of the finest layer that has some: FCN's 32s, 16s and 8s."""

    epochs: int | None = None
    """Passes over the training images, of which the last is reported: 60, or 40 of all layers."""

    batch: int = 16
    """Images per step."""

    steps: tuple[float, ...] = (0.003, 0.01, 0.03)
    """Candidate step sizes (learning rates)."""

    farther: int = 2
    """How many more are tried, half a decade farther, where the best is the outermost."""

    decay: float = 5e-4
    """Weight decay."""

    momentum: float = 0.9
    """Momentum."""

    schedule: Schedule = "cosine"
    """cosine: to zero. steps: a tenth after each third. constant."""

    dropout: float = 0.5
    """Share of the outputs of fc6 and fc7 that is dropped while learning."""

    held_out: float = 0.2
    """Share of the training images that the step is chosen by."""

    def validate(self) -> None:
        """Refuse what cannot be carried out."""
        refuse_beyond(
            ("--seeds", self.seeds, len(self.seeds) > 0, "at least one number"),
            ("--seeds", self.seeds, len({*self.seeds}) == len(self.seeds), "each number once"),
            ("--epochs", self.epochs, self.length >= 1, "at least 1"),
            ("--batch", self.batch, self.batch >= 1, "at least 1"),
            ("--steps", self.steps, self.steps and min(self.steps) > 0, "numbers above 0"),
            ("--farther", self.farther, self.farther >= 0, "0 or more"),
            ("--decay", self.decay, self.decay >= 0, "0 or above"),
            ("--momentum", self.momentum, 0 <= self.momentum < 1, "0 to below 1"),
            ("--dropout", self.dropout, 0 <= self.dropout < 1, "0 to below 1"),
            ("--held-out", self.held_out, 0 < self.held_out < 1, "a share between 0 and 1"),
        )

    def __call__(
        self, contender: Contender, material: Material, bench: Bench, stages: Stages
    ) -> Outcome:
        """Choose the step on held-out images, learn with each seed, judge."""
        devkit, learn_on, judge_on = self.sets(material.data)
        bench.display.say(f"reading {encoded(str(devkit.folder))}")
        shelf, device = material.shelf, bench.world.device
        train, test = (
            shelf((devkit, "segmented", split), partial(devkit.segmented, split))
            for split in (learn_on, judge_on)
        )
        warn_of_left_out([train, test])
        refuse_common(train, test, "--learn-on and --judge-on")
        if len(train) < 2:
            raise DataError(
                f"{encoded(str(train.folder))}: the set {train.split} has {len(train)} usable "
                "image; one to learn from and one to choose the step by are the least"
            )
        bench.display.say(f"{len(train):,} training and {len(test):,} test images")
        pixels = {
            one.split: shelf(
                (devkit, "segmented pixels", one.split, device),
                partial(SegmentedImages, one, bench),
            )
            for one in (train, test)
        }
        data = {"train": train.described(), "test": test.described()}
        apart = ("seeds", "year", "steps", "learn_on", "judge_on")
        settings = {**asdict(self), **dict.fromkeys(apart), "epochs": self.length}
        del settings["farther"]  # it decides which steps are tried, not what one of them reaches
        step, choice = self.steps[0], None
        if len(self.steps) > 1:
            choice = self._choice(contender, pixels[learn_on], train, settings, bench, stages)
            step = choice["step"]
        results = {}
        for seed in self.seeds:
            key = {
                "network": contender.fingerprint(seed),
                "images": [train.fingerprint, test.fingerprint],
                "settings": {**settings, "held_out": None},
                "seed": seed,
                "step": step,
            }
            results[seed] = stages(
                f"voc-segmentation-seed-{seed}",
                key,
                lambda seed=seed: self._result(  # type: ignore[misc]
                    contender.network(seed), step, pixels[learn_on], pixels[judge_on], seed, bench
                ),
            )
        outcome = self._outcome(contender.name, devkit.folder.name, data, step, choice, results)
        settled = {"learn_on": learn_on, "judge_on": judge_on, "epochs": self.length}
        return replace(outcome, settled=settled)

    def sets(self, data: Path | None, flag: str = "--data") -> tuple[Devkit, Split, Split]:
        """Which devkit it is, and its sets to learn from and to judge on."""
        devkit = None
        if self.year is None and data is not None and data.is_dir():
            with suppress(UsageError):
                devkit = find_devkit(data, 2012, flag)
        devkit = devkit or find_devkit(data, self.year or 2007, flag)
        is_2007 = self.year == 2007 or devkit.folder.resolve().name == "VOC2007"
        learn_on: Split = self.learn_on or ("trainval" if is_2007 else "train")
        return devkit, learn_on, self.judge_on or ("test" if is_2007 else "val")

    def _choice(
        self,
        contender: Contender,
        pixels: SegmentedImages,
        train: VocSet,
        settings: dict[str, Any],
        bench: Bench,
        stages: Stages,
    ) -> dict[str, Any]:
        """The step that reaches most on held-out images, with the first seed."""
        seed = self.seeds[0]
        held: dict[float, dict[str, Any]] = {}

        def reached(step: float) -> float | None:
            number = len({*held, step})
            title = f"choosing, step {step:g} ({number} of {max(number, len({*self.steps}))})"
            key = {
                "network": contender.fingerprint(seed),
                "images": train.fingerprint,
                "settings": settings,
                "seed": seed,
                "step": step,
            }
            held[step] = stages(
                f"voc-segmentation-choice-{step:g}",
                key,
                lambda: self._on_held_out(
                    contender.network(seed), step, pixels, seed, bench, title
                ),
            )
            figure: float | None = held[step]["mean_iou"]
            return figure

        tried = searched(self.steps, reached, self.farther)
        best = best_step(tried)
        if best is None:
            raise NumericsError(
                "learning diverges with every step; try smaller numbers for --steps"
            )
        return {
            "step": best,
            "mean_iou": tried[best],
            "held_out": held[best]["held_out"],
            "candidates": [{"step": step, "mean_iou": figure} for step, figure in tried.items()],
            "seconds": {
                part: round(sum(one["seconds"].get(part, 0.0) for one in held.values()), 3)
                for part in ("learn", "test")
            },
        }

    def _on_held_out(
        self,
        subject: Evaluated,
        step: float,
        train: SegmentedImages,
        seed: int,
        bench: Bench,
        title: str,
    ) -> dict[str, Any]:
        """What this step reaches on images of the training set that it has not learnt from."""
        order = torch.randperm(len(train), generator=generator(seed, "segmentation-held-out"))
        count = min(len(train) - 1, max(1, round(self.held_out * len(train))))
        held, kept = (np.sort(part.numpy()) for part in (order[:count], order[count:]))
        for part in (held, kept):
            train.refuse_unjudged(part, "; try another --held-out or --seeds")
        seconds: dict[str, float] = {}
        network = taught(
            subject, train, kept, self._course(step, seed), bench, len(NAMES), title, seconds
        )
        if network is None:
            return {"mean_iou": None, "seconds": seconds}
        try:
            counts = confusion_of(network, train, held, len(NAMES), bench, seconds)
        except NumericsError:
            return {"mean_iou": None, "seconds": seconds}
        return {"mean_iou": Overlap.of(counts).mean, "held_out": count, "seconds": seconds}

    def _result(
        self,
        subject: Evaluated,
        step: float,
        train: SegmentedImages,
        test: SegmentedImages,
        seed: int,
        bench: Bench,
    ) -> dict[str, Any]:
        """What is reached on the test images after learning from all training images."""
        begun = time.monotonic()
        seconds: dict[str, float] = {}
        everything = np.arange(len(train))
        train.refuse_unjudged(everything)
        # A damaged image too is found now and not when all is learnt.
        test.refuse_unjudged(np.arange(len(test)))
        title = f"learning, seed {seed}"
        network = taught(
            subject, train, everything, self._course(step, seed), bench, len(NAMES), title, seconds
        )
        if network is None:
            raise NumericsError(
                f"with seed {seed} and step {step:g} learning has diverged; try smaller numbers "
                "for --steps"
            )
        counts = confusion_of(network, test, np.arange(len(test)), len(NAMES), bench, seconds)
        overlap = Overlap.of(counts)
        return {
            "mean_iou": overlap.mean,
            "pixel_accuracy": overlap.pixels,
            "classes": dict(zip(NAMES, overlap.classes, strict=True)),
            "confusion": counts.tolist(),
            "trained_on": len(train),
            "tested_on": len(test),
            "seconds": {**seconds, "all": round(time.monotonic() - begun, 3)},
        }

    @property
    def length(self) -> int:
        """Epochs."""
        return (60 if self.train == "fc6-8" else 40) if self.epochs is None else self.epochs

    def _course(self, step: float, seed: int) -> Course:
        return Course(
            learnt=self.train,
            finest=self.finest,
            epochs=self.length,
            batch=self.batch,
            step=step,
            decay=self.decay,
            momentum=self.momentum,
            schedule=self.schedule,
            dropout=self.dropout,
            seed=seed,
        )

    def _outcome(
        self,
        name: str,
        year: str,
        data: dict[str, Any],
        step: float,
        choice: dict[str, Any] | None,
        results: dict[int, dict[str, Any]],
    ) -> Outcome:
        figures = ("mean_iou", "pixel_accuracy")
        every = {figure: [one[figure] for one in results.values()] for figure in figures}
        several = len(results) > 1
        result = {
            "mean_iou": statistics.fmean(every["mean_iou"]),
            "spread": statistics.stdev(every["mean_iou"]) if several else None,
            "pixel_accuracy": statistics.fmean(every["pixel_accuracy"]),
            "step": step,
            "choice": choice,
            "seeds": {str(seed): one for seed, one in results.items()},
        }
        title = f"{name}: {year} segmentation, {self.train} learnt, {self.finest}s"
        if several:
            title += f", mean of {len(results)} seeds"
        rows = [_row("mean over classes", every["mean_iou"], several)]
        rows += [
            _row(kind, [one["classes"][kind] for one in results.values()], several)
            for kind in NAMES
        ]
        rows.append(_row("pixels right", every["pixel_accuracy"], several))
        columns = ["intersection over union, %", "IoU", *(["spread"] if several else [])]
        return Outcome(
            data, result, [Shown(title, columns, rows)], self._remarks(step, choice, results)
        )

    def _remarks(
        self, step: float, choice: dict[str, Any] | None, results: dict[int, dict[str, Any]]
    ) -> list[str]:
        said = []
        if choice is not None:
            said.append(
                f"step {step:g}, chosen on {choice['held_out']:,} training images held out, where "
                f"it reaches {percent(choice['mean_iou'])}"
            )
            said += remark(step, [one["step"] for one in choice["candidates"]])
        first = next(iter(results.values()))
        missing = [kind for kind, share in first["classes"].items() if share is None]
        if missing:
            said.append(
                f"no test image shows {', '.join(missing[:3])}"
                + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
                + "; the mean is over the others"
            )
        return said + time_spent(results.values(), choice)


def _row(title: str, values: Sequence[float | None], several: bool) -> list[str]:
    there = [value for value in values if value is not None]
    if len(there) < len(values):
        return [title, "-", *(["-"] if several else [])]
    spread = [percent(statistics.stdev(there))] if several else []
    return [title, percent(statistics.fmean(there)), *spread]
