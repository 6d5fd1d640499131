"""From a folder of images to a finished run: all that stands around the loop.

The same command again takes up where the last one stopped.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

import deepcluster
from deepcluster.beginning import begin_with_weights, find_first_filters, new_network, on_device
from deepcluster.closing import closing_pass
from deepcluster.clusters import Clusters
from deepcluster.exchange.starting_point import begin_with
from deepcluster.images.index import Index
from deepcluster.images.kept import Pixels
from deepcluster.intake import Intake
from deepcluster.loop import Sitting, alternate
from deepcluster.runtime import run_folder
from deepcluster.runtime.display import Display
from deepcluster.runtime.errors import (
    ImagesEnlarged,
    ResumeError,
    StorageError,
)
from deepcluster.runtime.run_folder import RunFolder
from deepcluster.runtime.world import World
from deepcluster.settings import Run, completed, flat
from deepcluster.supervised import follow_labels
from deepcluster.training.course import Course
from deepcluster.training.schedule import step_factor
from deepcluster.training.step import recorder_for

_FALLEN = 0.05  # of the largest step: less is near zero


@dataclass(frozen=True)
class Asked:
    """What the user asked for, before the images have been looked at."""

    images: Path
    settle: Callable[[int, bool], tuple[Run, list[str]]]  # by number of images, and GPU or not
    out: Path | None = None
    fresh: bool = False
    max_unusable: float = 0.05
    index: Path | None = None  # the verdict on the images, if check was asked before
    words: tuple[str, ...] = ()  # the command line, for the record
    pixels: Pixels = field(default_factory=Pixels)

    @property
    def intake(self) -> Intake:
        """The images."""
        return Intake(self.images, self.index, self.pixels)


@dataclass(frozen=True)
class Prepared:
    """A run that can begin or go on."""

    folder: RunFolder
    index: Index
    run: Run
    begun: bool
    """By an earlier command."""
    finished: bool


def train(asked: Asked, world: World, display: Display) -> tuple[RunFolder, Clusters | None]:
    """Carry the run to its end; gives its folder and groups, or no groups if it was finished."""
    with ExitStack() as held:
        prepared = _prepared_by_the_leader(asked, world, display, held)
        if prepared.finished:
            return prepared.folder, None
        return prepared.folder, _carried_out(prepared, asked, world, display)


def ended_by_time(folder: RunFolder) -> str | None:
    """A sentence on a closed run that its minutes have ended before its epochs: how to go on."""
    closed = _closed(folder)
    if closed is None or closed.minutes is None or closed.done >= closed.epochs:
        return None
    done = "1 epoch" if closed.done == 1 else f"{closed.done:,} epochs"
    used_up = f"the time given (--minutes {closed.minutes:g}) is used up after {done}"
    if folder.settings["effective"].get("training.schedule", "constant") == "constant":
        return f"{used_up}; the same command with a larger --minutes goes on"
    return f"{used_up}{_how_far_fallen(folder)}; a larger --minutes needs --fresh, a new run"


def _how_far_fallen(folder: RunFolder) -> str:
    """What is to be said of the step at the end of a run with a schedule, by its journal."""
    *_, last = folder.journal() or [{}]
    if "schedule" not in last:
        return ""
    effective, share = folder.settings["effective"], last["schedule"][1]
    fall = effective.get("training.fall", 1.0)
    left = step_factor(effective["training.schedule"], 0.0, epochs_done=0.0, share=share, fall=fall)
    if left < _FALLEN:
        return "; the step has fallen with them"
    return f"; the step was to fall to zero, but its cosine is at {left:.0%}"


def _carried_out(prepared: Prepared, asked: Asked, world: World, display: Display) -> Clusters:
    run, folder = prepared.run, prepared.folder
    torch.set_float32_matmul_precision("high" if run.precision == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = run.precision == "tf32"
    network = on_device(run, world)
    course = Course(
        folder,
        network,
        run.training.for_trunk(network),
        world,
        save_minutes=run.speed.save_minutes,
        keep=run.speed.checkpoints,
        minutes=run.minutes,
        keeps_head=run.keeps_head,
    )
    if (where := course.take_up()) is not None:
        display.say(where)
    else:
        if prepared.begun:
            display.say("continuing, from the first epoch: no whole save is there")
        if run.network.init is not None:
            begin_with_weights(network, run, display)
    images = asked.intake.opened(folder, prepared.index, run, world, display)
    if where is None and run.network.patches:
        course.state_name = find_first_filters(network, images, run, world, display)
    recorder = recorder_for(network, world) if run.speed.record_steps else None
    sitting = Sitting(run, images, course, world, display, recorder)
    of_labels = run.labels == "folders"
    phases = ["learn"] if of_labels else ["look", "group", "learn"]
    followed = display.following(
        str(folder.path), run.epochs, folder.journal(), phases, len(images)
    )
    with course.kept(), followed:
        if of_labels:
            follow_labels(sitting)
        else:
            alternate(sitting)
        return closing_pass(sitting)


def _prepared_by_the_leader(
    asked: Asked, world: World, display: Display, held: ExitStack
) -> Prepared:
    """The leading process looks at folders and files; the others take its word.

    `held` keeps the folder's lock from the first look at it to the end of the run.
    """
    if world.leads:
        with world.others_told():
            prepared = _prepared(asked, world, display, held)
        said = {"begun": prepared.begun, "finished": prepared.finished}
        world.tell({"folder": str(prepared.folder.path), **said})
        world.broadcast_bytes(prepared.index.to_bytes())
        return prepared
    told = world.told()
    index = Index.from_bytes(world.broadcast_bytes(b""))
    run, _ = _settled(asked, len(index), world.device.type == "cuda")
    folder = RunFolder(Path(told["folder"]))
    return Prepared(folder, index, run, told["begun"], told["finished"])


def _prepared(asked: Asked, world: World, display: Display, held: ExitStack) -> Prepared:
    gpu = world.device.type == "cuda"
    intake = asked.intake
    passed_over: list[ResumeError] = []
    if asked.out is None:
        intake.find(display)
        folder, index, passed_over = _matching(asked, intake, gpu)
    else:
        folder, index = RunFolder(asked.out), None
        if asked.fresh and folder.exists:
            folder = RunFolder(run_folder.next_number(asked.out.parent, asked.out.name))
    run_folder.refuse_foreign(folder.path)
    intake.find(display)
    if not folder.exists:
        # What can be known before every file is read is said before.
        likely, _ = _settled(asked, intake.most, gpu)
        likely.validate(intake.most, world.size)
        if likely.labels == "folders":
            intake.refuse_unlabelled()
        _refuse_small_disk(folder, likely, intake.store_bytes(likely))
        if likely.network.init is not None:
            begin_with(new_network(likely), Path(likely.network.init))
        if passed_over:
            display.say(_not_continuing(passed_over))
        held.enter_context(folder.locked())
        index = intake.read(folder, likely, asked.max_unusable, display)
    else:
        held.enter_context(folder.locked())
        index = index or intake.unchanged_index(folder)
    run, reasons = _settled(asked, len(index), gpu)
    run.validate(len(index), world.size)
    if run.labels == "folders":
        intake.refuse_unlabelled(index)  # every usable one has a class
    begun = folder.exists
    if begun:
        _refuse_other_settings(folder, run)
        if _is_finished(folder, run):
            return Prepared(folder, index, run, begun, finished=True)
        intake.made_ready(folder, run, display)
    _announce(folder, index, run, reasons, intake, display)
    _begin(folder, index, run, reasons, asked)
    return Prepared(folder, index, run, begun, finished=False)


def _settled(asked: Asked, images: int, gpu: bool) -> tuple[Run, list[str]]:
    run, reasons = asked.settle(images, gpu)
    intake = asked.intake
    return intake.suited(run), [*reasons, *intake.notes(run)]


def _begin(folder: RunFolder, index: Index, run: Run, reasons: list[str], asked: Asked) -> None:
    index.save(folder.index)
    (folder.path / "closing.json").unlink(missing_ok=True)
    folder.begin(
        {
            "version": deepcluster.__version__,
            "torch": torch.__version__,
            "images": str(asked.images.resolve()),
            "data": index.fingerprint,
            "asked": list(asked.words),
            "why": reasons,
            "effective": flat(run),
        }
    )


def _matching(
    asked: Asked, intake: Intake, gpu: bool
) -> tuple[RunFolder, Index | None, list[ResumeError]]:
    """The newest run with equal settings and data, or the next number; and why not newer ones."""
    parent, name = run_folder.RUNS, _run_name(asked.images)
    passed_over: list[ResumeError] = []
    if not asked.fresh:
        for path in reversed(run_folder.numbered(parent, name)):
            folder = RunFolder(path)
            if not folder.exists:
                continue
            try:
                index = intake.unchanged_index(folder)
                run, _ = _settled(asked, len(index), gpu)
                _refuse_other_settings(folder, run)
            except ResumeError as error:
                passed_over.append(error)
                continue
            return folder, index, passed_over
    return RunFolder(run_folder.next_number(parent, name)), None, passed_over


def _not_continuing(passed_over: list[ResumeError]) -> str:
    """Why a new run is begun, by the most recent of those that there are."""
    if len(passed_over) == 1:
        return f"a new run; not continuing: {passed_over[0]}"
    return (
        f"a new run; not continuing any of {len(passed_over)} earlier ones; the last: "
        f"{passed_over[0]}"
    )


def _run_name(images: Path) -> str:
    """What runs on these images are called: as the folder, or as the pattern without its stars."""
    place = images.resolve()
    name = place.name if place.is_dir() else place.stem
    return re.sub(r"[^\w.-]+", "-", name).strip("-.") or "images"


def _refuse_other_settings(folder: RunFolder, run: Run) -> None:
    now = json.loads(json.dumps(run.results()))
    before = completed(folder.settings["effective"])
    differences = [
        f"{name}: {before.get(name, 'absent')} there, {now.get(name, 'absent')} now"
        for name in sorted({*now, *(key for key in before if key in now or "clustering" in key)})
        if before.get(name) != now.get(name)
    ]
    if len(differences) == 1 and "training.fall" in {*now} - {*before}:
        raise ResumeError(
            f"{folder.path} was begun by an earlier version, in which the step of a fresh head "
            "fell to zero with the others; no setting does so now: use another --out, or --fresh"
        )
    if differences:
        length = "--epochs, --minutes and " if "epochs" not in now else ""
        raise ResumeError(
            f"{folder.path} was begun with other settings ({'; '.join(differences)}); use those, "
            f"or another --out (only {length}--speed.* may change)"
        )


def _refuse_small_disk(folder: RunFolder, run: Run, store: int) -> None:
    """Fail early if the checkpoints (weights and momentum, one spare) and the store do not fit."""
    with torch.device("meta" if run.network.arch in ("alexnet", "vgg16") else "cpu"):
        weights = sum(parameter.numel() for parameter in new_network(run).trunk.parameters())
    needed = 8 * weights * (run.speed.checkpoints + 1)
    place = next(p for p in (folder.path, *folder.path.absolute().parents) if p.exists())
    free = shutil.disk_usage(place).free
    # A store that was begun has its part already, and the estimate may be a little too high.
    packed = sum(file.stat().st_size for file in folder.store.glob("pixels.u8*"))
    if free < needed + max(0, 0.9 * store - packed):
        images = f", its decoded images about {store / 1e6:,.0f} MB" if store else ""
        raise StorageError(
            f"no space for the run in {place}: its checkpoints need {needed / 1e6:,.0f} MB{images} "
            f"and {free / 1e6:,.0f} MB are free; make room, or choose another --out"
        )


def _is_finished(folder: RunFolder, run: Run) -> bool:
    """Whether the run is closed and nothing more is asked of it."""
    if (closed := _closed(folder)) is None:
        return False
    more_time = closed.minutes is not None and (run.minutes is None or run.minutes > closed.minutes)
    return run.epochs <= closed.epochs and not more_time


@dataclass(frozen=True)
class _Closed:
    """How long a run was that is closed, and how long it was to be at most."""

    done: int
    epochs: int
    minutes: float | None


def _closed(folder: RunFolder) -> _Closed | None:
    """What the closing pass says of it; None where that is to be made, or made again."""
    try:
        closing: dict[str, Any] = json.loads((folder.path / "closing.json").read_text())
        return _Closed(closing["epochs"], closing["epochs_asked"], closing["minutes_asked"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _announce(
    folder: RunFolder,
    index: Index,
    run: Run,
    reasons: list[str],
    intake: Intake,
    display: Display,
) -> None:
    display.say(f"{len(index):,} images, run folder {folder.path}")
    for reason in reasons:
        display.say(f"  {reason}")
    if enlarged := intake.enlarged(index, run):
        display.warn(ImagesEnlarged(enlarged))
