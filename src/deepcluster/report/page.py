"""The page: everything is read from the run folder and laid out beside it as files.

No code and no style is in the page itself, and nothing is fetched, so that it opens from disk
under a strict policy. Whatever comes from the user's files is escaped: in HTML by Jinja, in data
by JSON that no HTML parser can take for markup; the script only ever sets text.
"""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import BaseLoader, ChoiceLoader, Environment, PackageLoader, StrictUndefined
from numpy.typing import NDArray

from deepcluster.report import curves, verdict
from deepcluster.report.changes import Changes, followed
from deepcluster.report.groups import Group, described
from deepcluster.report.run_record import RunRecord
from deepcluster.report.selection import Selection, select, spread
from deepcluster.runtime.run_folder import RunFolder, storage_errors_named

FILES = ("style.css", "page.js")
DATA = ("changes", "names")
"""Scripts with what is known of the run: data/changes.js, data/names.js."""

_TYPICAL, _EDGE = 6, 2  # pictures of a card
_LISTED_BYTES = 4_000_000  # of the names on all group pages together
_NAMES_BYTES = 5_000_000  # of the names that can be searched for
_LEFT_OUT = 500
_SUGGESTED = 24


def write_report(folder: RunFolder, out: Path | None = None) -> Path:
    """Lay out RUN/report, or another folder, from what the run has; gives the page's path."""
    record = RunRecord.read(folder)
    selection = select(record.labels, record.distances)
    target = out or folder.path / "report"
    aside = target.with_name(f".{target.name}.writing")
    with storage_errors_named(target):
        shutil.rmtree(aside, ignore_errors=True)
        (aside / "thumbnails").mkdir(parents=True)
        pictures = _copied_thumbnails(record, selection, aside / "thumbnails")
        page = Page(record, selection, described(record, selection), pictures)
        _write(page, aside)
        shutil.rmtree(target, ignore_errors=True)
        aside.replace(target)
    return target / "index.html"


def _write(page: Page, aside: Path) -> None:
    _save(aside / "index.html", page.index())
    (aside / "groups").mkdir()
    names = page.record.names
    length = 40 + sum(map(len, names)) // max(1, len(names))  # of a line, about
    quota = max(12, _LISTED_BYTES // length // max(1, len(page.groups)))
    for group in page.groups:
        members = group.members[spread(group.size, quota)]
        _save(aside / "groups" / f"{group.number}.html", page.group(group, members))
    (aside / "data").mkdir()
    for name in DATA:
        _save(aside / "data" / f"{name}.js", page.data(name))
    if (filters := page.record.folder.path / "figures" / "filters.png").is_file():
        (aside / "figures").mkdir()
        shutil.copyfile(filters, aside / "figures" / "filters.png")
    for name in FILES:
        (aside / name).write_bytes(file_of_the_page(name))


@dataclass(frozen=True)
class Page:
    """A run laid out: `write_report` writes all of it, and the explorer what it is asked for."""

    record: RunRecord
    selection: Selection
    groups: list[Group]
    """Those of the selection, the largest first."""
    pictures: Collection[int]
    """Images that have a picture beside the page."""
    more_templates: BaseLoader | None = None
    """Asked before the page's own, so that a page can be one with additions."""

    def index(self, template: str = "index.html") -> str:
        """The first page."""
        record = self.record
        sizes = np.bincount(record.labels[record.labels >= 0])
        return self._templates.get_template(template).render(
            **self._shared,
            record=record,
            selection=self.selection,
            total_groups=int((sizes > 0).sum()),
            facts=verdict.facts(record, int((sizes > 0).sum())),
            health=verdict.health(record),
            comparisons=verdict.comparisons(record),
            charts=curves.of_journal(record.journal),
            sizes=curves.of_sizes(sizes),
            groups=self.groups,
            clear=verdict.clear_groups(record, self.groups),
            cards={group.number: _card(group, self.pictures) for group in self.groups},
            suggested=_suggested(record, self.groups, self.pictures),
            changes=self._changes,
            followed=self._followed.tolist(),
            figures=_figures(record),
            patches=record.settings["effective"].get("network.patches", 0),
            reasons=Counter(reason for _, reason in record.left_out).most_common(),
            left_out=record.left_out[:_LEFT_OUT],
            ungrouped=int((record.labels < 0).sum()),
            ways=verdict.ways_on(record),
            searched=sum(len(some) for _, _, some in self._searchable),
            written=time.strftime("%Y-%m-%d %H:%M"),
        )

    def group(self, group: Group, members: NDArray[np.int64], template: str = "group.html") -> str:
        """The page of one group, with these of its images."""
        numbers = [one.number for one in self.groups]
        place = numbers.index(group.number) if group.number in numbers else None
        return self._templates.get_template(template).render(
            **self._shared,
            group=group,
            shown=[number for number in members.tolist() if number in self.pictures],
            named=[number for number in members.tolist() if number not in self.pictures],
            rest=group.size - len(members),
            before=self.groups[place - 1] if place else None,
            after=None if place in (None, len(numbers) - 1) else self.groups[place + 1],
        )

    def data(self, name: str) -> str:
        """What a script of the page reads, as a script."""
        if name == "names":
            return _script(name, self._searchable)
        names = self.record.names
        steps = self._changes.steps
        told = {
            "groups": self._followed.tolist(),
            "steps": steps,
            "names": {
                number: names[number]
                for step in steps
                for example in [*step.get("splits", []), *step.get("mergers", [])]
                for part in example
                for number in part
            },
        }
        return _script(name, told)

    @cached_property
    def _templates(self) -> Environment:
        own = PackageLoader("deepcluster.report", "templates")
        return Environment(
            loader=ChoiceLoader([self.more_templates, own]) if self.more_templates else own,
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )

    @property
    def _shared(self) -> dict[str, Any]:
        return {
            "names": self.record.names,
            "pictures": self.pictures,
            "title": self.record.folder.path.resolve().name,
        }

    @cached_property
    def _followed(self) -> NDArray[np.int64]:
        return np.array([group.number for group in self.groups[:100]], dtype=np.int64)

    @cached_property
    def _changes(self) -> Changes:
        chosen = self.selection.images
        shown = np.array([n for n in chosen.tolist() if n in self.pictures], dtype=np.int64)
        return followed(self.record, shown, self._followed)

    @cached_property
    def _searchable(self) -> list[tuple[int, int, list[str]]]:
        """Of each group its number, its size and its names, or evenly many of them."""
        names = self.record.names
        total = sum(len(names[number]) + 3 for group in self.groups for number in group.members)
        share = min(1.0, _NAMES_BYTES / max(1, total))
        return [
            (
                group.number,
                group.size,
                [
                    names[number]
                    for number in group.members[spread(group.size, int(group.size * share))]
                ],
            )
            for group in self.groups
        ]


def file_of_the_page(name: str) -> bytes:
    """One of `FILES`, the same for every run."""
    return (resources.files("deepcluster.report") / "templates" / name).read_bytes()


def _save(path: Path, text: str) -> None:
    # The path of a folder may hold bytes that are no UTF-8.
    path.write_bytes(text.encode(errors="backslashreplace"))


def _script(name: str, content: Any) -> str:
    """Data as a script, which a page on disk may load where it may not read files."""
    text = json.dumps(content, separators=(",", ":"))  # ASCII; what could end a script is escaped
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return (
        f"window.deepcluster = window.deepcluster || {{}};\nwindow.deepcluster.{name} = {text};\n"
    )


def _copied_thumbnails(record: RunRecord, selection: Selection, target: Path) -> set[int]:
    """Put the thumbnails that there are beside the page; gives the images that have one."""
    found = set()
    for number in selection.images.tolist():
        try:
            name = f"{number}.jpg"
            shutil.copyfile(record.folder.path / "thumbnails" / name, target / name)
        except FileNotFoundError:
            continue
        found.add(number)
    return found


def _card(group: Group, pictures: Collection[int]) -> tuple[list[int], list[int]]:
    """The typical images of a group and those on its edge; with pictures, where there are some."""
    members = [number for number in group.members.tolist() if number in pictures]
    members = members or group.members.tolist()
    typical = members[:_TYPICAL]
    return typical, members[max(len(typical), len(members) - _EDGE) :]


def _suggested(record: RunRecord, groups: list[Group], pictures: Collection[int]) -> dict[str, Any]:
    """Pairs and images to look at first, over all groups."""
    pairs = [(*pair, group.number) for group in groups for pair in group.near_duplicates]
    far = [(number, group.number) for group in groups for number in group.outliers[:2]]
    far.sort(key=lambda item: -float(record.distances[item[0]]))
    pairs.sort(key=lambda pair: -((pair[0] in pictures) + (pair[1] in pictures)))
    far.sort(key=lambda item: item[0] not in pictures)
    return {
        "pairs": pairs[:_SUGGESTED],
        "all_pairs": len(pairs),
        "outliers": far[:_SUGGESTED],
        "copies": len(record.copies),
        "copied": sum(len(ids) - 1 for ids in record.copies),
    }


def _figures(record: RunRecord) -> dict[str, Any]:
    """What `train` has drawn of the network."""
    found: dict[str, Any] = {"filters": None, "top": None}
    source = record.folder.path / "figures"
    if (source / "filters.png").is_file():
        found["filters"] = "figures/filters.png"
    try:
        top = json.loads((source / "top.json").read_text())
        shown = [
            (int(row["filter"]), [int(number) for number in row["images"]])
            for row in top["filters"]
            if all(0 <= number < len(record.names) for number in row["images"])
        ]
        found["top"] = {"layer": top["layer"], "of": top["images"], "filters": shown[:24]}
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return found
