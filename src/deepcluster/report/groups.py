"""What a page says of each group: how large, how tight, who is typical, who hardly belongs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from deepcluster.report.run_record import RunRecord
from deepcluster.report.selection import Selection

ALIKE = 0.95
"""Cosine of two rows of features from which on their images may be near-duplicates."""

ALMOST_EQUAL = 0.995
"""The same where there are no thumbnails to confirm it: few images leave few dimensions, in which
different things come near each other."""

_SAME_PIXELS = 0.9  # correlation of two thumbnails, 16 pixels wide

_MOST_COMPARED = 1_500  # rows of one group that are compared with each other
_FAR = 3.5  # robust deviations from the median distance that make an outlier


@dataclass(frozen=True)
class Group:
    """One group, images from its centre outwards."""

    number: int
    name: str | None
    """What a person has called it."""
    size: int
    tightness: float | None
    """1 where all images are at one point, 0 where they are as far apart as any images are."""
    members: NDArray[np.int64]
    near_duplicates: list[tuple[int, int]]
    """Pairs whose features are almost equal."""
    outliers: list[int]
    """Images unusually far from the centre, the farthest first."""
    folder: str | None
    """The folder that most of the images come from; None where there are not several."""
    folder_share: float
    """Share of the images that come from there."""

    @property
    def title(self) -> str:
        """Its number, and its name if it has one."""
        return f"Group {self.number}" + (f": {self.name}" if self.name else "")


def described(record: RunRecord, selection: Selection, before: Iterable[Group] = ()) -> list[Group]:
    """The groups that are shown, the largest first.

    Args:
        record: The run.
        selection: What is shown of it.
        before: Groups that were described already; one that is still the same is taken over.
    """
    labels, distances = record.labels, record.distances
    order = np.lexsort((distances, labels))
    starts = np.searchsorted(labels[order], selection.groups, side="left")
    ends = np.searchsorted(labels[order], selection.groups, side="right")
    rows = record.features()
    spread = _overall_spread(rows)
    tiny = _TinyPictures(record.folder.path / "thumbnails")
    known = {group.number: group for group in before}
    groups = []
    for number, start, end in zip(selection.groups, starts, ends, strict=True):
        members = order[start:end]
        folder, folder_share = _main_folder(record, members)
        same = known.get(int(number))
        if same is not None and np.array_equal(same.members, members):
            groups.append(replace(same, name=record.group_names.get(int(number))))
            continue
        groups.append(
            Group(
                number=int(number),
                name=record.group_names.get(int(number)),
                size=len(members),
                tightness=_tightness(distances[members], spread),
                members=members,
                near_duplicates=[] if rows is None else _near_duplicates(rows, members, tiny),
                outliers=_outliers(members, distances[members]),
                folder=folder,
                folder_share=folder_share,
            )
        )
    return sorted(groups, key=lambda group: (-group.size, group.number))


class _TinyPictures:
    """Thumbnails as 16 x 16 grey pixels of zero mean and unit length, read when asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: dict[int, NDArray[np.float32] | None] = {}

    def likeness(self, one: int, other: int) -> float | None:
        """The correlation of two, or None where one is not there."""
        a, b = self._pixels(one), self._pixels(other)
        return None if a is None or b is None else float(a @ b)

    def _pixels(self, number: int) -> NDArray[np.float32] | None:
        if number not in self._known:
            self._known[number] = self._read(number)
        return self._known[number]

    def _read(self, number: int) -> NDArray[np.float32] | None:
        try:
            with Image.open(self.folder / f"{number}.jpg", formats=["JPEG"]) as picture:
                small = picture.convert("L").resize((16, 16), Image.Resampling.BOX)
        except (OSError, SyntaxError, ValueError):
            return None
        pixels = np.asarray(small, dtype=np.float32).ravel()
        pixels = pixels - pixels.mean()
        length = float(np.linalg.norm(pixels))
        return pixels / length if length > 16 else None  # one colour is like any other


def _overall_spread(rows: NDArray[np.float16] | None) -> float | None:
    """Mean squared distance of the rows, or of some of them, to their mean."""
    if rows is None or len(rows) < 2:
        return None
    some = np.asarray(rows[:: max(1, len(rows) // 20_000)], dtype=np.float32)
    spread = float(((some - some.mean(axis=0)) ** 2).sum(axis=1).mean())
    return spread if spread > 0 else None


def _tightness(distances: NDArray[np.float32], spread: float | None) -> float | None:
    if spread is None or not np.isfinite(distances).all():
        return None
    return float(np.clip(1 - np.mean(distances.astype(np.float64) ** 2) / spread, 0, 1))


def _near_duplicates(
    rows: NDArray[np.float16], members: NDArray[np.int64], tiny: _TinyPictures
) -> list[tuple[int, int]]:
    """At most 50 pairs, the most alike first; of a very large group only its middle is compared."""
    compared = np.sort(members[:_MOST_COMPARED])
    if len(compared) < 2:
        return []
    block = np.asarray(rows[compared], dtype=np.float32)
    norms = np.linalg.norm(block, axis=1, keepdims=True)
    block /= np.maximum(norms, 1e-6)
    likeness = np.triu(block @ block.T, 1)
    first, second = np.nonzero(likeness >= ALIKE)
    found = []
    for i in np.argsort(-likeness[first, second], kind="stable")[:500]:
        one, other = int(compared[first[i]]), int(compared[second[i]])
        seen = tiny.likeness(one, other)
        alike = (
            likeness[first[i], second[i]] >= ALMOST_EQUAL if seen is None else seen >= _SAME_PIXELS
        )
        if alike:
            found.append((one, other))
    return found[:50]


def _outliers(members: NDArray[np.int64], distances: NDArray[np.float32]) -> list[int]:
    """At most 12, by the median and the median deviation, which outliers do not move."""
    if len(members) < 8 or not np.isfinite(distances).all():
        return []
    middle = np.median(distances)
    deviation = 1.4826 * np.median(np.abs(distances - middle))
    far = members[distances > middle + _FAR * max(deviation, 1e-6)]
    return [int(number) for number in far[::-1][:12]]


def _main_folder(record: RunRecord, members: NDArray[np.int64]) -> tuple[str | None, float]:
    if record.classes is None or not len(members):
        return None, 0.0
    counts = np.bincount(record.classes[members])
    return record.folders[counts.argmax()], float(counts.max() / len(members))
