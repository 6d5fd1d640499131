"""The verb tile: images that are too large to be learned from are cut into many."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

import tyro

from deepcluster import flags
from deepcluster.flags import Count, Place, refuse_unknown, shown_as
from deepcluster.images.folder import encoded
from deepcluster.images.kept import Pixels
from deepcluster.images.selection import band_numbers, selected
from deepcluster.images.source import OneFile, is_picture, is_store, quick_check, source_of
from deepcluster.images.tiling import LIST, Outcome, Tiling
from deepcluster.reading_flags import LinkFlags
from deepcluster.runtime import interruption
from deepcluster.runtime.display import Display
from deepcluster.runtime.errors import DataError, UsageError
from deepcluster.runtime.run_folder import RunFolder


@dataclass(frozen=True)
class Tile(LinkFlags):
    """Cut large images (whole slides, satellite scenes) into tiles, which train takes.

    TIFFs are read piece by piece, other formats whole, up to 400 million pixels. The same command
    continues one that was stopped. The images themselves are not changed.
    """

    images: Place
    """Folder of images, one image, list of paths (.txt, .csv, .parquet) or 'tar/shards/*.tar'."""

    tiles: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="TILES")]
    """Folder for the tiles."""

    side: int = 1024
    """Largest side of a tile, in pixels; an image is cut into equal parts."""

    bands: Annotated[str | None, shown_as("R,G,B")] = None
    """Bands of a TIFF that are its colours, as 4,3,2."""

    workers: Count = None
    """Threads that write tiles; one for each core if not given."""


def tile(words: list[str]) -> int:
    """Carry out `deepcluster tile`; gives the exit code."""
    if {"-h", "--help"} & {*words}:
        tyro.cli(Tile, args=["--help"], prog="deepcluster tile")
    known = ["--" + entry.name.replace("_", "-") for entry in fields(Tile)]
    refuse_unknown(words, known, "deepcluster tile --help", {})
    asked = flags.parsed(Tile, words, "tile")
    if not is_picture(asked.images):
        quick_check(asked.images)
    if asked.side < 64:
        raise UsageError(f"--side {asked.side}: use at least 64")
    if asked.workers is not None and asked.workers < 1:
        raise UsageError(f"--workers {asked.workers}: use at least 1")
    if asked.bands is not None:
        band_numbers(asked.bands)
    if is_store(asked.images):
        raise UsageError(f"{asked.images} is a store; give the images that it was packed from")
    _refuse_other_folder(asked)
    with interruption.noticed(), RunFolder(asked.tiles).locked(), Display().shown() as display:
        with display.phase("cutting", 0, {}, "tile") as phase:
            cut = Tiling(asked.side, asked.bands)
            workers = asked.workers or os.cpu_count() or 1
            one = is_picture(asked.images)
            how = Pixels(follow_links=asked.follow_links)
            source = OneFile(asked.images) if one else selected(source_of(asked.images), how)
            outcome = cut(source, asked.tiles, workers, phase.reached)
        _show_unusable(outcome, display)
        if not outcome.tiles:
            raise DataError(f"no image in {encoded(str(asked.images))} could be cut")
        display.say(
            f"{outcome.tiles:,} tiles of {outcome.images:,} images in {asked.tiles}; next: "
            f"deepcluster train {asked.tiles / LIST}"
        )
    return 0


def _show_unusable(outcome: Outcome, display: Display) -> None:
    for reason, count in Counter(reason for _, reason in outcome.unusable).most_common():
        example = next(path for path, why in outcome.unusable if why == reason)
        display.say(f"left out: {count:,}  {reason}, such as {example}")


def _refuse_other_folder(asked: Tile) -> None:
    """Fail if the folder holds something else, or lies among the images."""
    out = asked.tiles
    if out.exists() and not out.is_dir():
        raise UsageError(f"TILES {out} is a file; name a folder")
    images = asked.images.resolve()
    if images.is_dir() and out.resolve().is_relative_to(images):
        raise UsageError(f"{out} lies in {asked.images}, whose images would then be cut twice")
    if out.is_dir() and any(out.iterdir()) and not (out / "tiles.jsonl").exists():
        strangers = sorted(entry.name for entry in out.iterdir() if entry.name != "lock")
        if strangers:
            raise UsageError(f"TILES {out} already holds {strangers[0]!r}; choose another folder")
