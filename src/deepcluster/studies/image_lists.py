"""Parts of labelled images, as lists that `train` reads."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from deepcluster.evaluation.labelled_images import LabelledImages, split
from deepcluster.images.folder import decoded
from deepcluster.images.kept import Pixels
from deepcluster.images.selection import selected
from deepcluster.images.source import is_store, source_of
from deepcluster.runtime.errors import DataError, UsageError
from deepcluster.runtime.run_folder import RunFolder
from deepcluster.runtime.seeds import generator

_Entry = tuple[Path, str]  # a file and its class


def write_kept_part(
    target: Path, place: Path, images: LabelledImages, held_out: float, seed: int
) -> None:
    """List the images that a probe with this share and seed learns from."""
    refuse_without_files(place, "tuning")
    kept, _ = split(images, held_out, seed)
    names = images.images.names
    _write(target, ((place / decoded(names[i]), images.names[images.classes[i]]) for i in kept))


def write_uncurated(
    mixed: Path, balanced: Path, objects: Path, scenes: Path, seed: int, how: Pixels
) -> None:
    """List classes of very different sizes, mixed with scenes; and as many balanced images.

    The class of rank r keeps 1/r of its images (Zipf), ranks drawn at random; the scenes are half
    as many again as that, or all there are. The balanced list has as many images, of every class
    equally many or all it has; where all classes together have fewer, so has the mixed list.
    Links are followed as `how` says.
    """
    by_class = _by_class(objects, how)
    order = torch.randperm(len(by_class), generator=generator(seed, "uncurated-ranks")).tolist()
    ranks = {name: 1 + order[number] for number, name in enumerate(sorted(by_class))}
    unbalanced = [
        entry
        for name, entries in sorted(by_class.items())
        for entry in _some(entries, max(1, len(entries) // ranks[name]), seed, name)
    ]
    in_scenes = sorted(_by_class(scenes, how).items())
    of_scenes = [entry for _, entries in in_scenes for entry in entries]
    added = _some(of_scenes, len(unbalanced) // 2, seed, "scenes")
    both = [*unbalanced, *added]
    share = _share(list(map(len, by_class.values())), len(both))
    even = [
        entry
        for name, entries in sorted(by_class.items())
        for entry in _some(entries, share, seed, f"balanced/{name}")
    ]
    total = min(len(both), len(even))
    _write(mixed, _some(both, total, seed, "mixed"))
    _write(balanced, _some(even, total, seed, "balanced"))


def _share(sizes: list[int], total: int) -> int:
    """The fewest images of each class, or all it has, that together are so many, or all."""
    share = 0
    while share < max(sizes) and sum(min(size, share) for size in sizes) < total:
        share += 1
    return share


def _by_class(place: Path, how: Pixels) -> dict[str, list[_Entry]]:
    refuse_without_files(place, "this study")
    found: dict[str, list[_Entry]] = {}
    for entry in selected(source_of(place), how).find():
        if entry.label is not None and entry.reason is None:
            found.setdefault(entry.label, []).append((place / entry.path, entry.label))
    if len(found) < 2:
        raise DataError(f"{place} has no class folders; put every image into one, two at least")
    return found


def _some(entries: list[_Entry], count: int, seed: int, purpose: str) -> list[_Entry]:
    """So many of them, drawn at random, in the order in which they stand."""
    stream = generator(seed, f"uncurated/{purpose}")
    chosen: NDArray[np.int64] = torch.randperm(len(entries), generator=stream).numpy()[:count]
    return [entries[i] for i in np.sort(chosen)]


def refuse_without_files(place: Path, what: str, otherwise: str = "") -> None:
    """Raise where there are no files that a list could name."""
    if not place.is_dir() or is_store(place):
        raise UsageError(
            f"{place}: {what} needs a folder with one folder of files per class{otherwise}"
        )


def _write(target: Path, entries: Iterable[_Entry]) -> None:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["path", "label"])
    writer.writerows((str(path.absolute()), label) for path, label in entries)
    content = text.getvalue().encode(errors="surrogateescape")
    RunFolder(target.parent).write(target.name, content)
