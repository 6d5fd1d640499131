"""The verb check: every image read once, what was found, and what training on it would take."""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

import numpy as np
import pyarrow.compute as pc
import torch
import tyro

from deepcluster import flags, plan
from deepcluster.flags import Count, Place, refuse_unknown, shown_as
from deepcluster.images.folder import encoded
from deepcluster.images.index import Index
from deepcluster.images.source import quick_check
from deepcluster.intake import Intake, cut_short
from deepcluster.presets import automatic
from deepcluster.reading_flags import ReadingFlags
from deepcluster.runtime import interruption
from deepcluster.runtime.display import Display
from deepcluster.runtime.durations import duration
from deepcluster.runtime.errors import ResumeError, UsageError
from deepcluster.runtime.world import World, best_device
from deepcluster.settings import Run

MOST_UNUSABLE = 0.05  # train's default


@dataclass(frozen=True)
class Check(ReadingFlags):
    """Read every image once and say what train would make of them.

    Counts what cannot be used and why, copies, sizes and modes; then the settings that train would
    choose, with the memory, disk and time they need here. Ends with 3 where train would refuse.
    """

    images: Place
    """Folder of images, list of paths (.txt, .csv, .parquet) or 'tar/shards/*.tar'."""

    workers: Count = None
    """Threads that decode images; one for each core if not given."""

    index: Annotated[Path | None, shown_as("FILE")] = None
    """Where to keep the verdict on every file, as parquet."""


def check(words: list[str]) -> int:
    """Carry out `deepcluster check`; gives the exit code."""
    if {"-h", "--help"} & {*words}:
        tyro.cli(Check, args=["--help"], prog="deepcluster check")
    known = ["--" + entry.name.replace("_", "-") for entry in fields(Check)]
    refuse_unknown(words, known, "deepcluster check --help", {})
    asked = flags.parsed(Check, words, "check")
    workers = (os.cpu_count() or 1) if asked.workers is None else asked.workers
    if workers < 1:
        raise UsageError(f"--workers {workers}: use at least 1")
    if asked.index is not None:
        _refuse_to_overwrite(asked.index)
    asked.how.refuse_impossible()
    quick_check(asked.images)
    intake = Intake(asked.images, how=asked.how)
    with interruption.noticed(), Display().shown() as display:
        begun = time.monotonic()
        index = _read(intake, workers, display)
        seconds = time.monotonic() - begun
        if asked.index is not None:
            index.save(asked.index)
        for line in findings(intake, index):
            display.say(line)
        if index.distinct >= 2:
            display.say()
            for line in planned(intake, index, seconds, World(device=torch.device(best_device()))):
                display.say(line)
    intake.refuse_useless(index, MOST_UNUSABLE)
    return 0


def findings(intake: Intake, index: Index) -> list[str]:
    """What the images are, line by line."""
    unusable = index.unusable
    total = len(index) + len(unusable)
    lines = [f"{total:,} files in {encoded(str(intake.place))}: {len(index):,} can be used"]
    examples = {reason: path for path, reason in reversed(unusable)}
    for reason, count in Counter(reason for _, reason in unusable).most_common():
        lines.append(f"  {count:>9,}  {reason}, such as {encoded(examples[reason])}")
    if intake.store is None:
        others = intake.source.others.most_common()
        seen = ", ".join(f"{count:,} {encoded(kind)}" for kind, count in others[:8])
        if seen:
            lines.append(f"passed over, and not counted among them: {seen}")
    if not len(index):
        return lines
    lines += cut_short(index)
    modes = Counter(index.usable["mode"].to_pylist()).most_common()
    return [
        *lines,
        _sizes(index),
        "modes: " + ", ".join(f"{count:,} {mode}" for mode, count in modes),
        _labels(index),
        *_copies(index),
    ]


def planned(intake: Intake, index: Index, seconds: float, world: World) -> list[str]:
    """What train would choose and what that would take, line by line.

    Args:
        intake: Where the images are.
        index: The verdict on them.
        seconds: How long reading them took.
        world: The device that would train.
    """
    images = len(index)
    run, reasons = automatic(images, world.device.type == "cuda", grey=intake.in_grey)
    run = intake.suited(run)
    needs = plan.needs(run, index)
    free = shutil.disk_usage(Path.cwd()).free
    return [
        f"deepcluster train {encoded(str(intake.place))} would choose for {images:,} images:",
        *(f"  {reason}" for reason in reasons.values()),
        f"memory: {_size(needs.features)} of features, which may wait on disk, and "
        f"{_size(needs.whitened)} of what is clustered",
        f"disk: at most {_size(needs.disk)}, of it {_size(needs.store)} decoded images and "
        f"{_size(needs.checkpoints)} checkpoints; {_size(free)} are free here",
        *_times(run, images, seconds, plan.rates(run, images, world)),
    ]


def _times(run: Run, images: int, seconds: float, rates: plan.Rates) -> list[str]:
    draws = images * run.draw.reassign
    look, group, learn = images / rates.look, images / rates.group, draws / rates.learn
    # After the last epoch the images are looked at once more, twice over, and grouped.
    total = seconds + run.epochs * (look + group + learn) + 2 * look + group
    return [
        f"time: about {duration(total)}, estimated from {plan.SECONDS:g} s of each phase:",
        f"  {duration(seconds)} to read the images once ({images / seconds:,.0f} a second)",
        f"  {run.epochs} epochs of {duration(look + group + learn)}: look {duration(look)} "
        f"({rates.look:,.0f} a second), group {duration(group)}, learn {duration(learn)} "
        f"({rates.learn:,.0f} a second)",
    ]


def _read(intake: Intake, workers: int, display: Display) -> Index:
    if intake.store is not None:
        with display.phase("verifying the store", 0, {}, "verify") as phase:
            intake.store.verify(progress=phase.reached)
        return intake.store.index
    intake.find(display)
    with display.phase("reading images", 0, {}, "read") as phase:
        return Index.build(intake.source, workers, phase.reached, intake.how)


def _refuse_to_overwrite(place: Path) -> None:
    """Raise where the index cannot be put, or something else lies."""
    if not place.parent.is_dir() or not os.access(place.parent, os.W_OK):
        raise UsageError(f"--index {place}: there is no folder {place.parent} that can be written")
    if place.is_dir():
        raise UsageError(f"--index {place} is a folder; name a file")
    if place.exists():
        try:
            Index.load(place)
        except ResumeError:
            raise UsageError(f"--index {place}: there is another file; name a new one") from None


def _sizes(index: Index) -> str:
    width, height = (index.usable[side].to_numpy() for side in ("width", "height"))
    order = np.argsort(width.astype(np.int64) * height, kind="stable")
    named = zip(("smallest", "median", "largest"), order[[0, len(order) // 2, -1]], strict=True)
    return "sizes: " + ", ".join(f"{name} {width[at]} x {height[at]}" for name, at in named)


def _labels(index: Index) -> str:
    if index.labels is None:
        given = len(index) - index.usable["label"].null_count
        return f"labels: not used ({given:,} of {len(index):,} images have one)"
    sizes = np.bincount(index.labels)
    return (
        f"labels, for monitoring only: {len(sizes):,} classes of {sizes.min():,} to "
        f"{sizes.max():,} images"
    )


def _copies(index: Index) -> list[str]:
    """How many files hold what another one holds, with a few examples."""
    counts = pc.value_counts(index.usable["hash"]).to_pylist()
    groups = [entry for entry in counts if entry["counts"] > 1]
    files = sum(entry["counts"] for entry in groups)
    if not groups:
        return ["copies: none, by content"]
    are = "1 group" if len(groups) == 1 else f"{len(groups):,} groups"
    lines = [f"copies: {files:,} files in {are} of equal content"]
    for entry in groups[:3]:
        same = index.usable.filter(pc.equal(index.usable["hash"], entry["values"]))
        paths = same["path"].to_pylist()
        more = f" and {len(paths) - 3:,} more" if len(paths) > 3 else ""
        lines.append(f"  {' = '.join(paths[:3])}{more}")
    return lines


def _size(count: float) -> str:
    """Bytes as people say them."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if count >= 10 or unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"
