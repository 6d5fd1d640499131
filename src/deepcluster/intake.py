"""From what the user named to images that can be trained on: everything is read once.

A file that cannot be used is named and left out; what is left is kept decoded in a store.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from deepcluster.images.decode import CUT_SHORT
from deepcluster.images.folder import encoded
from deepcluster.images.found_once import FoundOnce
from deepcluster.images.index import Index
from deepcluster.images.judging import COPY, SMALL
from deepcluster.images.kept import Colour, Pixels
from deepcluster.images.loader import Images
from deepcluster.images.on_device import DeviceImages
from deepcluster.images.packing import expected_bytes, pack
from deepcluster.images.selection import selected
from deepcluster.images.source import is_store, source_of
from deepcluster.images.store import Store
from deepcluster.images.stored import StoredImages
from deepcluster.runtime import interruption
from deepcluster.runtime.display import Display
from deepcluster.runtime.errors import DataError, ResumeError, UsageError
from deepcluster.runtime.run_folder import RunFolder
from deepcluster.runtime.world import World
from deepcluster.settings import Run


@dataclass(frozen=True)
class Intake:
    """The images that the user named: files somewhere, or a store of them."""

    place: Path
    known: Path | None = None
    """An index that `check` made of them, if the user has one."""

    how: Pixels = field(default_factory=Pixels)
    """How the files are read."""

    @cached_property
    def store(self) -> Store | None:
        """The store, where the user named one."""
        return Store(self.place) if is_store(self.place) else None

    @property
    def in_grey(self) -> bool:
        """Whether no colours are left to see: the images are packed, in grey."""
        return self.store is not None and self.store.contents.how.colour == "grey"

    @cached_property
    def source(self) -> FoundOnce:
        """The files, where the user named some."""
        return FoundOnce(selected(source_of(self.place), self.how))

    def find(self, display: Display) -> None:
        """Look for the files, and show how many there are so far; of a store nothing is to do."""
        if self.store is not None:
            return
        with display.phase("finding images", 0, {}, "find") as phase:

            def seen(kind: str | None) -> None:
                phase.advance(kind is None)
                interruption.raise_if_asked()

            self.source.find(seen)

    @cached_property
    def most(self) -> int:
        """How many images there are at the most, known without reading them."""
        return len(self.source.find()) if self.store is None else len(self.store)

    def store_bytes(self, run: Run) -> int:
        """About how many bytes the store of the run will take, judged by a few of the files."""
        if self.store is not None or run.pixels.keep == "files":
            return 0
        return expected_bytes(self.source, colour_for(run), run.pixels)

    def suited(self, run: Run) -> Run:
        """The run with the pixels that it will really see; refuses colours that are not there."""
        if self.store is None:
            return replace(run, pixels=replace(run.pixels, colour=colour_for(run)))
        if self.in_grey and run.network.front == "rgb":
            raise UsageError(
                f"{self.place} is a grey store and --network.front rgb wants colours; pack the "
                "images again with --colour rgb"
            )
        return replace(run, pixels=self.store.contents.how)

    def notes(self, run: Run) -> list[str]:
        """What a person should know of how `suited` changes a run."""
        asked, seen = run.pixels, self.suited(run).pixels
        if self.store is None or asked in (seen, replace(seen, colour="auto")):
            return []
        return [
            f"pixels as {encoded(str(self.place))} has them: {seen.colour}, short side "
            f"{seen.short_side}, {seen.shape}; --pixels.* is for images that are not packed yet"
        ]

    def enlarged(self, index: Index, run: Run) -> str | None:
        """What to say where images, or what is kept of them, are smaller than the input."""
        size, short = run.network.input_size, run.pixels.short_side
        larger = len(index) - index.smaller_than(short + 1)  # than what is kept of them
        if run.pixels.keep == "store" and short < size and larger:
            remedy = "use --pixels.short-side" if self.store is None else "pack with --short-side"
            return (
                f"images are kept with a short side of {short} px, and crops of them are enlarged "
                f"to {size} px; to avoid it, {remedy} {size} or more, or train with --input-size "
                f"{short}"
            )
        small = index.smaller_than(size)
        return f"{small:,} images are smaller than {size} px; enlarged to it" if small else None

    def unchanged_index(self, folder: RunFolder) -> Index:
        """The index of a run that was begun; raises if the images are no longer the same."""
        index, changes = self._known_index(folder)
        if changes or index.fingerprint != folder.settings["data"]:
            here, there = str(self.place.resolve()), folder.settings.get("images") or ""
            if there not in ("", here):
                raise ResumeError(
                    f"{folder.path} is a run of other images, those of {encoded(there)} and not of "
                    f"{encoded(here)}; name another --out"
                )
            raise ResumeError(
                f"the images of {folder.path} have changed since it began "
                f"({changes or 'others than then'}); put them back, or start a new run with "
                "another --out"
            )
        return index

    def _known_index(self, folder: RunFolder) -> tuple[Index, str]:
        """The index of the images, and in words how they differ from the run's."""
        if self.store is not None:
            return self.store.index, ""
        try:
            index = Index.load(folder.index)
        except ResumeError:  # damaged or gone: made again, and held against the fingerprint
            how = Pixels.of(folder.settings["effective"])
            return Index.build(self.source, os.cpu_count() or 1, how=how), ""
        changes = index.changes(self.source)
        return index, str(changes) if any(changes) else ""

    def read(self, folder: RunFolder, run: Run, max_unusable: float, display: Display) -> Index:
        """The verdict on every file, each fully decoded once: half a JPEG has a whole header."""
        # An index of check's counts copies as images, and does not tell how files were read.
        how, usual = run.pixels, Pixels()
        is_usual = (how.copies, how.min_side, how.reading) == ("keep", 1, usual.reading)
        known = self._still_true(display) if is_usual else None
        index = self.made_ready(folder, run, display)
        if index is None and known is None:
            with display.phase("reading images", 0, {}, "read") as phase:
                index = Index.build(self.source, _workers(run), phase.reached, how)
        elif index is None:
            index = known
        elif known is not None and known.fingerprint != index.fingerprint:
            # Of the same size and time as then, so that only reading them could tell.
            display.say(f"not as {self.known} has it: the content of some files has changed")
        assert index is not None
        show_unusable(index, display)
        self.refuse_useless(index, max_unusable)
        return index

    def _still_true(self, display: Display) -> Index | None:
        """The index that the user has, if the files are still those of which it was made."""
        if self.known is None or self.store is not None:
            return None
        try:
            index = Index.load(self.known)
        except ResumeError as error:
            raise UsageError(f"--index {self.known} is no index of check's; {error}") from error
        changes = index.changes(self.source)
        if any(changes):
            display.say(f"--index {self.known} is not used: {changes} since it was made")
            return None
        return index

    def made_ready(self, folder: RunFolder, run: Run, display: Display) -> Index | None:
        """The index of the store that the run reads, made if it is not there; None without one."""
        if self.store is not None:
            return self.store.index
        if run.pixels.keep == "files":
            return None
        with display.phase("reading images", 0, {}, "read") as phase:
            colour, how = colour_for(run), run.pixels
            store = pack(self.source, folder.store, colour, how, _workers(run), phase.reached)
        return store.index

    def opened(
        self, folder: RunFolder, index: Index, run: Run, world: World, display: Display
    ) -> Images:
        """The images as the network will see them."""
        size = run.network.input_size
        if self.store is None and run.pixels.keep == "files":
            return Images(self.source, index, size, run.crops, run.pixels.reading)
        store = self.store or Store(folder.store)
        if store.index.fingerprint != index.fingerprint:
            raise ResumeError(
                f"{store.folder} holds other images than the run; delete it, and the same command "
                "makes it again"
            )
        with display.phase("verifying the store", 0, {}, "verify") as phase:
            store.verify(world.share(len(store.contents.checksums)), phase.reached)
        images = (
            DeviceImages(store, size, world.device, crops=run.crops)
            if world.device.type == "cuda"
            else StoredImages(store, size, run.crops)
        )
        held = store.contents
        size_held = (
            f"{held.bytes / 1e9:.1f} GB" if held.bytes > 1e9 else f"{held.bytes / 1e6:,.0f} MB"
        )
        display.say(f"{size_held} of {held.how.colour} pixels {_home(images)}")
        return images

    def refuse_useless(self, index: Index, max_unusable: float) -> None:
        """Raise where too many files cannot be used, or nothing can be learned from the rest."""
        reasons = Counter(reason for _, reason in index.unusable)
        unwanted = reasons.pop(COPY, 0) + reasons.pop(SMALL, 0)  # nothing is wrong with them
        unusable = sum(reasons.values())
        total = len(index) + unusable + unwanted
        place = encoded(str(self.place))
        if unusable > math.ceil(max_unusable * total):
            share = math.ceil(100 * unusable / total) / 100
            raise DataError(
                f"{unusable:,} of {total:,} files in {place} cannot be used, more than "
                f"{max_unusable:.0%}; remove or repair them, or go on without them by "
                f"--max-unusable {share:g} (from Python max_unusable={share:g})"
            )
        if len(index) < 2:
            usable = "1 usable image" if len(index) else "no usable images"
            raise DataError(f"{place} has {usable}; give at least 2")
        if index.distinct < 2:
            raise DataError(
                f"all {len(index):,} images in {place} are copies of one; nothing can be learned"
            )

    def refuse_unlabelled(self, index: Index | None = None) -> None:
        """Raise where the images have no classes to be trained on, as far as is known so far."""
        if self.store is not None:
            index = self.store.index
        if index is None:
            unlabelled = len({found.label for found in self.source.find()} - {None}) < 2
        else:
            unlabelled = index.labels is None
        if unlabelled:
            raise DataError(
                f"--labels folders: the images in {encoded(str(self.place))} are not all in one of "
                "at least two classes; put each into a folder named after its class, or name it in "
                "a label column of a list"
            )


def colour_for(run: Run) -> Colour:
    """What a store must keep: Sobel begins by averaging the colours, so grey is enough for it."""
    if run.pixels.keep == "files":
        return "rgb"
    if run.pixels.colour != "auto":
        return run.pixels.colour
    return "grey" if run.network.front == "sobel" else "rgb"


def _home(images: StoredImages) -> str:
    """Where the pixels live, in words."""
    if isinstance(images, DeviceImages) and images.live == "device":
        return "live on the GPU"
    if isinstance(images, DeviceImages) and images.live == "pinned":
        return "live in pinned memory"
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    place = "memory" if images.store.contents.bytes < free / 2 else "disk, read ahead"
    if isinstance(images, DeviceImages):
        return f"are sent to the GPU in pinned batches from {place}"
    return f"are read from {place}"


def _workers(run: Run) -> int:
    """How many files are decoded at a time: the other processes wait, so all cores are free."""
    return run.speed.workers or os.cpu_count() or 1


def cut_short(index: Index) -> list[str]:
    """What to say of files that are used though they end too early; nothing if there are none."""
    rows = zip(index.paths, index.usable["mode"].to_pylist(), strict=True)
    paths = [path for path, mode in rows if mode is not None and mode.endswith(CUT_SHORT)]
    if not paths:
        return []
    named = ", ".join(encoded(path) for path in paths[:3])
    return [f"cut short, and used with the rest in grey: {len(paths):,}, such as {named}"]


def show_unusable(index: Index, display: Display) -> None:
    """Say which files are left out, and why; and which are used though they are not whole."""
    for line in cut_short(index):
        display.say(line)
    unusable = index.unusable
    if not unusable:
        return
    counts = Counter(reason for _, reason in unusable)
    display.say(
        f"{len(unusable):,} of {len(index) + len(unusable):,} files cannot be used and are "
        "left out: " + ", ".join(f"{count} {reason}" for reason, count in counts.most_common())
    )
    for path, reason in unusable[:10]:
        display.say(f"  {encoded(path)}: {reason}")
    if len(unusable) > 10:
        display.say(f"  and {len(unusable) - 10:,} more")
