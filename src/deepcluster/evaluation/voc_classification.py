"""VOC2007 classification: which of 20 classes an image shows (paper, section 4.4, table 2)."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from deepcluster.evaluation.bench import Bench, frozen
from deepcluster.evaluation.candidates import Candidate, Schedule, grid
from deepcluster.evaluation.classification_figures import judged_classes, mean_of, outcome_of
from deepcluster.evaluation.evaluated import Evaluated
from deepcluster.evaluation.labelled_images import cropped_from, packed
from deepcluster.evaluation.limits import refuse_beyond
from deepcluster.evaluation.mlp import hidden_width
from deepcluster.evaluation.multi_label import (
    Classifiers,
    Course,
    MultiLabelled,
    TestCrops,
    part_view,
)
from deepcluster.evaluation.step_search import searched
from deepcluster.evaluation.transfer import Contender, Material, Outcome, Shown, Stages, percent
from deepcluster.evaluation.voc import (
    LeftOut,
    Split,
    VocSet,
    find_devkit,
    refuse_common_sets,
    warn_of_labels,
    warn_of_left_out,
)
from deepcluster.evaluation.voc_objects import CLASSES
from deepcluster.images.folder import encoded
from deepcluster.images.kept import Colour
from deepcluster.images.loader import Images
from deepcluster.runtime.errors import DataError, NumericsError

NOT_DECODED = "image cannot be decoded"
"""Why images are left out that their set, as it is read, still has."""


@dataclass(frozen=True)
class VOCClassification:
    """How the classes of VOC2007 are learnt; candidates are chosen on val, reported on test."""

    train: Literal["fc6-8", "all"] = "fc6-8"
    """fc6-8: the convolutions and their batch norms stay. all: both learn too."""

    on: Literal["test", "val"] = "test"
    """test: what is chosen learns from trainval. val: what is chosen on val reaches there."""

    seeds: tuple[int, ...] = (0,)
    """Each names the randomness of one training; of random, its weights too."""

    epochs: int | None = None
    """Passes over the training images, of which the last is reported: 150, or 75 of all layers."""

    batch: int = 128
    """Images per step."""

    steps: tuple[float, ...] = (0.003, 0.01, 0.03)
    """Candidate step sizes (learning rates)."""

    farther: int = 2
    """How many more are tried, half a decade farther, where the best is the outermost."""

    decays: tuple[float, ...] | None = None
    """Candidate weight decays: 1e-6 and 1e-3, or 1e-4 alone where all layers learn."""

    momentum: float = 0.9
    """Momentum of every candidate."""

    schedule: Schedule = "cosine"
    """cosine: to zero. steps: a tenth after each third. constant."""

    dropout: float = 0.5
    """Share of the inputs of fc6 and fc7 that is dropped while learning."""

    hidden: int | None = None
    """Width of fc6 and fc7; the network's own if not given, 4096 where it has none."""

    least: float = 0.1
    """Smallest share of an image's area that a random crop shows."""

    most: float = 0.5
    """Largest share of an image's area that a random crop shows."""

    test_crops: TestCrops = "random"
    """random: ten random crops, as in training. ten: corners and centre, flipped too."""

    def validate(self) -> None:
        """Refuse what cannot be carried out."""
        refuse_beyond(
            ("--seeds", self.seeds, len(self.seeds) > 0, "at least one number"),
            ("--seeds", self.seeds, len({*self.seeds}) == len(self.seeds), "each number once"),
            ("--epochs", self.epochs, self.length >= 1, "at least 1"),
            ("--batch", self.batch, self.batch >= 1, "at least 1"),
            ("--steps", self.steps, self.steps and min(self.steps) > 0, "numbers above 0"),
            ("--farther", self.farther, self.farther >= 0, "0 or more"),
            (
                "--decays",
                self.decays,
                self.decays is None or (self.decays and min(self.decays) >= 0),
                "0 or above",
            ),
            ("--momentum", self.momentum, 0 <= self.momentum < 1, "0 to below 1"),
            ("--dropout", self.dropout, 0 <= self.dropout < 1, "0 to below 1"),
            ("--hidden", self.hidden, self.hidden is None or self.hidden >= 1, "at least 1"),
            ("--least", self.least, 0 < self.least < 1, "a share between 0 and 1"),
            ("--most", self.most, self.least < self.most <= 1, "a share above --least, up to 1"),
        )

    @property
    def candidates(self) -> list[Candidate]:
        """What is chosen from; where all layers learn, each of them is a course of its own."""
        own = (1e-6, 1e-3) if self.train == "fc6-8" else (1e-4,)
        return grid(self.steps, own if self.decays is None else self.decays)

    @property
    def sets(self) -> list[tuple[Split, Split]]:
        """Which set is learnt from and which one judged on, first to choose, then to report."""
        pairs: list[tuple[Split, Split]] = []
        if self.on == "val" or len(self.candidates) > 1:
            pairs.append(("train", "val"))
        return pairs if self.on == "val" else [*pairs, ("trainval", "test")]

    @property
    def length(self) -> int:
        """Epochs."""
        return (150 if self.train == "fc6-8" else 75) if self.epochs is None else self.epochs

    def __call__(
        self, contender: Contender, material: Material, bench: Bench, stages: Stages
    ) -> Outcome:
        """Choose step and decay on val, learn from trainval with each seed, judge on test.

        Judged on val, which is how the paper chose every hyper-parameter of its own, nothing is
        learnt from trainval.
        """
        devkit = find_devkit(material.data, 2007)
        candidates = self.candidates
        names = [name for pair in self.sets for name in pair]
        subject = contender.network(self.seeds[0])
        bench.display.say(f"reading {encoded(str(devkit.folder))}")
        shelf, shape = material.shelf, subject.shape
        # First: what is missing there is said by name, and needs no image decoded.
        annotated = [
            shelf((devkit, "annotated", name), partial(devkit.annotated, name)) for name in names
        ]
        size = self._store_size(shape.input_size)
        images = shelf(
            (devkit, "crops", size, shape.input_size, subject.colour),
            lambda: _cropped(
                devkit.folder, shape.input_size, size, subject.colour, material, bench
            ),
        )
        there = {*images.names}
        sets = [_decoded(one, there) for one in annotated]
        warn_of_left_out(sets)
        warn_of_labels(sets)
        by_name = {one.split: one for one in sets}
        refuse_common_sets(self.sets, by_name.__getitem__)
        parts = {one.split: _part(one, images) for one in sets}
        bench.display.say(
            f"{len(parts[names[-2]]):,} training and {len(parts[names[-1]]):,} {names[-1]} images "
            f"of {len(CLASSES)} classes"
        )
        course = {"epochs": self.length, "decays": sorted({one.decay for one in candidates})}
        settled = {**course, "hidden": hidden_width(subject.network, self.hidden)}
        settings = {
            **{key: value for key, value in asdict(self).items() if key != "on"},
            "seeds": None,
            **course,
        }
        if bench.world.size > 1:  # each has dropout, and batch norms that learn, of its own
            settings["processes"] = bench.world.size
        data = {one.split: one.described() for one in sets}

        def choice_of(seed: int) -> dict[str, Any]:
            key = {
                "network": contender.fingerprint(seed),
                "images": [data["train"]["fingerprint"], data["val"]["fingerprint"]],
                "settings": settings,
                "seed": seed,
            }
            return stages(
                "voc-classification-choice",
                key,
                lambda: self._choice(contender, parts, seed, bench),
            )

        if self.on == "val":
            choices = {seed: choice_of(seed) for seed in self.seeds}
            return replace(self._outcome_on_val(contender, data, choices), settled=settled)
        chosen, choice = candidates[0], None
        if len(candidates) > 1:
            choice = choice_of(self.seeds[0])
            chosen = Candidate(choice["step"], choice["decay"])
        results = {}
        for seed in self.seeds:
            key = {
                "network": contender.fingerprint(seed),
                "images": [data["trainval"]["fingerprint"], data["test"]["fingerprint"]],
                "settings": {
                    **{key: value for key, value in settings.items() if key != "farther"},
                    "steps": chosen.step,
                    "decays": chosen.decay,
                },
                "seed": seed,
            }
            results[seed] = stages(
                f"voc-classification-seed-{seed}",
                key,
                lambda seed=seed: self._result(  # type: ignore[misc]
                    contender.network(seed), chosen, parts, seed, bench
                ),
            )
        outcome = outcome_of(contender.name, self.train, data, chosen, choice, results)
        return replace(outcome, settled=settled)

    def _choice(
        self,
        contender: Contender,
        parts: dict[str, MultiLabelled],
        seed: int,
        bench: Bench,
    ) -> dict[str, Any]:
        """Every candidate learnt from train and judged on val; the best of them."""
        seconds: dict[str, float] = {}
        found: dict[Candidate, float | None] = {}
        part = (parts["train"], parts["val"])

        def learn(candidates: Sequence[Candidate]) -> None:
            every = [[*candidates]] if self.train == "fc6-8" else [[one] for one in candidates]
            for some in every:
                subject = contender.network(seed)
                title = "choosing on val" + (f", step {some[0].step:g}" if len(some) == 1 else "")
                scores = self._scores(subject, some, *part, seed, bench, title, seconds)
                for number, one in enumerate(some):
                    judged = judged_classes(scores[:, number], part[1].labels)
                    found[one] = mean_of(judged)["eleven_point"]

        def reached(step: float) -> float | None:
            if step not in {one.step for one in found}:
                learn(grid([step], sorted({one.decay for one in self.candidates})))
            figures = [value for one, value in found.items() if one.step == step]
            return max((value for value in figures if value is not None), default=None)

        learn(self.candidates)
        searched(self.steps, reached, self.farther if len(self.steps) > 1 else 0)
        best = max(found, key=lambda one: found[one] or -1.0)
        if found[best] is None:
            raise NumericsError(
                "no candidate has learnt anything finite; try smaller numbers for --steps"
            )
        return {
            **best._asdict(),
            "eleven_point_on_val": found[best],
            "candidates": [
                {**candidate._asdict(), "eleven_point_on_val": figure}
                for candidate, figure in found.items()
            ],
            "seed": seed,
            "seconds": seconds,
        }

    def _result(
        self,
        subject: Evaluated,
        chosen: Candidate,
        parts: dict[str, MultiLabelled],
        seed: int,
        bench: Bench,
    ) -> dict[str, Any]:
        """What the chosen candidate, learnt from trainval with this seed, reaches on test."""
        seconds: dict[str, float] = {}
        begun = time.monotonic()
        train, test = parts["trainval"], parts["test"]
        scores = self._scores(
            subject, [chosen], train, test, seed, bench, f"learning, seed {seed}", seconds
        )[:, 0]
        if not np.isfinite(scores).all():
            raise NumericsError(
                f"with seed {seed} and step {chosen.step:g} the classifier has diverged; try "
                "smaller numbers for --steps"
            )
        judged = judged_classes(scores, test.labels)
        if not any(judged):
            raise DataError("no image of the set test shows a class, so that nothing can be ranked")
        return {
            "mean": mean_of(judged),
            "classes": {
                name: figures and asdict(figures)
                for name, figures in zip(CLASSES, judged, strict=True)
            },
            "trained_on": len(train),
            "tested_on": len(test),
            "seconds": {**seconds, "all": round(time.monotonic() - begun, 3)},
        }

    def _scores(
        self,
        subject: Evaluated,
        candidates: Sequence[Candidate],
        train: MultiLabelled,
        test: MultiLabelled,
        seed: int,
        bench: Bench,
        title: str,
        seconds: dict[str, float],
    ) -> NDArray[np.float64]:
        """Images x candidates x classes, of the test images, once the others were learnt from."""
        network = subject.network
        course = Course(
            self.length,
            self.batch,
            self.momentum,
            self.schedule,
            part_view("transfer-crop", self.least, self.most),
            seed,
        )
        with frozen(network):  # as a whole; what is fine-tuned is woken while it learns
            classifiers = Classifiers(
                network,
                candidates,
                hidden_width(network, self.hidden),
                self.dropout,
                course,
                bench,
                fine_tuned=self.train == "all",
            )
            classifiers.learn(train, title, seconds)
            view = replace(course.view, purpose="transfer-test-crop")
            return classifiers.judge(test, self.test_crops, view, "ten crops", seconds)

    def _store_size(self, input_size: int) -> int:
        """So that crops of the least area still have as many pixels as the network takes."""
        return math.ceil(input_size * 224 / 256 / math.sqrt(self.least))

    def _outcome_on_val(
        self, contender: Contender, data: dict[str, Any], choices: dict[int, dict[str, Any]]
    ) -> Outcome:
        reached = [choice["eleven_point_on_val"] for choice in choices.values()]
        result = {
            "mean": {"eleven_point": statistics.fmean(reached)},
            "spread": {"eleven_point": statistics.stdev(reached)} if len(reached) > 1 else None,
            "seeds": {str(seed): choice for seed, choice in choices.items()},
        }
        rows = [
            [
                str(seed),
                percent(one["eleven_point_on_val"]),
                f"{one['step']:g}",
                f"{one['decay']:g}",
            ]
            for seed, one in choices.items()
        ]
        year = Path(data["val"]["place"]).name
        title = f"{contender.name}: {year} classification on val, {self.train} learnt"
        table = Shown(title, ["seed", "11-point", "step", "decay"], rows)
        remark = "the best of the candidates on the very images: a criterion, not a result"
        return Outcome(data, result, [table], [remark])


def _cropped(
    folder: Path, side: int, size: int, colour: Colour, material: Material, bench: Bench
) -> Images:
    """The crops of all images that can be decoded; sets name them, so links are meant."""
    place = folder / "JPEGImages"
    store = packed(place, size, colour, material.stores, bench, follow_links=True)
    store.verify(bench.world.share(len(store.contents.checksums)))
    return cropped_from(store, side, bench)


def _decoded(one: VocSet, there: set[str]) -> VocSet:
    kept = [number for number, image in enumerate(one.images) if image.path.name in there]
    if len(kept) == len(one):
        return one
    lost = [
        LeftOut(image.name, NOT_DECODED, size=image.path.stat().st_size)
        for image in one.images
        if image.path.name not in there
    ]
    return replace(
        one,
        images=tuple(one.images[number] for number in kept),
        labels=one.labels[kept],
        left_out=(*one.left_out, *lost),
    )


def _part(one: VocSet, images: Images) -> MultiLabelled:
    place_of = {name: place for place, name in enumerate(images.names)}
    places = np.array([place_of[image.path.name] for image in one.images], dtype=np.int64)
    return MultiLabelled(images, places, one.labels.astype(np.int64))
