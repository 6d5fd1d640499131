"""Where the rows of a study are trained and judged, one after another.

Every part that is done is a file, and is not done again: the same command goes on.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from deepcluster.evaluation import record
from deepcluster.evaluation.bench import Bench
from deepcluster.evaluation.candidates import Candidate
from deepcluster.evaluation.evaluated import Evaluated, of_run, untrained
from deepcluster.evaluation.labelled_images import (
    LabelledImages,
    opened,
    packed,
    refuse_different_classes,
    split,
)
from deepcluster.evaluation.probe import Choices
from deepcluster.evaluation.shelf import Shelf
from deepcluster.evaluation.subject import Shape
from deepcluster.evaluation.transfer import Contender, Material, Stages
from deepcluster.images.kept import Colour
from deepcluster.images.source import is_store
from deepcluster.images.store import Store
from deepcluster.runtime.display import Display
from deepcluster.runtime.durations import duration
from deepcluster.runtime.errors import ResumeError
from deepcluster.runtime.run_folder import RunFolder
from deepcluster.session import Asked, train
from deepcluster.settings import Run
from deepcluster.studies.adoption import fingerprint, refuse_other_images
from deepcluster.studies.image_lists import refuse_without_files, write_kept_part
from deepcluster.studies.parts import Parts, as_json, slug
from deepcluster.studies.study import BY_TASK, Judge, Measured, Results, Row
from deepcluster.studies.tasks import Task
from deepcluster.studies.terms import Data, Terms
from deepcluster.studies.tuning import (
    Trial,
    choice,
    held_out_part,
    log_of,
    trial_name,
    tuned_as,
    tuned_by,
)

_KNOWN = "step and decay of its probes were chosen by images whose classes it had learnt"
_NOT_LENT = shutil.ignore_patterns("checkpoints", "lock")  # of a run that another study copies


@dataclass(frozen=True)
class Workshop:
    """A folder in which a study is carried out."""

    out: Path
    terms: Terms
    bench: Bench
    judge: Judge = "linear"
    networks_of: tuple[Path, ...] = ()
    """Folders of other studies; what they have trained the same way is not trained again."""
    shelf: Shelf = field(default_factory=Shelf)
    """What tasks have read, for the next row."""
    only_done: bool = False
    """Whether a row of which something is not done is refused, and not done now."""

    @property
    def _parts(self) -> Parts:
        return Parts(self.out, self.networks_of, self.bench, self.only_done)

    def carry_out(self, rows: list[Row], only: Collection[str] = ()) -> Results:
        """Train and judge every row with every seed of its.

        Args:
            rows: In the order of the table.
            only: The names of those that are asked for, if not all; of the others, the results
                have those that are done already.
        """
        asked = [row for row in rows if not only or row.name in only]
        for row in asked:
            self._refuse_adopted(row)
            follows = row.tuned_like in {other.name for other in rows} or self._tried(row)
            if len(row.candidates) > 1 and not self.networks_of and not follows:
                # Now, not after hours of other rows.
                where = self.terms.data[0].train
                refuse_without_files(where, f"tuning {row.name}", "; or give --no-tune")
        total = sum(len(self._seeds(row)) for row in asked)
        settled: list[Row] = []
        measured: list[Measured] = []
        begun = 0
        for row in rows:
            if row not in asked:
                if (found := self._done_before(row, settled)) is not None:
                    self.bench.display.say(f"{row.name}: done before")
                    settled.append(found[0])
                    measured += found[1]
                continue
            settled.append(self._with_known(self._settled(row, settled)))
            first: Measured | None = None
            for seed in self._seeds(row):
                begun += 1
                title = f"[{begun}/{total}] {row.name}, seed {seed}"
                self.bench.display.say(title, style="bold")
                measured.append(self._measured(settled[-1], seed, first))
                first = first or measured[-1]
        return Results(tuple(settled), tuple(measured))

    def with_done(self, results: Results, tasks: Iterable[Task]) -> Results:
        """The results, and those of more tasks in which every row of them has been judged before.

        Args:
            results: Of the tasks that were asked for.
            tasks: All that there are.
        """
        for task in tasks:
            if task in self.terms.tasks:
                continue
            if (measured := self._done_by_all(results, task)) is not None:
                self.bench.display.say(f"{task.name}: done before")
                results = replace(results, measured=measured)
        return results

    def _done_by_all(self, results: Results, task: Task) -> tuple[Measured, ...] | None:
        """The same with one task more; None unless it is done for all, with these settings."""
        back = self._looking_back()
        rows = {row.name: row for row in results.rows}
        first: dict[str, Measured] = {}
        measured: list[Measured] = []
        try:
            for one in results.measured:
                row = rows[one.row]
                run = replace(row.run, seed=one.seed)
                part = back._transferred(row, run, task, first.get(one.row))
                measured.append(replace(one, judged={**one.judged, task.name: part}))
                first.setdefault(one.row, measured[-1])
        except ResumeError:
            return None
        return tuple(measured)

    def _looking_back(self) -> Workshop:
        """The workshop as it was, where nothing more is done and nothing is said."""
        quiet = replace(self.bench, display=Display(speaks=False))
        return replace(self, bench=quiet, networks_of=(), only_done=True)

    def _done_before(self, row: Row, before: list[Row]) -> tuple[Row, list[Measured]] | None:
        """What the row came to earlier; None unless all of it is there, with these settings."""
        back = self._looking_back()
        measured: list[Measured] = []
        try:
            row = back._with_known(back._settled(row, before))
            for seed in self._seeds(row):
                measured.append(back._measured(row, seed, measured[0] if measured else None))
        except ResumeError:
            return None
        return row, measured

    def _seeds(self, row: Row) -> tuple[int, ...]:
        return tuple(row.adopted) or self.terms.seeds[: None if row.every_seed else 1]

    def _measured(self, row: Row, seed: int, first: Measured | None = None) -> Measured:
        """Train and judge a row with a seed; its first seed chooses what tasks let choose."""
        run = replace(row.run, seed=seed)
        training = None
        if row.trained:
            training = self._trained_before(row, run) if row.adopted else self._trained(row, run)
        judged: dict[str, dict[str, Any]] = {}
        if self.judge not in BY_TASK:
            judged |= {data.name: self._judged(row, run, data) for data in self.terms.data}
        judged |= {task.name: self._transferred(row, run, task, first) for task in self.terms.tasks}
        own = row.trained and not row.adopted
        if own and row.continues is None and self.bench.world.leads:
            # The network is kept; what only going on would need takes twice its room.
            shutil.rmtree(self._folder(row, seed).checkpoints, ignore_errors=True)
        return Measured(row.name, seed, judged, training)

    def _trained(self, row: Row, run: Run) -> dict[str, Any]:
        """Settings, journal and closing pass of the row's run."""
        folder = self._folder(row, run.seed)

        def carried_to_the_end() -> dict[str, Any]:
            self._refuse_unusable(run)
            images = self._pixels(row.images or self.terms.data[0].train, run)
            asked = Asked(images, lambda count, gpu: (run, []), out=folder.path)
            train(asked, self.bench.world, self.bench.display)
            closing = json.loads((folder.path / "closing.json").read_text())
            if closing["epochs"] > run.epochs:
                raise ResumeError(
                    f"{folder.path} has been trained for {closing['epochs']} epochs already, and "
                    f"{row.name!r} wants to judge it after {run.epochs}; choose another --out"
                )
            return _course_of(folder)

        wanted = {**_described(run), "images": str(row.images or self.terms.data[0].train)}
        name = f"{slug(row.name)}-seed{run.seed}-training"
        if self.bench.world.leads and row.continues is None:
            self._borrow(name, wanted, folder)
        self.bench.world.wait()
        return self._parts.once(name, wanted, carried_to_the_end)

    def _refuse_unusable(self, run: Run) -> None:
        """Raise, before anything is trained, where the labelled images could judge nothing."""
        if self.judge in BY_TASK:
            return
        for data in self.terms.data:
            images, test = (
                self._opened(place, run.network.input_size, _colour(run))
                for place in (data.train, data.test)
            )
            refuse_different_classes(images, test)
            split(images, self.terms.probe.held_out, self.terms.probe.seed)

    def _trained_before(self, row: Row, run: Run) -> dict[str, Any]:
        """The same of a run that is only looked at."""
        folder = self._folder(row, run.seed)
        name = f"{slug(row.name)}-seed{run.seed}-training"
        self.bench.display.say(f"  trained before: {folder.path}")

        def read() -> dict[str, Any]:
            return {**_course_of(folder), "from": str(folder.path)}

        return self._parts.once(name, self._network(row, run), read)

    def _refuse_adopted(self, row: Row) -> None:
        """Raise where a run to be adopted has learnt from other images than the study has."""
        if row.adopted:
            images = row.images or self.terms.data[0].train
            index = Store(self._pixels(images, row.run)).index
            for place in row.adopted.values():
                refuse_other_images(RunFolder(place), index, images)

    def _network(self, row: Row, run: Run) -> dict[str, Any]:
        """What decides the network of a row."""
        wanted = _described(run) if row.trained else asdict(_shape(run))
        if row.adopted:
            wanted["adopted"] = fingerprint(self._folder(row, run.seed))
        return {**wanted, "seed": run.seed}

    def _borrow(self, name: str, wanted: dict[str, Any], folder: RunFolder) -> None:
        """Copy a network that another study has trained with these settings on these images."""
        if self._parts.place(name).exists():
            return
        for other, done in self._parts.lent("training"):
            source = other.parents[1] / "runs" / other.name.removesuffix("-training.json")
            alike = _resolved(done.get("settings", {})) == _resolved(wanted)
            if not alike or not (source / "model.safetensors").is_file():
                continue
            # The part is written last: where this is cut short, it is done anew.
            shutil.rmtree(folder.path, ignore_errors=True)
            shutil.copytree(source, folder.path, ignore=_NOT_LENT)
            self._parts.write(name, {**done, "settings": wanted, "from": str(source)})
            self.bench.display.say(f"  trained before: {source}")
            return

    def _borrow_trial(self, name: str, wanted: dict[str, Any], images: str) -> None:
        """Take over what a trial with these settings on these images has come to elsewhere."""
        if self._parts.place(name).exists():
            return
        # Those of an older version, which do not say what they chose, come last.
        lent = sorted(self._parts.lent("held-out"), key=lambda one: "choices" not in one[1])
        for other, done in lent:
            if done.get("images") == images and done.get("settings") == as_json(wanted):
                self._parts.write(name, {**done, "from": str(other)})
                self.bench.display.say(f"  tried before: {other}")
                return

    def _judged(self, row: Row, run: Run, data: Data) -> dict[str, Any]:
        """What the probe says of the row's network on some labelled images."""
        probe = self.terms.mlp if self.judge == "mlp" else self.terms.probe
        own = data == self.terms.data[0] and self.judge == "linear"
        given = {"choices": row.choices} if own and row.choices is not None else {}

        def by_the_probe() -> dict[str, Any]:
            subject = self._subject(row, run)
            images, test = (
                self._opened(place, subject.shape.input_size, subject.colour)
                for place in (data.train, data.test)
            )
            result = probe(subject.network, images, test, self.bench, **given)
            self.bench.display.say(
                f"  on {data.name}: "
                + ", ".join(f"{name} {100 * top1:.1f}" for name, top1 in result.top1().items())
                + f" ({duration(result.seconds['all'])})"
            )
            about = {"train": images.fingerprint, "test": test.fingerprint}
            return {"data": {"name": data.name, **about}, "result": asdict(result)}

        wanted = {
            **self._network(row, run),
            "train": str(data.train),
            "test": str(data.test),
            **{f"probe.{name}": value for name, value in {**asdict(probe), **given}.items()},
        }
        name = f"{slug(row.name)}-seed{run.seed}-{self.judge}-{slug(data.name)}"
        return self._parts.once(name, wanted, by_the_probe)

    def _transferred(
        self, row: Row, run: Run, task: Task, first: Measured | None
    ) -> dict[str, Any]:
        """What the row's network reaches in a task that it was not trained for."""
        protocol = task.with_seed(
            run.seed, None if first is None else first.judged[task.name]["result"]
        )
        settings: dict[str, Any] = asdict(protocol)  # type: ignore[call-overload]

        def by_the_protocol() -> dict[str, Any]:
            common = {"task": task.name, **record.conditions(self.bench)}
            outcome = protocol(
                Contender(row.name, lambda seed: self._subject(row, run)),
                Material(task.data, self.out / "stores", self.shelf),
                self.bench,
                Stages(RunFolder(self.out), common, self.bench),
            )
            figures = task.figures(outcome.result)
            said = ", ".join(f"{name} {100 * share:.1f}" for name, share in figures.items())
            self.bench.display.say(f"  {task.name}: {said}")
            return {"data": outcome.data, "figures": figures, "result": outcome.result}

        wanted = {
            **self._network(row, run),
            "data": str(task.data),
            **{f"protocol.{name}": value for name, value in settings.items()},
        }
        name = f"{slug(row.name)}-seed{run.seed}-{slug(task.name)}"
        return self._parts.once(name, wanted, by_the_protocol)

    def _settled(self, row: Row, before: list[Row]) -> Row:
        """The row with the best of its candidates, by images that no trial has learnt from."""
        if len(row.candidates) < 2:
            return row
        for other in before:
            if other.name == row.tuned_like and not self._tried(row):
                return tuned_as(row, other)
        trials = []
        for number, run in enumerate(row.candidates, 1):
            what = f"trial {number} of {len(row.candidates)}: {choice(run)}"
            self.bench.display.say(f"  {what}")
            trial = Row(trial_name(row, number), replace(run, seed=self.terms.seeds[0]))
            trials.append(Trial(run, *self._held_out(trial, self.terms.data[0])))
        settled = tuned_by(row, trials)
        self.bench.display.say(f"  {settled.note}")
        if self.bench.world.leads:
            RunFolder(self.out).write(f"trials/{slug(row.name)}.json", log_of(trials))
        return settled

    def _tried(self, row: Row) -> bool:
        """Whether the row has been tuned by trials of its own."""
        return self._parts.place(held_out_part(trial_name(row, 1))).exists()

    def _with_known(self, row: Row) -> Row:
        """The row, noted where its probes are chosen by images whose labels it has learnt."""
        by_probe = self.judge not in BY_TASK and row.run.labels == "folders"
        known = by_probe and (row.choices is None or self.judge != "linear")
        return row.noted(_KNOWN) if known else row

    def _held_out(self, trial: Row, data: Data) -> tuple[float, Choices | None]:
        """Mean over the layers of the probe's accuracy on the part held out, and what it chose.

        The trial learns from the same part of the images that the probe learns from: unlike the
        network that comes of the choice, it is a stranger to the others.
        """
        subset = self.out / "trials" / f"{slug(data.name)}-kept.csv"
        run, probe = trial.run, self.terms.probe

        def by_the_probe() -> dict[str, Any]:
            size, colour = run.network.input_size, _colour(run)
            images = self._opened(data.train, size, colour)
            if self.bench.world.leads and not subset.exists():
                write_kept_part(subset, data.train, images, probe.held_out, probe.seed)
            self.bench.world.wait()
            row = replace(trial, images=subset)
            self._trained(row, run)
            test = self._opened(data.test, size, colour)
            result = probe(self._subject(row, run).network, images, test, self.bench)
            # What the probe says of the test images is not kept: nothing may be chosen by it.
            held_out = {layer.layer: layer.held_out_top1 for layer in result.layers}
            choices = result.choices()
            return {"held_out": held_out, "choices": choices, "images": images.fingerprint}

        wanted = {
            **_described(run),
            **{f"probe.{name}": value for name, value in asdict(probe).items()},
        }
        name = held_out_part(trial.name)
        if self.networks_of:
            images = self._opened(data.train, run.network.input_size, _colour(run))
            if self.bench.world.leads:
                self._borrow_trial(name, wanted, images.fingerprint)
            self.bench.world.wait()
        part = self._parts.once(name, wanted, by_the_probe)
        if self.bench.world.leads:  # only the figure is wanted
            shutil.rmtree(self._folder(trial, run.seed).path, ignore_errors=True)
        found = part["held_out"]
        choices = part.get("choices")  # of an older version there are none
        if choices is not None:
            choices = {layer: Candidate(*choice) for layer, choice in choices.items()}
        return sum(found.values()) / len(found), choices

    def _subject(self, row: Row, run: Run) -> Evaluated:
        made = (
            of_run(self._folder(row, run.seed)) if row.trained else untrained(_shape(run), run.seed)
        )
        return made.on(self.bench.world)

    def _opened(self, place: Path, size: int, colour: Colour) -> LabelledImages:
        return opened(place, size, colour, self.out / "stores", self.bench)

    def _pixels(self, place: Path, run: Run) -> Path:
        """The store that a run learns from: the one that its judge reads, made once for all."""
        if is_store(place):
            return place
        size, stores = run.network.input_size, self.out / "stores"
        return packed(place, size, _colour(run), stores, self.bench).folder

    def _folder(self, row: Row, seed: int) -> RunFolder:
        if seed in row.adopted:
            return RunFolder(row.adopted[seed])
        return RunFolder(self.out / "runs" / f"{slug(row.continues or row.name)}-seed{seed}")


def _course_of(folder: RunFolder) -> dict[str, Any]:
    """Journal and closing pass of a finished run, and what training it took."""
    journal = folder.journal()
    spent = sum(sum(entry["seconds"].values()) for entry in journal)
    return {"journal": journal, "closing": folder.closing, "seconds": round(spent, 1)}


def _resolved(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings as JSON has them, with the images by their whole path."""
    settings = as_json(settings)
    return {**settings, "images": str(Path(settings.get("images", "")).resolve())}


def _described(run: Run) -> dict[str, Any]:
    """The settings that decide what a run comes to, its length among them."""
    return {**run.results(), "epochs": run.epochs, "minutes": run.minutes}


def _shape(run: Run) -> Shape:
    network = run.network
    return Shape(network.arch, network.front, network.input_size, network.width, network.dropout)


def _colour(run: Run) -> Colour:
    return "grey" if run.network.front == "sobel" else "rgb"
