"""The networks of the rows of a study: trained here or elsewhere, or as they begin."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from deepcluster.beginning import network_begun
from deepcluster.evaluation.evaluated import Evaluated, of_run, untrained
from deepcluster.evaluation.labelled_images import (
    LabelledImages,
    cropped_from,
    opened,
    packed,
    refuse_different_classes,
    split,
)
from deepcluster.evaluation.subject import Shape
from deepcluster.images.kept import Colour
from deepcluster.images.source import is_store
from deepcluster.images.store import Store
from deepcluster.networks import Network
from deepcluster.runtime.errors import ResumeError
from deepcluster.runtime.run_folder import RunFolder
from deepcluster.session import Asked, train
from deepcluster.settings import Run
from deepcluster.studies.adoption import fingerprint, refuse_other_images
from deepcluster.studies.loans import borrow_network
from deepcluster.studies.parts import Parts, Seen, slug
from deepcluster.studies.stations import Station
from deepcluster.studies.study import BY_TASK, Judge, Row
from deepcluster.studies.terms import Terms


@dataclass(frozen=True)
class RowNetworks:
    """Each is made once, in the folder of the study, from pixels that are packed there once."""

    parts: Parts
    terms: Terms
    judge: Judge

    def trained(self, row: Row, run: Run) -> dict[str, Any]:
        """Settings, journal and closing pass of the row's run; of an adopted one, as it is."""
        folder = self.folder(row, run.seed)
        bench, images = self.parts.bench, row.images or self.terms.data[0].train
        name = training_part(row, run.seed)

        def carried_to_the_end() -> dict[str, Any]:
            self._refuse_unusable(run)
            asked = Asked(self._pixels(images, run), lambda count, gpu: (run, []), out=folder.path)
            train(asked, bench.world, bench.display)
            closing = json.loads((folder.path / "closing.json").read_text())
            if closing["epochs"] > run.epochs:
                raise ResumeError(
                    f"{folder.path} has been trained for {closing['epochs']} epochs already, and "
                    f"{row.name!r} wants to judge it after {run.epochs}; choose another --out"
                )
            return _course_of(folder)

        def read() -> dict[str, Any]:
            return {**_course_of(folder), "from": str(folder.path)}

        def seen(done: dict[str, Any]) -> Seen:
            return {images: folder.settings["data"]} if folder.exists else {}

        if row.adopted:
            bench.display.say(f"  trained before: {folder.path}")
            return self.parts.once(name, self.settings(row, run), read)
        wanted = {**described(run), "images": str(images)}
        if bench.world.leads:
            with bench.world.others_waiting():  # many images may have to be looked at for it
                if row.continues is None:
                    borrow_network(self.parts, name, wanted, folder)
            bench.world.broadcast_bytes(b"borrowed")
        else:
            bench.world.heard()
        done = self.parts.once(name, wanted, carried_to_the_end, seen)
        if (station := self.station(row, run)) is not None:
            if bench.world.leads:
                station.keep()
            bench.world.wait()
        return done

    def refuse_adopted(self, row: Row) -> None:
        """Raise where a run to be adopted has learnt from other images than the study has."""
        if row.adopted:
            images = row.images or self.terms.data[0].train
            index = Store(self._pixels(images, row.run)).index
            for place in row.adopted.values():
                refuse_other_images(RunFolder(place), index, images)

    def settings(self, row: Row, run: Run) -> dict[str, Any]:
        """What decides the network of a row."""
        wanted = described(run) if row.trained else asdict(_shape(run))
        if row.begun and run.network.patches:  # else it is drawn, whatever the images
            images = row.images or self.terms.data[0].train
            wanted |= {"network.patches": run.network.patches, "images": str(images)}
        if row.adopted:
            wanted["adopted"] = fingerprint(self.folder(row, run.seed))
        return {**wanted, "seed": run.seed}

    def subject(self, row: Row, run: Run) -> Evaluated:
        """The network of a row, to be judged."""
        station, folder = self.station(row, run), self.folder(row, run.seed)
        if row.begun:
            made = self._begun(row, run)
        elif not row.trained:
            made = untrained(_shape(run), run.seed)
        else:
            made = of_run(folder if station is None else station.judged())
        return made.on(self.parts.bench.world)

    def _begun(self, row: Row, run: Run) -> Evaluated:
        """The network that a run of the row's settings would begin with: looked for once."""
        bench, place = self.parts.bench, row.images or self.terms.data[0].train

        def begun() -> Network:
            images = cropped_from(Store(self._pixels(place, run)), run.network.input_size, bench)
            return network_begun(run, images, bench.world, bench.display)

        kept = self.parts.shelf(("begun", row.name, run.seed), begun)
        return Evaluated(deepcopy(kept), _shape(run))  # a judge may go on with its learning

    def station(self, row: Row, run: Run) -> Station | None:
        """Of a row whose run may grow beyond it; None of all others."""
        if row.continues is None:
            return None
        kept = RunFolder(self.parts.study / "stations" / f"{slug(row.name)}-seed{run.seed}")
        training = self.parts.place(training_part(row, run.seed))
        return Station(row.name, run.epochs, self.folder(row, run.seed), kept, training)

    def folder(self, row: Row, seed: int) -> RunFolder:
        """Where the run of a row is, or will be."""
        if seed in row.adopted:
            return RunFolder(row.adopted[seed])
        name = f"{slug(row.continues or row.name)}-seed{seed}"
        return RunFolder(self.parts.study / "runs" / name)

    def opened(self, place: Path, run: Run) -> LabelledImages:
        """Labelled images as the network of a run sees them."""
        stores = self.parts.study / "stores"
        return opened(place, run.network.input_size, _colour(run), stores, self.parts.bench)

    def _pixels(self, place: Path, run: Run) -> Path:
        """The store that a run learns from: the one that its judge reads, made once for all."""
        if is_store(place):
            return place
        size, stores = run.network.input_size, self.parts.study / "stores"
        return packed(place, size, _colour(run), stores, self.parts.bench).folder

    def _refuse_unusable(self, run: Run) -> None:
        """Raise, before anything is trained, where the labelled images could judge nothing."""
        if self.judge in BY_TASK:
            return
        for data in self.terms.data:
            images, test = (self.opened(place, run) for place in (data.train, data.test))
            refuse_different_classes(images, test)
            split(images, self.terms.probe.held_out, self.terms.probe.seed)


def training_part(row: Row, seed: int) -> str:
    """The name of the part that has what training a row came to."""
    return f"{slug(row.name)}-seed{seed}-training"


def described(run: Run) -> dict[str, Any]:
    """The settings that decide what a run comes to, its length among them."""
    return {**run.results(), "epochs": run.epochs, "minutes": run.minutes}


def _course_of(folder: RunFolder) -> dict[str, Any]:
    """Journal and closing pass of a finished run, and what training it took."""
    journal = folder.journal()
    spent = sum(sum(entry["seconds"].values()) for entry in journal)
    return {"journal": journal, "closing": folder.closing, "seconds": round(spent, 1)}


def _shape(run: Run) -> Shape:
    network = run.network
    return Shape(network.arch, network.front, network.input_size, network.width, network.dropout)


def _colour(run: Run) -> Colour:
    return "grey" if run.network.front == "sobel" else "rgb"
