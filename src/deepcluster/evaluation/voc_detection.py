"""Object detection on Pascal VOC 2007 by Fast R-CNN (paper, section 4.4, tables 2 to 4)."""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from deepcluster.evaluation.bench import Bench
from deepcluster.evaluation.detection_map import detection_precisions
from deepcluster.evaluation.detector_images import Pictures, Scale
from deepcluster.evaluation.detector_training import Course, Halfway, taught
from deepcluster.evaluation.fast_rcnn import FastRCNN
from deepcluster.evaluation.limits import refuse_beyond
from deepcluster.evaluation.object_search import ObjectSearch
from deepcluster.evaluation.proposals import Regions, Source, made_once, maker_of, read_regions
from deepcluster.evaluation.region_samples import FOREGROUND
from deepcluster.evaluation.step_search import best_step, remark, searched
from deepcluster.evaluation.transfer import Contender, Material, Outcome, Shown, Stages, percent
from deepcluster.evaluation.voc import (
    Split,
    VocSet,
    find_devkit,
    refuse_common_sets,
    warn_of_left_out,
)
from deepcluster.evaluation.voc_objects import CLASSES
from deepcluster.images.folder import encoded
from deepcluster.runtime.errors import DataError, NumericsError, UsageError

FIGURES = ("eleven_point", "all_point")

_SHORT_SIDE, _LONG_SIDE, _AT = 600, 1000, 224  # of networks that were trained at that size


@dataclass(frozen=True)
class VOCDetection:
    """Fast R-CNN taught on trainval, judged on test."""

    train: Literal["fc6-8", "all"] = "fc6-8"
    """What is learnt: fc6 and fc7 with the new layers, or the convolutions too."""

    seeds: tuple[int, ...] = (0,)
    """Each names the randomness of one training; of random, its weights too."""

    proposals: Source = "auto"
    """Who finds regions: opencv's selective search, grouping (ours), or auto: opencv if there."""

    boxes: str | None = None
    """Folder with selective-search boxes, voc_2007_trainval.mat and voc_2007_test.mat."""

    regions: int = 2000
    """Regions of an image, at most."""

    short_side: int | None = None
    """Pixels of an image's short side; if not given 600 at 224 px of training, in proportion."""

    long_side: int | None = None
    """Pixels that its long side may have; if not given, 1000 where the short side has 600."""

    steps: tuple[float, ...] = (0.003, 0.01)
    """Step sizes (learning rates), of which that is taken that is best on val."""

    farther: int = 2
    """How many more are tried, half a decade farther, where the best is the outermost."""

    passes: float | None = None
    """How often each image is seen: 16 times, or 8 where all layers learn."""

    images_per_step: int = 8
    """Images whose regions are learnt from at a time."""

    regions_per_image: int = 64
    """Regions of each of them."""

    foreground: float = 0.25
    """Share of those that hold an object, at most."""

    lowest_background: float = 0.1
    """Overlap with an object that a region without one has at least."""

    momentum: float = 0.9
    """Of the steps."""

    decay: float = 5e-4
    """Weight decay; biases have none."""

    dropout: float = 0.5
    """Share of the inputs of fc6 and fc7 that is dropped while learning."""

    suppression: float = 0.3
    """Overlap with a surer box of its class, above which a box is dropped."""

    threshold: float = 0.01
    """Score below which a box is not reported."""

    detections: int = 100
    """Boxes of an image that are reported, at most."""

    def validate(self) -> None:
        """Refuse what cannot be carried out."""
        share = "0 to below 1"
        refuse_beyond(
            ("--seeds", self.seeds, len(self.seeds) > 0, "at least one number"),
            ("--seeds", self.seeds, len({*self.seeds}) == len(self.seeds), "each number once"),
            ("--regions", self.regions, self.regions >= 1, "at least 1"),
            (
                "--short-side",
                self.short_side,
                self.short_side is None or self.short_side >= 32,
                "at least 32",
            ),
            (
                "--long-side",
                self.long_side,
                self.long_side is None or self.long_side >= (self.short_side or 32),
                "--short-side up",
            ),
            ("--steps", self.steps, self.steps and min(self.steps) > 0, "numbers above 0"),
            ("--farther", self.farther, self.farther >= 0, "0 or more"),
            ("--passes", self.passes, self.length > 0, "a number above 0"),
            ("--images-per-step", self.images_per_step, self.images_per_step >= 1, "at least 1"),
            (
                "--regions-per-image",
                self.regions_per_image,
                self.regions_per_image >= 1,
                "at least 1",
            ),
            ("--foreground", self.foreground, 0 < self.foreground <= 1, "a share above 0"),
            (
                "--lowest-background",
                self.lowest_background,
                0 <= self.lowest_background < FOREGROUND,
                f"0 to below {FOREGROUND}",
            ),
            ("--momentum", self.momentum, 0 <= self.momentum < 1, share),
            ("--decay", self.decay, self.decay >= 0, "0 or above"),
            ("--dropout", self.dropout, 0 <= self.dropout < 1, share),
            ("--suppression", self.suppression, 0 <= self.suppression < 1, share),
            ("--threshold", self.threshold, 0 <= self.threshold < 1, share),
            ("--detections", self.detections, self.detections >= 1, "at least 1"),
        )
        if self.boxes is None:
            maker_of(self.proposals)
        elif not Path(self.boxes).is_dir():
            raise UsageError(f"--boxes {self.boxes}: there is no such folder")

    def __call__(
        self, contender: Contender, material: Material, bench: Bench, stages: Stages
    ) -> Outcome:
        """Read, find regions, learn, detect, judge."""
        devkit = find_devkit(material.data)
        splits = [name for pair in self.sets for name in pair]
        subject = contender.network(self.seeds[0])
        FastRCNN(subject, len(CLASSES), 0)  # refuses other networks before images are read
        scale = self.scale(subject.shape.input_size)
        shelf = material.shelf
        sets = {
            split: shelf((devkit, "annotated", split), partial(devkit.annotated, split))
            for split in splits
        }
        warn_of_left_out([sets["trainval"], sets["test"]])
        refuse_common_sets(self.sets, sets.__getitem__)
        for split, one in sets.items():
            if all(thing.difficult for image in one.images for thing in image.objects):
                where = encoded(str(one.folder))
                raise DataError(f"{where}: {split} has no object that is not difficult")
        bench.display.say(
            f"{len(sets['trainval']):,} images to learn from, {len(sets['test']):,} to find "
            "objects in"
        )
        regions: dict[Split, Regions] = {}
        described: dict[Split, dict[str, Any]] = {}
        for split in splits:  # trainval has the images of train and val
            asked = (devkit, split, self.boxes, self.proposals, self.regions)
            known = regions.get("trainval")
            regions[split], described[split] = shelf(
                ("regions", *asked),
                partial(self._regions, sets, split, known, material.stores, bench),
            )
        bench.display.say(
            f"regions by {described['test']['source']}: "
            f"{described['test']['boxes']:,.0f} an image, which overlap "
            f"{described['test']['recall']:.1%} of the objects of test by half"
        )

        def judged(seed: int, step: float, learn: Split, judge: Split) -> dict[str, Any]:
            name = f"detection-{self.train}-seed-{seed}-{judge}-step-{step:g}"
            key = {
                "network": contender.fingerprint(seed),
                "learn": [sets[learn].fingerprint, described[learn]["fingerprint"]],
                "judge": [sets[judge].fingerprint, described[judge]["fingerprint"]],
                "settings": {
                    **self._of_one_course(),
                    **asdict(scale),
                    "passes": self.length,
                    "step": step,  # the name has six digits of it
                },
            }
            text = json.dumps([stages.common, name, key], sort_keys=True).encode()
            digest = hashlib.blake2b(text, digest_size=8).hexdigest()
            half = Halfway(stages.folder, f"stages/{name}-{digest}.safetensors")
            if stages.fresh:
                half.forget()
            data = (sets[learn], regions[learn]), (sets[judge], regions[judge])
            device = bench.world.device
            pictures = shelf((device, "pictures"), partial(Pictures, device, bench.workers))

            def compute() -> dict[str, Any]:
                try:
                    return self._judged(contender, seed, step, *data, scale, pictures, bench, half)
                except NumericsError as error:
                    if judge == "test":
                        raise
                    return {"mean": None, "diverged": str(error)}

            result = stages(name, key, compute)
            half.forget()
            return result

        step, on_val = self.steps[0], {}
        if len(self.steps) > 1:

            def reached(step: float) -> float | None:
                mean = judged(self.seeds[0], step, "train", "val")["mean"]
                return None if mean is None else float(mean["eleven_point"])

            on_val = searched(self.steps, reached, self.farther)
            best = best_step(on_val)
            if best is None:
                raise NumericsError(
                    "learning diverges with every step; try smaller numbers for --steps"
                )
            step = best
        results = {seed: judged(seed, step, "trainval", "test") for seed in self.seeds}
        choice = {"step": step, "on_val": {f"{one:g}": value for one, value in on_val.items()}}
        outcome = self._outcome(contender.name, sets, described, choice, results)
        return replace(outcome, settled={**asdict(scale), "passes": self.length})

    def _of_one_course(self) -> dict[str, Any]:
        apart = ("steps", "farther", "seeds", "boxes", "proposals", "short_side", "long_side")
        return {key: value for key, value in asdict(self).items() if key not in apart}

    @property
    def sets(self) -> list[tuple[Split, Split]]:
        """Which set is learnt from and which one judged on: to report, and to choose the step."""
        choosing: list[tuple[Split, Split]] = [("train", "val")] if len(self.steps) > 1 else []
        return [("trainval", "test"), *choosing]

    @property
    def length(self) -> float:
        """Passes over the images."""
        return (16.0 if self.train == "fc6-8" else 8.0) if self.passes is None else self.passes

    @property
    def search(self) -> ObjectSearch:
        """How objects are looked for."""
        return ObjectSearch(self.threshold, self.suppression, self.detections)

    def scale(self, input_size: int) -> Scale:
        """As asked, or as large as the things in the network's training images were."""
        short = self.short_side or round(_SHORT_SIDE * input_size / _AT)
        return Scale(short, self.long_side or round(short * _LONG_SIDE / _SHORT_SIDE))

    def _regions(
        self,
        sets: dict[Split, VocSet],
        split: Split,
        known: Regions | None,
        stores: Path,
        bench: Bench,
    ) -> tuple[Regions, dict[str, Any]]:
        """The regions of a set, and what a result says of them."""
        images = sets[split]
        found = known and known.chosen(sets["trainval"], images)
        if found is None and self.boxes is not None:
            found = read_regions(Path(self.boxes), images, self.regions)
        if found is None:
            found = made_once(images, maker_of(self.proposals), self.regions, stores, bench)
        return found, found.described(images.images)

    def _judged(
        self,
        contender: Contender,
        seed: int,
        step: float,
        learn: tuple[VocSet, Regions],
        judge: tuple[VocSet, Regions],
        scale: Scale,
        pictures: Pictures,
        bench: Bench,
        half: Halfway,
    ) -> dict[str, Any]:
        """Teach one detector and judge it."""
        begin = time.monotonic()
        model = FastRCNN(contender.network(seed), len(CLASSES), seed)
        course = Course(
            learnt=self.train,
            step=step,
            iterations=max(1, round(self.length * len(learn[0]) / self.images_per_step)),
            images_per_step=self.images_per_step,
            regions_per_image=self.regions_per_image,
            foreground=self.foreground,
            lowest_background=self.lowest_background,
            momentum=self.momentum,
            decay=self.decay,
            dropout=self.dropout,
            seed=seed,
        )
        progress = taught(model, learn[0].images, learn[1], scale, course, bench, half, pictures)
        taught_at = time.monotonic()
        found = self.search(model, judge[0].images, judge[1], scale, bench, pictures)
        precisions = detection_precisions(found, judge[0].images)
        there = [one for one in precisions if one is not None]
        tenth = max(1, len(progress.losses) // 10)
        return {
            "mean": {
                figure: float(np.mean([getattr(one, figure) for one in there]))
                for figure in FIGURES
            },
            "classes": {
                name: None if one is None else {figure: getattr(one, figure) for figure in FIGURES}
                for name, one in zip(CLASSES, precisions, strict=True)
            },
            "detections": len(found),
            "iterations": course.iterations,
            "loss_first": np.mean(progress.losses[:tenth], axis=0).tolist(),
            "loss_last": np.mean(progress.losses[-tenth:], axis=0).tolist(),
            "seconds": {
                "learn": round(taught_at - begin, 2),
                "detect": round(time.monotonic() - taught_at, 2),
            },
        }

    def _outcome(
        self,
        name: str,
        sets: dict[Split, VocSet],
        described: dict[Split, dict[str, Any]],
        choice: dict[str, Any],
        results: dict[int, dict[str, Any]],
    ) -> Outcome:
        several = len(results) > 1
        values = {
            figure: [result["mean"][figure] for result in results.values()] for figure in FIGURES
        }
        mean = {figure: float(np.mean(values[figure])) for figure in FIGURES}
        spread = {figure: float(np.std(values[figure], ddof=1)) for figure in FIGURES if several}
        rows = [["mean over classes", *(percent(mean[figure]) for figure in FIGURES)]]
        if several:
            rows.append(["spread over seeds", *(percent(spread[figure]) for figure in FIGURES)])
        for label in CLASSES:
            found = [one for result in results.values() if (one := result["classes"][label])]
            means = [
                np.mean([one[figure] for one in found]) if found else None for figure in FIGURES
            ]
            rows.append([label, *map(percent, means)])
        recall = described["test"]["recall"]
        title = f"{name}: voc-detection, {self.train}, on {sets['test'].folder.name} test"
        remarks = [
            f"regions by {described['test']['source']}, {described['test']['boxes']:,.0f} an "
            f"image: their recall is {recall:.1%} at an overlap of 0.5, and objects that "
            "no region covers can hardly be found"
        ]
        if choice["on_val"]:
            tried = ", ".join(
                f"{step}: {percent(value)}" for step, value in choice["on_val"].items()
            )
            remarks.append(f"step {choice['step']:g}, chosen on val ({tried})")
            remarks += remark(choice["step"], [float(step) for step in choice["on_val"]])
        return Outcome(
            data={
                # With their regions: others of them make another result.
                split: {
                    **sets[split].described(),
                    "regions": {key: described[split][key] for key in ("source", "fingerprint")},
                }
                for split in sets
            },
            result={
                "mean": mean,
                "spread": spread or None,
                "choice": choice,
                "regions": described,
                "seeds": {str(seed): result for seed, result in results.items()},
            },
            tables=[Shown(title, ["average precision, %", "11-point", "all-point"], rows)],
            remarks=remarks,
        )
