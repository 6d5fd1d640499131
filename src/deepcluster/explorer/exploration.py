"""A run as it is looked at and arranged: its groups after the edits, and what is near what.

A `View` never changes; an edit makes the next one, so that those who read need no lock.
"""

from __future__ import annotations

import csv
import io
import threading
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jinja2 import PackageLoader
from numpy.typing import NDArray

from deepcluster.collection.kept_features import KeptFeatures, Near
from deepcluster.explorer.merge_tree import MergeTree
from deepcluster.report.edits import Edits, Step
from deepcluster.report.groups import Group, described
from deepcluster.report.page import Page
from deepcluster.report.run_record import RunRecord
from deepcluster.report.selection import Selection, select
from deepcluster.runtime.errors import ResumeError, UsageError
from deepcluster.runtime.run_folder import RunFolder
from deepcluster.runtime.spreadsheet import harmless

LONGEST_NAME = 80
MOST_MOVED = 20_000
NEIGHBOURS = 24
PAGE = 120  # images of a group sent at once
CARDS = 48  # groups of a cut sent at once

_SHEET = 8  # pictures on a card
_DRAWN = 64  # branches of the tree that are drawn
_LINES = 2_000  # of CSV at once


class _Leaves(NamedTuple):
    """What a tree begins with."""

    labels: NDArray[np.int64]
    """The group of each image."""
    groups: NDArray[np.int64]
    """Those that have images, rising."""
    middles: NDArray[np.float64]
    within: float
    """The squared distances of images to the middle of their group, summed."""


class View:
    """The run after some edits."""

    def __init__(
        self, features: KeptFeatures, base: RunRecord, edits: Edits, before: View | None = None
    ) -> None:
        """The view after these edits; what the one before knows and still holds is taken over."""
        self.edits = edits
        self.record = base.edited(edits)
        self._features = features
        labels = self.record.labels
        self._order = np.lexsort((self.record.distances, labels))  # from the centre outwards
        self._sorted = labels[self._order]
        sizes = np.bincount(labels[labels >= 0])
        self.groups: NDArray[np.int64] = np.flatnonzero(sizes)
        """The groups that have images, rising."""
        self.sizes: NDArray[np.int64] = sizes[self.groups]
        self._planting = threading.Lock()
        self._leaves_before: _Leaves | None = None
        self._described_before: list[Group] = []
        if before is not None:
            page = before.__dict__.get("page")
            self._described_before = page.groups if page else before._described_before
            if "_tree" in before.__dict__ and np.array_equal(labels, before.record.labels):
                self._tree = before._tree
            self._leaves_before = before.__dict__.get("_leaves", before._leaves_before)

    def members(self, group: int) -> NDArray[np.int64]:
        """The images of a group, from its centre outwards."""
        start, end = np.searchsorted(self._sorted, [group, group + 1])
        return self._order[start:end]

    def neighbours(self, image: int) -> list[Near]:
        """The images most like one of the run."""
        return self.near(self._features.row(image), image)

    def near(self, row: NDArray[np.float32], leave_out: int | None = None) -> list[Near]:
        """The images nearest to a feature."""
        if not np.isfinite(row).all():
            return []
        return self._features.nearest(row, NEIGHBOURS, leave_out)

    @property
    def tree(self) -> MergeTree:
        """How the groups would come together; leaf i is the i-th of `groups`.

        Of threads that ask at once, one makes it.
        """
        with self._planting:
            return self._tree

    @cached_property
    def _tree(self) -> MergeTree:
        return MergeTree.of(self._leaves.middles, self.sizes, self._leaves.within)

    @cached_property
    def _leaves(self) -> _Leaves:
        """Of groups that are as they were before, what was known before."""
        labels, before = self.record.labels, self._leaves_before
        if before is None:
            return _Leaves(labels, self.groups, *self._features.middles(labels, self.groups))
        changed = labels != before.labels
        touched = np.union1d(labels[changed], before.labels[changed])
        is_new = np.isin(self.groups, touched)
        middles = np.empty((len(self.groups), before.middles.shape[1]))
        middles[~is_new] = before.middles[np.isin(before.groups, self.groups[~is_new])]
        middles[is_new], came = self._features.middles(labels, self.groups[is_new])
        gone = before.groups[np.isin(before.groups, touched)]
        _, went = self._features.middles(before.labels, gone)
        within = max(0.0, before.within - went + came)
        return _Leaves(labels, self.groups, middles, within)

    @cached_property
    def page(self) -> Page:
        """The page of the report, with what a site adds to it."""
        selection = select(self.record.labels, self.record.distances)
        return Page(
            self.record,
            selection,
            described(self.record, selection, self._described_before),
            range(len(self.record.names)),
            PackageLoader("deepcluster.explorer", "templates"),
        )

    def group_page(self, number: int) -> str:
        """The page of any group that has images."""
        known = next((one for one in self.page.groups if one.number == number), None)
        group = known or self._described(number)
        return self.page.group(group, group.members[:PAGE], "explored_group.html")

    def _described(self, number: int) -> Group:
        one = np.array([number])
        return described(self.record, Selection(one, one, all_groups=False, all_images=False))[0]

    def title(self, group: int) -> str:
        """What a group is called."""
        name = self.record.group_names.get(group)
        return "no group" if group < 0 else f"Group {group}" + (f": {name}" if name else "")

    def told(self, near: Iterable[Near]) -> list[dict[str, Any]]:
        """Images as a page is told of them."""
        return [self.image(one.image) | {"distance": round(one.distance, 4)} for one in near]

    def image(self, number: int) -> dict[str, Any]:
        """One image as a page is told of it."""
        group = int(self.record.labels[number])
        return {
            "image": number,
            "name": self.record.names[number],
            "group": group,
            "title": self.title(group),
        }

    def cut(self, count: int, start: int) -> dict[str, Any]:
        """What the run looks like in `count` groups: some of them, from the `start`-th on."""
        merged = self.tree.cut(count)
        return {
            "count": count,
            "kept": round(self.tree.kept(count), 4),
            "start": start,
            "cards": [self._card(self.groups[leaves]) for leaves in merged[start : start + CARDS]],
        }

    def crown(self) -> dict[str, Any]:
        """The upper part of the tree, to be drawn."""
        ends, steps = self.tree.crown(_DRAWN)
        return {
            "groups": len(self.tree),
            "ends": [self._card(self.groups[leaves], pictures=1) for leaves in ends],
            "steps": [[one, other, cost] for one, other, cost in steps],
        }

    def _card(self, groups: NDArray[np.int64], pictures: int = _SHEET) -> dict[str, Any]:
        sizes = self.sizes[np.searchsorted(self.groups, groups)]
        largest = groups[np.argsort(-sizes, kind="stable")]
        typical = [self.members(int(group))[:pictures] for group in largest[:pictures]]
        # The most typical image of each group in turn, then the second of each.
        sheet = [
            int(some[place]) for place in range(pictures) for some in typical if place < len(some)
        ]
        return {
            "groups": largest.tolist(),
            "titles": [self.title(int(group)) for group in largest[:12]],
            "size": int(sizes.sum()),
            "images": [
                {"image": number, "name": self.record.names[number]} for number in sheet[:pictures]
            ],
        }

    def table(self, images: NDArray[np.int64], cut: int | None = None) -> Iterator[bytes]:
        """The images as lines of CSV, a part at a time, and their group in a cut of the tree."""
        merged = dict[int, int]()
        if cut is not None:
            for leaves in self.tree.cut(cut):
                largest = int(self.groups[leaves[np.argmax(self.sizes[leaves])]])
                merged |= dict.fromkeys(self.groups[leaves].tolist(), largest)
        names = ["id", "path", "group", "name", "distance", *(["merged"] if merged else [])]
        yield _csv([names])
        for start in range(0, len(images), _LINES):
            yield _csv(self._line(image, merged) for image in images[start : start + _LINES])

    def _line(self, image: int, merged: dict[int, int]) -> list[object]:
        record, group = self.record, int(self.record.labels[image])
        line = [int(image), record.names[image], group, record.group_names.get(group, "")]
        more = [merged.get(group, -1)] if merged else []
        return [*line, f"{record.distances[image]:.6g}", *more]


class Exploration:
    """A finished run, and the view of it that people have made so far."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        folder.verified("clusters.parquet")
        self._base = RunRecord.as_grouped(folder)
        if not (self._base.labels >= 0).any():
            raise ResumeError(f"{folder.path} has no groups that could be explored")
        self._features = KeptFeatures(folder, len(self._base.names))
        self._lock = threading.Lock()
        self.view = View(self._features, self._base, Edits.read(folder))

    def prepare(self) -> None:
        """What the first cut would wait for."""
        _ = self.view.tree

    def named(self, part: str) -> NDArray[np.int64]:
        """The images with these letters in their names, be they large or small."""
        found = pc.match_substring(self._names, part, ignore_case=True)
        return np.flatnonzero(found.to_numpy(zero_copy_only=False))

    @cached_property
    def _names(self) -> pa.Array:
        return pa.array(self._base.names, pa.large_string())

    def name(self, group: int, name: str) -> None:
        """Call a group something; by nothing its name is taken from it."""
        words = " ".join(name.split())
        if len(words) > LONGEST_NAME:
            raise UsageError(
                f"a name may have {LONGEST_NAME} characters, this one has {len(words)}"
            )
        if not words.isprintable():
            raise UsageError("a name may have only characters that can be seen")
        self._known(group)
        if words != self.view.record.group_names.get(group, ""):
            self._edit({"name": words, "group": group})

    def move(self, images: list[int], group: int | None) -> int:
        """Put images into a group, or into a new one; gives its number."""
        if not images:
            raise UsageError("no image is selected")
        if len(images) > MOST_MOVED:
            raise UsageError(f"at most {MOST_MOVED:,} images can be moved at once")
        count = len(self._base.names)
        if any(not 0 <= image < count for image in images):
            raise UsageError(f"there is no such image: they are numbered from 0 to {count - 1}")
        if group is None:
            group = int(max(self._base.labels.max(), self.view.groups.max())) + 1
        else:
            self._known(group)
        self._edit({"move": sorted({*images}), "to": group})
        return group

    def merge(self, groups: list[int]) -> int:
        """Make groups one, under the number of the largest; gives that."""
        for group in groups:
            self._known(group)
        distinct = sorted({*groups})
        if len(distinct) < 2:
            raise UsageError("at least two groups are needed to make one of them")
        into = max(distinct, key=lambda group: (len(self.view.members(group)), -group))
        self._edit({"merge": distinct, "to": into})
        return into

    def undo(self) -> None:
        """Take back the last edit, if there is one."""
        with self._lock:
            self._keep(Edits.read(self.folder).undone())

    def _known(self, group: int) -> None:
        if group not in self.view.groups:
            raise UsageError(f"there is no group {group}")

    def _edit(self, step: Step) -> None:
        with self._lock:
            # Read again, since another explorer of this run may have written.
            self._keep(Edits.read(self.folder).and_then(step))

    def _keep(self, edits: Edits) -> None:
        self.view = View(self._features, self._base, edits.saved(self.folder), self.view)


def last_edit(edits: Edits) -> str:
    """What would be taken back next, in words."""
    match edits.steps[-1] if edits.steps else {}:
        case {"name": "", "group": group}:
            return f"group {group} has no name any more"
        case {"name": name, "group": group}:
            return f"group {group} is called {name}"
        case {"move": images, "to": group}:
            some = "1 image" if len(images) == 1 else f"{len(images):,} images"
            return f"{some} moved to group {group}"
        case {"merge": groups, "to": group}:
            return f"{len(groups)} groups made one, group {group}"
    return ""


def _csv(rows: Iterable[Iterable[object]]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows(map(harmless, rows))
    return text.getvalue().encode(errors="backslashreplace")
