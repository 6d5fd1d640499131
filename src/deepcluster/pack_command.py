"""The verb pack: decode once into the store that training reads."""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Literal

import tyro

from deepcluster import flags
from deepcluster.flags import Count, Place, refuse_unknown
from deepcluster.images.kept import Colour, Copies
from deepcluster.images.packing import expected_bytes
from deepcluster.images.packing import pack as packed
from deepcluster.images.source import quick_check
from deepcluster.images.store import Store
from deepcluster.intake import Intake, show_unusable
from deepcluster.reading_flags import ReadingFlags
from deepcluster.runtime import interruption
from deepcluster.runtime.display import Display
from deepcluster.runtime.errors import DataError, StorageError, UsageError
from deepcluster.runtime.run_folder import RunFolder, refuse_foreign


@dataclass(frozen=True)
class Pack(ReadingFlags):
    """Decode images once into a store, which train takes in place of the images.

    The same command continues a packing that was stopped. Unusable files are listed and left out.
    """

    images: Place
    """Folder of images, list of paths (.txt, .csv, .parquet) or 'tar/shards/*.tar'."""

    store: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="STORE")]
    """Folder of the store."""

    short_side: int = 256
    """Short side in pixels; smaller images are not enlarged."""

    colour: Colour = "grey"
    """grey is enough for networks that begin with Sobel (the paper's); rgb serves all."""

    shape: Literal["aspect", "square"] = "aspect"
    """aspect: the whole image. square: its centre."""

    copies: Copies = "keep"
    """keep: every file is an image. once: of files with the same content only the first is."""

    workers: Count = None
    """Threads that decode images; one for each core if not given."""


def pack(words: list[str]) -> int:
    """Carry out `deepcluster pack`; gives the exit code."""
    if {"-h", "--help"} & {*words}:
        tyro.cli(Pack, args=["--help"], prog="deepcluster pack")
    known = ["--" + entry.name.replace("_", "-") for entry in fields(Pack)]
    meant = {"--side": "--short-side", "--size": "--short-side"}
    refuse_unknown(words, known, "deepcluster pack --help", {}, meant)
    asked = flags.parsed(Pack, words, "pack")
    quick_check(asked.images)
    if asked.short_side < 64:
        raise UsageError(f"--short-side {asked.short_side}: use at least 64")
    if asked.workers is not None and asked.workers < 1:
        raise UsageError(f"--workers {asked.workers}: use at least 1")
    how = asked.how
    how.refuse_impossible()
    workers = asked.workers or os.cpu_count() or 1
    intake = Intake(asked.images, how=how)
    if intake.store is not None:
        raise UsageError(f"{asked.images} is a store already")
    with (
        interruption.noticed(),
        Display().shown() as display,
        ExitStack() as held,
    ):
        _refuse_other_store(asked, intake, display)
        intake.find(display)
        _refuse_small_disk(asked.store, expected_bytes(intake.source, asked.colour, how))
        held.enter_context(RunFolder(asked.store).locked())
        with display.phase("packing", 0, {}, "pack") as phase:
            store = packed(intake.source, asked.store, asked.colour, how, workers, phase.reached)
        show_unusable(store.index, display)
        display.say(
            f"{len(store):,} images, {store.contents.bytes / 1e6:,.0f} MB of {asked.colour} pixels "
            f"in {asked.store}; next: deepcluster train {asked.store}"
        )
    return 0


def _refuse_small_disk(store: Path, needed: int) -> None:
    """Fail early if the pixels would not fit; those of a packing that was begun are there."""
    place = next(parent for parent in (store, *store.absolute().parents) if parent.exists())
    packed = sum(file.stat().st_size for file in store.glob("pixels.u8*"))
    free = shutil.disk_usage(place).free
    if free < 0.9 * needed - packed:  # the estimate may be a little too high
        raise StorageError(
            f"no space for the store in {place}: it needs about {needed / 1e6:,.0f} MB and "
            f"{free / 1e6:,.0f} MB are free; make room, or choose another STORE"
        )


def _refuse_other_store(asked: Pack, intake: Intake, display: Display) -> None:
    """Fail if the folder holds something else, or the store of other images or settings."""
    if (asked.store / "settings.json").exists():
        raise UsageError(f"{asked.store} is a run; choose another folder for the store")
    if not (asked.store / "store.json").exists():
        if not (asked.store / "progress.jsonl").exists():
            refuse_foreign(asked.store, "STORE")
        return
    try:
        store = Store(asked.store)
    except DataError:
        return  # damaged: it is made again
    there = store.contents.how
    if there != asked.how:
        differing = ", ".join(
            f"{entry.name.replace('_', '-')} {getattr(there, entry.name)}"
            for entry in fields(there)
            if getattr(there, entry.name) != getattr(asked.how, entry.name)
        )
        raise UsageError(
            f"{asked.store} is a store with other settings ({differing}); choose another folder"
        )
    intake.find(display)
    changes = store.index.changes(intake.source)
    if any(changes):
        raise UsageError(
            f"{asked.store} is a store of other images ({changes}); delete it, or choose another "
            "folder"
        )
