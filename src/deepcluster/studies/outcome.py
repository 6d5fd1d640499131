"""What a study leaves: a table on the screen and in table.md, data.json, and a figure."""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import deepcluster
from deepcluster.runtime.display import Display
from deepcluster.runtime.errors import UsageError
from deepcluster.runtime.run_folder import RunFolder
from deepcluster.settings import flat
from deepcluster.studies.study import BY_TASK, Figured, Line, Results, Section, Study, differing
from deepcluster.studies.terms import Terms

_UNKNOWN = "-"


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
    about = provenance(terms.seeds, command)
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
                "note": row.note,
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


def markdown(
    study: Study, results: Results, sections: Sequence[Section], about: dict[str, Any]
) -> str:
    """The tables as a document."""
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    text = [
        f"# {study.name}\n",
        f"`{about['command']}`\n",
        f"Commit {about['commit'] or 'unknown'}; {versions}; {about['device']}; seeds "
        f"{_seeds(results)}. "
        f"Paper: {study.source}. A spread (±) is the standard deviation over seeds, of a share "
        "of a gap over those of the row, the ends of the gap being means. What is chosen is chosen "
        "on held-out training images.\n",
    ]
    for section in sections:
        text.append(f"## {_heading(section)}\n")
        text.append("| | paper | ours | note |\n|---|---|---|---|")
        text += [f"| {' | '.join(cells(line, section.digits))} |" for line in section.lines]
        text.append("")
    return "\n".join(text) + "\n![figure](figure.png)\n"


def cells(line: Line, digits: int) -> tuple[str, str, str, str]:
    """Name, paper, ours and note, as text."""
    paper = line.paper
    if not isinstance(paper, str):
        known = any(value is not None for value in paper)
        paper = " / ".join(_number(value, digits) for value in paper) if known else _UNKNOWN
    ours = " / ".join(_number(value, digits) for value in line.ours) or _UNKNOWN
    return line.name, paper, ours, line.note


def provenance(seeds: Sequence[int], command: str) -> dict[str, Any]:
    """What is needed to do it again."""
    gpu = torch.cuda.is_available()
    return {
        "command": command,
        "commit": _commit(),
        "versions": {
            "deepcluster": deepcluster.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
        "device": torch.cuda.get_device_name() if gpu else f"{platform.machine()} CPU",
        "seeds": list(seeds),
    }


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
    elif out.is_dir() and (others := sorted({p.name for p in out.iterdir()} - {"lock"})):
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


def _commit() -> str | None:
    """The commit of this code, where it lies in a repository of its own."""
    here = Path(deepcluster.__file__).parent

    def git(*words: str) -> str:
        command = ["git", "-C", str(here), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
        return done.stdout.strip()

    try:
        git("ls-files", "--error-unmatch", "__init__.py")
        return git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    except (OSError, subprocess.SubprocessError):
        return None
