"""What a study leaves: a table on the screen and in table.md, data.json, and a figure."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from deepcluster.evaluation.circumstances import circumstances
from deepcluster.runtime.display import Display
from deepcluster.runtime.errors import UsageError
from deepcluster.runtime.run_folder import RunFolder
from deepcluster.settings import flat
from deepcluster.studies.study import BY_TASK, Figured, Line, Results, Section, Study, differing
from deepcluster.studies.terms import Terms

_UNKNOWN = "-"
_OURS = {"lock", ".study.json.writing"}  # what a command that was killed at once may have left
_TIME_ALONE = re.compile(r"(\d[\d.,]* (s|min|h) )+[\w ]+")  # 0.6 s to learn and test


def show(sections: Sequence[Section], display: Display) -> None:
    """The tables, on the screen."""
    for section in sections:
        display.say()
        display.say(_heading(section), style="bold")
        lines = [("", "paper", "ours", "note")]
        lines += [cells(line, section.digits) for line in section.lines]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        for line in lines:  # whole, however narrow the terminal: figures must not be cut
            padded = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
            display.say("  ".join(padded).rstrip())


def write(
    out: Path,
    study: Study,
    terms: Terms,
    results: Results,
    sections: Sequence[Section],
    command: str,
) -> None:
    """table.md, data.json and figure.png."""
    folder = RunFolder(out)
    about = {"command": command, **circumstances(), "seeds": list(terms.seeds)}
    folder.write("table.md", markdown(study, results, sections, about))
    data = {
        "study": study.name,
        "paper": study.source,
        **about,
        "recipe": flat(terms.recipe),
        "probe": _judge(study, terms),
        "data": [
            {"name": data.name, "train": str(data.train), "test": str(data.test)}
            for data in terms.data
        ],
        "rows": {
            row.name: {
                "trained": row.trained,
                "differs": differing(row.run, terms.recipe),
                "images": None if row.images is None else str(row.images),
                "adopted": {seed: str(place) for seed, place in row.adopted.items()},
                "note": results.note(row.name),
            }
            for row in results.rows
        },
        "tables": [asdict(section) for section in sections],
        "measured": [asdict(measured) for measured in results.measured],
    }
    folder.write("data.json", json.dumps(data, indent=1) + "\n")
    figure = Figure(layout="constrained", dpi=150)
    FigureCanvasAgg(figure)
    study.figure(figure, results, terms)
    folder.write("figure.png", lambda path: figure.savefig(path, format="png"))


def no_longer_there(out: Path, study: Study, results: Results) -> list[str]:
    """The rows, and the tasks, of the last table in this folder that these results have not."""
    try:
        before = json.loads((out / "data.json").read_text())
        rows, judges = list(before["rows"]), list(before["probe"])
    except (OSError, ValueError, LookupError, TypeError):
        return []
    tasks = judges if study.judge in BY_TASK else []
    return [name for name in rows if name not in results.names] + [
        name for name in tasks if name not in results.judged_by
    ]


def markdown(
    study: Study, results: Results, sections: Sequence[Section], about: dict[str, Any]
) -> str:
    """The tables as a document."""
    made = _made(results) or [circumstances()]
    text = [
        f"# {study.name}\n",
        f"`{about['command']}`\n",
        f"{'; '.join(dict.fromkeys(map(_in_words, made)))}; seeds {_seeds(results)}. "
        f"Paper: {study.source}. A spread (±) is the standard deviation over seeds, of a share "
        "of a gap over those of the row, the ends of the gap being means. What is chosen is chosen "
        "on held-out training images.\n",
    ]
    for section in sections:
        text.append(f"## {_heading(section)}\n")
        text.append("| | paper | ours | note |\n|---|---|---|---|")
        text += [f"| {' | '.join(cells(line, section.digits))} |" for line in section.lines]
        text.append("")
    if remarks := _remarks(results):
        text += ["## What is to be said of these figures\n", *remarks, ""]
    return "\n".join(text) + "\n![figure](figure.png)\n"


def cells(line: Line, digits: int) -> tuple[str, str, str, str]:
    """Name, paper, ours and note, as text."""
    paper = line.paper
    if not isinstance(paper, str):
        known = any(value is not None for value in paper)
        paper = " / ".join(_number(value, digits) for value in paper) if known else _UNKNOWN
    ours = " / ".join(_number(value, digits) for value in line.ours) or _UNKNOWN
    return line.name, paper, ours, line.note


def _remarks(results: Results) -> list[str]:
    """What bounds a figure, diverged, was left out or may be chosen better: once, with all whom."""
    heard: dict[str, list[str]] = {}
    for one in results.measured:
        for judge, part in one.judged.items():
            for remark in part.get("remarks", ()):
                if _TIME_ALONE.fullmatch(remark):
                    continue  # of no figure, and never the same twice
                heard.setdefault(f"{judge}: {remark}", []).append(f"{one.row}, seed {one.seed}")
    return [f"- {said} ({'; '.join(who)})" for said, who in heard.items()]


def _made(results: Results) -> list[dict[str, Any]]:
    """Where the parts of the results came about, one or several."""
    adopted = {row.name for row in results.rows if row.adopted}  # only read here
    trained = [one.training for one in results.measured if one.row not in adopted]
    judged = [part for one in results.measured for part in one.judged.values()]
    # What a task came to may have been computed earlier, or elsewhere, than it was put down.
    every = [part.get("stages_made", [part.get("made")]) for part in (*trained, *judged) if part]
    return [made for some in every for made in some if made]


def _in_words(made: dict[str, Any]) -> str:
    versions = [f"{name} {version}" for name, version in made["versions"].items()]
    return ", ".join([f"Commit {made['commit'] or 'unknown'}", *versions, made["device"]])


def _seeds(results: Results) -> str:
    """Which rows have which seeds, in words."""
    of: dict[str, list[str]] = {}
    for name in results.names:
        of.setdefault(", ".join(str(one.seed) for one in results.of(name)), []).append(name)
    if len(of) == 1:
        return next(iter(of))
    return "; ".join(f"{seeds} ({', '.join(names)})" for seeds, names in of.items())


def _judge(study: Study, terms: Terms) -> dict[str, Any]:
    """The settings of what the rows are judged by."""
    if study.judge in BY_TASK:
        return {
            task.name: asdict(task.with_seed(0))  # type: ignore[call-overload]
            for task in terms.tasks
        }
    return asdict(terms.mlp if study.judge == "mlp" else terms.probe)


def refuse_foreign(out: Path, name: str) -> None:
    """Raise where the folder holds something else than this study."""
    if out.exists() and not out.is_dir():
        raise UsageError(f"--out {out} is a file; name a folder")
    note = out / "study.json"
    if note.is_file():
        try:
            there = json.loads(note.read_text()).get("study")
        except (OSError, ValueError, AttributeError):
            there = "something that cannot be read"
        if there != name:
            raise UsageError(f"--out {out} holds the study {there}; choose another --out")
    elif out.is_dir() and (others := sorted({p.name for p in out.iterdir()} - _OURS)):
        raise UsageError(
            f"--out {out} already holds {others[0]!r}, which is not ours; choose another --out, "
            "nothing was written"
        )


def _heading(section: Section) -> str:
    return f"{section.title}: {' / '.join(section.columns)}"


def _number(value: Figured | float | None, digits: int) -> str:
    if value is None:
        return _UNKNOWN
    if isinstance(value, Figured):
        spread = "" if value.spread is None else f"±{value.spread:.{digits}f}"
        return f"{value.mean:.{digits}f}{spread}"
    return f"{value:.{digits}f}"
