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
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined

from deepcluster.report import curves, verdict
from deepcluster.report.changes import followed
from deepcluster.report.groups import Group, described
from deepcluster.report.run_record import RunRecord
from deepcluster.report.selection import Selection, select, spread
from deepcluster.runtime.run_folder import RunFolder, storage_errors_named

_TYPICAL, _EDGE = 6, 2  # pictures of a card
_LISTED_BYTES = 4_000_000  # of the names on all group pages together
_NAMES_BYTES = 5_000_000  # of the names that can be searched for
_LEFT_OUT = 500
_SUGGESTED = 24


def write_report(folder: RunFolder) -> Path:
    """Lay out RUN/report/index.html from what the run folder has; gives the page's path."""
    record = RunRecord.read(folder)
    selection = select(record.labels, record.distances)
    groups = described(record, selection)
    aside = folder.path / ".report.writing"
    target = folder.path / "report"
    with storage_errors_named(target):
        shutil.rmtree(aside, ignore_errors=True)
        (aside / "thumbnails").mkdir(parents=True)
        pictures = _copied_thumbnails(record, selection, aside / "thumbnails")
        _write_pages(record, selection, groups, pictures, aside)
        shutil.rmtree(target, ignore_errors=True)
        aside.replace(target)
    return target / "index.html"


def _write_pages(
    record: RunRecord,
    selection: Selection,
    groups: list[Group],
    pictures: set[int],
    aside: Path,
) -> None:
    pages = Environment(
        loader=PackageLoader("deepcluster.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    visible = np.array(sorted(pictures), dtype=np.int64)
    names = record.names
    shared: dict[str, Any] = {
        "names": names,
        "pictures": pictures,
        "title": record.folder.path.resolve().name,
    }
    followed_groups = np.array([group.number for group in groups[:100]], dtype=np.int64)
    changes = followed(record, visible, followed_groups)
    figures = _figures(record, aside)
    sizes = np.bincount(record.labels[record.labels >= 0])
    searched = _searchable(record, groups)
    page = pages.get_template("index.html").render(
        **shared,
        record=record,
        selection=selection,
        total_groups=int((sizes > 0).sum()),
        facts=verdict.facts(record, int((sizes > 0).sum())),
        health=verdict.health(record),
        comparisons=verdict.comparisons(record),
        charts=curves.of_journal(record.journal),
        sizes=curves.of_sizes(sizes),
        groups=groups,
        cards={group.number: _card(group, pictures) for group in groups},
        suggested=_suggested(record, groups, pictures),
        changes=changes,
        followed=followed_groups.tolist(),
        figures=figures,
        reasons=Counter(reason for _, reason in record.left_out).most_common(),
        left_out=record.left_out[:_LEFT_OUT],
        ungrouped=int((record.labels < 0).sum()),
        ways=verdict.ways_on(record),
        searched=sum(len(some) for _, _, some in searched),
        written=time.strftime("%Y-%m-%d %H:%M"),
    )
    _save(aside / "index.html", page)
    (aside / "groups").mkdir()
    template = pages.get_template("group.html")
    length = 40 + sum(map(len, names)) // max(1, len(names))  # of a line, about
    quota = max(12, _LISTED_BYTES // length // max(1, len(groups)))
    for place, group in enumerate(groups):
        members = group.members[spread(len(group.members), quota)]
        with_picture = [number for number in members.tolist() if number in pictures]
        text = template.render(
            **shared,
            group=group,
            shown=with_picture,
            named=[number for number in members.tolist() if number not in pictures],
            rest=group.size - len(members),
            before=groups[place - 1].number if place else None,
            after=groups[place + 1].number if place + 1 < len(groups) else None,
        )
        _save(aside / "groups" / f"{group.number}.html", text)
    (aside / "data").mkdir()
    told = {
        "groups": followed_groups.tolist(),
        "steps": changes.steps,
        "names": {
            number: names[number]
            for step in changes.steps
            for example in [*step.get("splits", []), *step.get("mergers", [])]
            for part in example
            for number in part
        },
    }
    _save(aside / "data" / "changes.js", _script("changes", told))
    _save(aside / "data" / "names.js", _script("names", searched))
    templates = resources.files("deepcluster.report") / "templates"
    for name in ("style.css", "page.js"):
        (aside / name).write_bytes((templates / name).read_bytes())


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


def _card(group: Group, pictures: set[int]) -> tuple[list[int], list[int]]:
    """The typical images of a group and those on its edge; with pictures, where there are some."""
    members = [number for number in group.members.tolist() if number in pictures]
    members = members or group.members.tolist()
    typical = members[:_TYPICAL]
    return typical, members[max(len(typical), len(members) - _EDGE) :]


def _suggested(record: RunRecord, groups: list[Group], pictures: set[int]) -> dict[str, Any]:
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


def _searchable(record: RunRecord, groups: list[Group]) -> list[tuple[int, int, list[str]]]:
    """Of each group that is shown its number, its size and its names, or evenly many of them."""
    total = sum(len(record.names[number]) + 3 for group in groups for number in group.members)
    share = min(1.0, _NAMES_BYTES / max(1, total))
    return [
        (
            group.number,
            group.size,
            [
                record.names[number]
                for number in group.members[spread(group.size, int(group.size * share))]
            ],
        )
        for group in groups
    ]


def _figures(record: RunRecord, aside: Path) -> dict[str, Any]:
    """What `train` has drawn of the network."""
    found: dict[str, Any] = {"filters": None, "top": None}
    source = record.folder.path / "figures"
    if (source / "filters.png").is_file():
        (aside / "figures").mkdir()
        shutil.copyfile(source / "filters.png", aside / "figures" / "filters.png")
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
