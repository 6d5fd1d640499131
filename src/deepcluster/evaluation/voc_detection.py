"""Object detection on Pascal VOC 2007 by Fast R-CNN (paper, section 4.4, tables 2 to 4)."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torchvision.ops import batched_nms

from deepcluster.evaluation.bench import Bench
from deepcluster.evaluation.boxes import moved, within
from deepcluster.evaluation.detection_map import Detections, detection_precisions
from deepcluster.evaluation.detector_images import Scale, decoded
from deepcluster.evaluation.detector_training import Course, Halfway, taught
from deepcluster.evaluation.fast_rcnn import FastRCNN
from deepcluster.evaluation.proposals import Regions, Source, made_once, maker_of, read_regions
from deepcluster.evaluation.transfer import Contender, Material, Outcome, Shown, Stages, percent
from deepcluster.evaluation.voc import (
    CLASSES,
    Split,
    VocImage,
    VocSet,
    find_devkit,
    warn_of_left_out,
)
from deepcluster.runtime import interruption
from deepcluster.runtime.errors import UsageError
from deepcluster.runtime.interruption import Interrupted

_MOST_JUDGED = 6_000  # boxes of an image that suppression looks at, over all classes


@dataclass(frozen=True)
class VocDetection:
    """Fast R-CNN taught on trainval, judged on test."""

    train: Literal["fc6-8", "all"] = "fc6-8"
    """What is learnt: fc6 and fc7 with the new layers, or the convolutions too."""

    proposals: Source = "auto"
    """Who finds regions: opencv's selective search, grouping (ours), or auto: opencv if there."""

    boxes: str | None = None
    """Folder with selective-search boxes, voc_2007_trainval.mat and voc_2007_test.mat."""

    regions: int = 2000
    """Regions of an image, at most."""

    short_side: int = 600
    """Pixels that the short side of an image is made to have."""

    long_side: int = 1000
    """Pixels that its long side may have; the short one then has fewer."""

    steps: tuple[float, ...] = (0.001,)
    """Step size (learning rate); of several, that which is best on val after learning on train."""

    passes: float = 16.0
    """How often each image is seen; the step falls to a tenth after three quarters."""

    images_per_step: int = 2
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

    suppression: float = 0.3
    """Overlap with a surer box of its class, above which a box is dropped."""

    threshold: float = 0.01
    """Score below which a box is not reported."""

    detections: int = 100
    """Boxes of an image that are reported, at most."""

    seed: int = 0
    """Names all randomness; of random, its weights too."""

    seeds: int = 1
    """How many seeds, from that on, are taken for the mean and the spread."""

    def validate(self) -> None:
        """Refuse what cannot be carried out."""
        least = {"regions": 1, "short_side": 32, "images_per_step": 1, "regions_per_image": 1}
        for name, value in {**least, "detections": 1, "seeds": 1}.items():
            if getattr(self, name) < value:
                raise UsageError(f"--{_flag(name)} {getattr(self, name)}: use at least {value}")
        if self.long_side < self.short_side:
            raise UsageError(f"--long-side {self.long_side}: use at least --short-side")
        if not self.steps or min(self.steps) <= 0:
            raise UsageError("--steps: use numbers above 0")
        if self.passes <= 0:
            raise UsageError(f"--passes {self.passes:g}: use a number above 0")
        for name in ("foreground", "lowest_background", "suppression", "threshold"):
            if not 0 <= getattr(self, name) < 1:
                raise UsageError(f"--{_flag(name)} {getattr(self, name):g}: use 0 to below 1")
        if not 0 <= self.momentum < 1 or self.decay < 0:
            raise UsageError("--momentum must be from 0 to below 1, --decay not below 0")
        if self.boxes is None:
            maker_of(self.proposals)
        elif not Path(self.boxes).is_dir():
            raise UsageError(f"--boxes {self.boxes}: there is no such folder")

    def __call__(
        self, contender: Contender, material: Material, bench: Bench, stages: Stages
    ) -> Outcome:
        """Read, find regions, learn, detect, judge."""
        devkit = find_devkit(material.data)
        chooses = len(self.steps) > 1
        splits: tuple[Split, ...] = ("trainval", "test")
        if chooses:
            splits += ("train", "val")
        subject = contender.network(self.seed)
        FastRCNN(subject, len(CLASSES), self.seed)  # refuses other networks before images are read
        sets = {split: devkit.annotated(split) for split in splits}
        warn_of_left_out([sets["trainval"], sets["test"]])
        bench.display.say(
            f"{len(sets['trainval']):,} images to learn from, {len(sets['test']):,} to find "
            "objects in"
        )
        regions = {split: self._regions(sets[split], material.stores, bench) for split in splits}
        described = {name: regions[name].described(sets[name].images) for name in splits}
        bench.display.say(
            f"regions by {described['test']['source']}: "
            f"{described['test']['boxes']:,.0f} an image, which overlap "
            f"{described['test']['recall']:.1%} of the objects of test by half"
        )
        runs = []
        for seed in range(self.seed, self.seed + self.seeds):

            def judged(step: float, learn: Split, judge: Split, seed: int = seed) -> dict[str, Any]:
                name = f"detection-{self.train}-seed-{seed}-{judge}-step-{step:g}"
                key = {
                    "network": contender.network(seed).fingerprint,
                    "learn": [sets[learn].fingerprint, described[learn]["fingerprint"]],
                    "judge": [sets[judge].fingerprint, described[judge]["fingerprint"]],
                    "settings": self._of_one_course(),
                }
                text = json.dumps([stages.common, name, key], sort_keys=True).encode()
                digest = hashlib.blake2b(text, digest_size=8).hexdigest()
                half = Halfway(stages.folder, f"stages/{name}-{digest}.safetensors")
                if stages.fresh:
                    half.forget()
                data = (sets[learn], regions[learn]), (sets[judge], regions[judge])
                result = stages(
                    name, key, lambda: self._judged(contender, seed, step, *data, bench, half)
                )
                half.forget()
                return result

            step, tried = self.steps[0], {}
            if chooses:
                tried = {step: judged(step, "train", "val")["map"] for step in self.steps}
                step = max(self.steps, key=lambda one: tried[one])
            runs.append({"seed": seed, "step": step, **judged(step, "trainval", "test")})
            runs[-1]["on_val"] = {f"{one:g}": value for one, value in tried.items()}
        return self._outcome(contender.name, sets, described, runs)

    def _of_one_course(self) -> dict[str, Any]:
        apart = ("steps", "seed", "seeds", "boxes", "proposals")
        return {key: value for key, value in asdict(self).items() if key not in apart}

    def _regions(self, images: VocSet, stores: Path, bench: Bench) -> Regions:
        if self.boxes is not None:
            return read_regions(Path(self.boxes), images, self.regions)
        return made_once(images, maker_of(self.proposals), self.regions, stores, bench)

    def _judged(
        self,
        contender: Contender,
        seed: int,
        step: float,
        learn: tuple[VocSet, Regions],
        judge: tuple[VocSet, Regions],
        bench: Bench,
        half: Halfway,
    ) -> dict[str, Any]:
        """Teach one detector and judge it."""
        begin = time.monotonic()
        model = FastRCNN(contender.network(seed), len(CLASSES), seed)
        scale = Scale(self.short_side, self.long_side)
        course = Course(
            learnt=self.train,
            step=step,
            iterations=max(1, round(self.passes * len(learn[0]) / self.images_per_step)),
            images_per_step=self.images_per_step,
            regions_per_image=self.regions_per_image,
            foreground=self.foreground,
            lowest_background=self.lowest_background,
            momentum=self.momentum,
            decay=self.decay,
            seed=seed,
        )
        progress = taught(model, learn[0].images, learn[1], scale, course, bench, half)
        taught_at = time.monotonic()
        found = self.detected(model, judge[0].images, judge[1], scale, bench)
        precisions = detection_precisions(found, judge[0].images)
        there = [precision for precision in precisions if precision is not None]
        tenth = max(1, len(progress.losses) // 10)
        return {
            "map": float(np.mean([precision.eleven_point for precision in there])),
            "map_all_point": float(np.mean([precision.all_point for precision in there])),
            "classes": {
                name: None if one is None else [one.eleven_point, one.all_point]
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

    @torch.no_grad()
    def detected(
        self,
        model: FastRCNN,
        images: Sequence[VocImage],
        regions: Regions,
        scale: Scale,
        bench: Bench,
    ) -> Detections:
        """What the model finds in the images, each process in its share of them."""
        world, device = bench.world, bench.world.device
        model.eval()
        share = world.share(len(images))
        mine = images[share.start : share.stop]
        rows = [torch.zeros(0, 7, dtype=torch.float64, device=device)]
        with bench.display.phase("finding objects", len(mine), {}, "detect") as phase:
            for place, pixels in zip(share, decoded(mine, device, bench.workers), strict=True):
                boxes = torch.from_numpy(regions.boxes[place]).to(device)
                found = self._found(model, pixels, boxes, images[place], scale, bench)
                number = torch.full((len(found), 1), place, dtype=torch.float64, device=device)
                rows.append(torch.cat([number, found], dim=1))
                phase.advance()
                if world.size == 1:  # several processes end at the next step that they share
                    interruption.raise_if_asked()
        if world.any(interruption.asked() is not None):
            raise Interrupted(interruption.asked() or interruption.TERMINATED)
        every = world.gather(torch.cat(rows)).cpu().numpy()
        return Detections(
            every[:, 0].astype(np.int64), every[:, 1].astype(np.int64), every[:, 2], every[:, 3:]
        )

    def _found(
        self,
        model: FastRCNN,
        pixels: Tensor,
        regions: Tensor,
        image: VocImage,
        scale: Scale,
        bench: Bench,
    ) -> Tensor:
        """Of one image: label, score and box of each detection, the surest first."""
        factors = regions.new_tensor(scale.factors(image)).repeat(2)
        with torch.autocast(pixels.device.type, bench.autocast, enabled=bench.autocast is not None):
            pooled = model.pooled(model.maps(scale(pixels)), (regions * factors).float())
            scores, offsets = model(pooled)
        shares = scores.softmax(dim=1)[:, :-1]
        boxes = within(moved(regions.float(), offsets), image.width, image.height)
        places, labels = torch.nonzero(shares >= self.threshold, as_tuple=True)
        sure = shares[places, labels]
        order = sure.argsort(descending=True, stable=True)[:_MOST_JUDGED]
        places, labels, sure = places[order], labels[order], sure[order]
        chosen = boxes[places, labels]
        kept = batched_nms(chosen, sure, labels, self.suppression)[: self.detections]
        columns = [labels[kept, None], sure[kept, None], chosen[kept]]
        return torch.cat([column.double() for column in columns], dim=1)

    def _outcome(
        self,
        name: str,
        sets: dict[Split, VocSet],
        described: dict[Split, dict[str, Any]],
        runs: list[dict[str, Any]],
    ) -> Outcome:
        elevens = [run["map"] for run in runs]
        alls = [run["map_all_point"] for run in runs]
        spreads = [
            float(np.std(maps, ddof=1)) if len(runs) > 1 else None for maps in (elevens, alls)
        ]
        result = {
            "map": float(np.mean(elevens)),
            "map_all_point": float(np.mean(alls)),
            "spread": spreads[0],
            "regions": described,
            "runs": runs,
        }
        title = f"{name}: voc-detection, {self.train}, on {sets['test'].folder.name} test"
        rows = [
            [
                f"seed {run['seed']}",
                percent(run["map"]),
                percent(run["map_all_point"]),
                f"{run['step']:g}",
            ]
            for run in runs
        ]
        if len(runs) > 1:
            rows.append(["mean", percent(np.mean(elevens)), percent(np.mean(alls)), ""])
            rows.append(["spread", *map(percent, spreads), ""])
        recall = percent(described["test"]["recall"])
        rows.append(["recall of the regions", recall, recall, ""])
        classes = []
        for label in CLASSES:
            figures = [run["classes"][label] for run in runs if run["classes"][label] is not None]
            both = np.mean(figures, axis=0) if figures else (None, None)
            classes.append([label, percent(both[0]), percent(both[1])])
        return Outcome(
            data={split: sets[split].described() for split in sets},
            result=result,
            tables=[
                Shown(title, ["", "mAP", "all-point", "step"], rows),
                Shown("average precision by class", ["class", "11-point", "all-point"], classes),
            ],
            remarks=[
                "no detector is better than its regions: their recall at an overlap of 0.5 bounds "
                "the mAP"
            ],
        )


def _flag(name: str) -> str:
    return name.replace("_", "-")
