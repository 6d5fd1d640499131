"""What a figure of the paper is here: networks to look at, and how the picture is composed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from PIL import Image

from deepcluster.evaluation.circumstances import circumstances
from deepcluster.runtime.run_folder import RunFolder
from deepcluster.settings import Run
from deepcluster.studies.study import Row
from deepcluster.studies.terms import Terms
from deepcluster.viewed_run import ViewedRun
from deepcluster.visuals.thumbnails import png_of


class Exhibit(NamedTuple):
    """A network that is shown, and what it is called in the figure."""

    title: str
    run: ViewedRun


@dataclass(frozen=True)
class Choices:
    """What may be chosen of a figure."""

    filters: tuple[int, ...] = ()
    count: int | None = None
    steps: int = 400
    """Of gradient ascent."""
    seed: int = 0
    wordnet: Path | None = None
    words: Path | None = None


@dataclass(frozen=True)
class Drawn:
    """A figure with its data and what is to be said of it."""

    picture: Image.Image | bytes
    data: Mapping[str, bytes]
    """Files beside it, by name."""
    caption: str


@dataclass(frozen=True)
class PaperFigure:
    """One figure of the paper, for any network."""

    name: str
    source: str
    """Where it is in the paper, and what it shows there."""
    draw: Callable[[Sequence[Exhibit], Choices], Drawn]
    rows: Callable[[Terms], list[Row]] = field(
        default=lambda terms: [Row("DeepCluster", terms.recipe)]
    )
    """What is trained where no run is given."""
    networks: int = 1
    """How many it can show."""
    smoke: Callable[[Run], Run] = field(default=lambda recipe: recipe)
    """The recipe of --smoke, where the usual one would take too long."""


def write_figure(
    out: Path, figure: PaperFigure, drawn: Drawn, runs: Sequence[Path], seed: int, command: str
) -> None:
    """figure.png, caption.md, data.json, and the data."""
    folder = RunFolder(out)
    about = {"command": command, **circumstances(), "seeds": [seed]}
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    text = [
        f"# {figure.name}\n",
        "![figure](figure.png)\n",
        f"{drawn.caption}\n",
        f"In the paper: {figure.source}.\n",
        f"`{command}`\n",
        f"Commit {about['commit'] or 'unknown'}; {versions}; {about['device']}; seed {seed}.",
    ]
    for name, content in drawn.data.items():
        folder.write(name, content)
    picture = drawn.picture
    folder.write("figure.png", png_of(picture) if isinstance(picture, Image.Image) else picture)
    folder.write("caption.md", "\n".join(text) + "\n")
    data = {
        "figure": figure.name,
        "paper": figure.source,
        **about,
        "runs": [str(run) for run in runs],
        "files": sorted(drawn.data),
        "caption": drawn.caption,
    }
    folder.write("data.json", json.dumps(data, indent=1) + "\n")
