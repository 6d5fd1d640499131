"""The verbs similar, duplicates and outliers: lists of a run's own images. Nothing is deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

from deepcluster import flags
from deepcluster.collection.contact_sheet import MOST, Shown, Strip, write_sheet
from deepcluster.collection.groups import read_clusters
from deepcluster.collection.kept_features import KeptFeatures
from deepcluster.collection.known_paths import KnownPaths
from deepcluster.collection.likeness import ALIKE, duplicates, outliers
from deepcluster.collection.model import load
from deepcluster.collection.table import write_csv
from deepcluster.flags import RunPlace, refuse_unknown, shown_as
from deepcluster.images.album import Album
from deepcluster.images.decode import read
from deepcluster.images.folder import encoded
from deepcluster.images.index import Index
from deepcluster.images.judging import content_hash
from deepcluster.runtime import interruption
from deepcluster.runtime.display import Display
from deepcluster.runtime.errors import NumericsError, UsageError
from deepcluster.runtime.run_folder import RunFolder, finished_run

_LINES = 40  # of text; the CSV has all

Table = Annotated[Path | None, shown_as("FILE")]


@dataclass(frozen=True)
class Similar:
    """List the images of a run that are most like one image, nearest first.

    Where it is one of the run's own images, by path or by content, that one is left out.
    """

    run: RunPlace
    """Folder of a finished run, or its name in runs/."""

    image: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="IMAGE")]
    """One image file, or the path of an image of the run as clusters.parquet has it."""

    count: int = 10
    """How many."""

    csv: Table = None
    """Also write rank, id, path, cluster and distance to this .csv."""

    sheet: Table = None
    """Also draw them on this .png."""

    device: str = "auto"
    """cpu, cuda, or auto: the GPU if there is one."""


@dataclass(frozen=True)
class Duplicates:
    """List images of a run that show the same, in groups. Nothing is deleted.

    exact: files of equal content. near: the same picture resized, recompressed, brighter or grey,
    by the detail of a small grey version.
    """

    run: RunPlace
    """Folder of a finished run, or its name in runs/."""

    alike: float = ALIKE
    """Correlation from which on two images are near duplicates, up to 1."""

    csv: Table = None
    """Also write group, kind, id, path and likeness to this .csv."""

    sheet: Table = None
    """Also draw them on this .png."""


@dataclass(frozen=True)
class Outliers:
    """List the images of a run that are far from every group, farthest first.

    A group of fewer than three images counts as none.
    """

    run: RunPlace
    """Folder of a finished run, or its name in runs/."""

    count: int = 20
    """How many."""

    csv: Table = None
    """Also write rank, id, path, cluster, distance and the share of images nearer to this .csv."""

    sheet: Table = None
    """Also draw them on this .png."""


def similar_verb(words: list[str]) -> int:
    """Carry out `deepcluster similar`; gives the exit code."""
    asked = _parsed(Similar, words, "similar")
    folder = finished_run(asked.run)
    clusters = read_clusters(folder)
    features = KeptFeatures(folder, len(clusters.path))
    own = _own(asked.image, folder, clusters.path)
    with interruption.noticed(), Display().shown() as display:
        if own is None:
            model = load(asked.run, asked.device)
            query = model.embed([asked.image], whiten=True, normalize=True)[0]
            if not np.isfinite(query).all():
                raise NumericsError(
                    f"{encoded(asked.image)}: the network gives numbers for it that are not "
                    "finite; train with a smaller learning rate"
                )
        else:
            display.say(f"{clusters.path[own]} is an image of the run: it is not listed itself")
            query = features.row(own)
        with _phase(display, "comparing", len(clusters.path)) as advance:
            found = features.nearest(query, asked.count, own, advance)
        lines = [
            (
                rank,
                one.image,
                clusters.path[one.image],
                int(clusters.cluster[one.image]),
                one.distance,
            )
            for rank, one in enumerate(found, 1)
        ]
        for rank, _, path, cluster, distance in lines[:_LINES]:
            display.say(f"{rank:>4}  {distance:.3f}  group {cluster:<5} {path}")
        _say_how_many_more(lines, display)
        _write_table(asked.csv, ["rank", "id", "path", "cluster", "distance"], lines, display)
        if asked.sheet is not None:
            images = Album.of_run(folder)
            picture = read(asked.image) if own is None else images.original(own)
            shown = [
                Shown(images.original(number), path, f"{distance:.2f}")
                for _, number, path, _, distance in lines[:MOST]
            ]
            strips = [
                Strip("asked for", [Shown(picture, asked.image)]),
                Strip("most like it", shown),
            ]
            _write_sheet(asked.sheet, strips, display)
    return 0


def _own(image: str, folder: RunFolder, names: list[str]) -> int | None:
    """The number of an image of the run, by its path or by its content; None for any other."""
    number = KnownPaths(names, Path(folder.settings["images"])).number(image)
    if number is not None:
        return number
    if not Path(image).exists():
        raise UsageError(f"{encoded(image)}: neither a file nor the path of an image of the run")
    if not Path(image).is_file():
        raise UsageError(f"{encoded(image)} is a folder; similar takes one image")
    hashes = Index.load(folder.verified("index.parquet")).usable["hash"].to_pylist()
    with Path(image).open("rb") as file:
        content = content_hash(file.read())
    return hashes.index(content) if content in hashes else None


def duplicates_verb(words: list[str]) -> int:
    """Carry out `deepcluster duplicates`; gives the exit code."""
    asked = _parsed(Duplicates, words, "duplicates")
    if not 0 < asked.alike <= 1:
        raise UsageError(f"--alike {asked.alike:g}: give a correlation above 0, up to 1")
    folder = finished_run(asked.run)
    images = Album.of_run(folder)
    with interruption.noticed(), Display().shown() as display:
        groups = duplicates(images, asked.alike, partial(_phase, display))
        lines = [
            (group, "exact" if copies.exact else "near", number, images.names[number], likeness)
            for group, copies in enumerate(groups)
            for number, likeness in zip(copies.numbers, copies.likeness, strict=True)
        ]
        exact = [copies for copies in groups if copies.exact]
        display.say(
            f"{len(images):,} images: {_told(exact)} of equal files, "
            f"{_told([copies for copies in groups if not copies.exact])} of near duplicates"
        )
        last = -1
        for group, kind, _, path, likeness in lines[:_LINES]:
            mark = f"{kind:<6}" if group != last else " " * 6
            last = group
            display.say(f"  {mark} {likeness:.3f}  {path}")
        _say_how_many_more(lines, display)
        _write_table(asked.csv, ["group", "kind", "id", "path", "likeness"], lines, display)
        if asked.sheet is not None:
            strips, drawn = [], 0
            for copies in groups:
                drawn += len(copies.numbers)
                if drawn > MOST:
                    break
                shown = [
                    Shown(images.original(number), images.names[number], f"{likeness:.2f}")
                    for number, likeness in zip(copies.numbers, copies.likeness, strict=True)
                ]
                strips.append(Strip("equal files" if copies.exact else "near duplicates", shown))
            _write_sheet(asked.sheet, strips, display)
    return 0


def outliers_verb(words: list[str]) -> int:
    """Carry out `deepcluster outliers`; gives the exit code."""
    asked = _parsed(Outliers, words, "outliers")
    folder = finished_run(asked.run)
    clusters = read_clusters(folder)
    rows = KeptFeatures(folder, len(clusters.path)).rows
    with interruption.noticed(), Display().shown() as display:
        model = load(asked.run, "cpu")
        centred = model.effective["clustering"] != "PowerIteration"
        with _phase(display, "comparing", len(rows)) as advance:
            far = outliers(rows, clusters, model.centroids if centred else None, advance)
        known = np.sort(far[np.isfinite(far)])
        order = np.argsort(-np.where(np.isfinite(far), far, -1), kind="stable")
        lines = [
            (
                rank,
                number,
                clusters.path[number],
                int(clusters.cluster[number]),
                float(far[number]),
                float(np.searchsorted(known, far[number])) / len(known),
            )
            for rank, number in enumerate(order[: min(asked.count, len(known))].tolist(), 1)
        ]
        for rank, _, path, cluster, distance, share in lines[:_LINES]:
            display.say(
                f"{rank:>4}  {distance:.3f}  farther than {share:.1%}  group {cluster:<5} {path}"
            )
        _say_how_many_more(lines, display)
        names = ["rank", "id", "path", "cluster", "distance", "farther_than"]
        _write_table(asked.csv, names, lines, display)
        if asked.sheet is not None:
            images = Album.of_run(folder)
            shown = [
                Shown(images.original(number), path, f"{distance:.2f}")
                for _, number, path, _, distance, _ in lines[:MOST]
            ]
            _write_sheet(asked.sheet, [Strip("far from every group", shown)], display)
    return 0


def _parsed(kind: type[Any], words: list[str], verb: str) -> Any:
    if {"-h", "--help"} & {*words}:
        tyro.cli(kind, args=["--help"], prog=f"deepcluster {verb}")
    known = ["--" + entry.name for entry in fields(kind)]
    refuse_unknown(words, known, f"deepcluster {verb} --help", {})
    asked = flags.parsed(kind, words, verb)
    if getattr(asked, "count", 1) < 1:
        raise UsageError(f"--count {asked.count}: use at least 1")
    for flag, suffix in (("csv", ".csv"), ("sheet", ".png")):
        place: Path | None = getattr(asked, flag)
        if place is None:
            continue
        if place.suffix.lower() != suffix:
            raise UsageError(f"--{flag} {place}: name a {suffix} file")
        if place.exists():
            raise UsageError(f"--{flag} {place} exists; name another file, or delete it first")
    return asked


@contextmanager
def _phase(display: Display, name: str, images: int) -> Iterator[Callable[[int], None]]:
    """What a long computation tells of the images that are done; it ends there if that is asked."""
    with display.phase(name, images, {}, name) as phase:

        def advance(count: int) -> None:
            phase.advance(count)
            interruption.raise_if_asked()

        yield advance


def _say_how_many_more(lines: Sequence[object], display: Display) -> None:
    if len(lines) > _LINES:
        display.say(f"  and {len(lines) - _LINES:,} more; --csv FILE writes them all")


def _write_table(
    place: Path | None, names: list[str], rows: Sequence[tuple[object, ...]], display: Display
) -> None:
    if place is None:
        return
    write_csv(place, names, rows)
    display.say(f"{len(rows):,} lines in {place}")


def _write_sheet(place: Path, strips: list[Strip], display: Display) -> None:
    if not any(strip.shown for strip in strips):
        display.say(f"nothing to draw: {place} was not written")
        return
    write_sheet(place, strips)
    display.say(f"{sum(len(strip.shown) for strip in strips):,} pictures in {place}")


def _told(groups: list[Any]) -> str:
    return "1 group" if len(groups) == 1 else f"{len(groups):,} groups"
