"""The verb report: the page of a run, laid out anew from its folder. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from deepcluster.evaluation.subject import begun_run
from deepcluster.flags import parsed, refuse_unknown, shown_as
from deepcluster.report import write_report
from deepcluster.runtime.display import Display
from deepcluster.runtime.errors import UsageError


@dataclass(frozen=True)
class Report:
    """Write RUN/report/index.html anew from what the run folder has; opens offline.

    The run may be unfinished or old: what is missing is said on the page.
    """

    run: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
    """Run folder, or its name in runs/."""

    out: Annotated[Path | None, shown_as("DIR")] = None
    """Where the page is written; RUN/report if not given."""


def report(words: list[str]) -> int:
    """Carry out `deepcluster report`; gives the exit code."""
    if {"-h", "--help"} & {*words}:
        tyro.cli(Report, args=["--help"], prog="deepcluster report")
    refuse_unknown(words, ["--out"], "deepcluster report --help", {})
    asked = parsed(Report, words, "report")
    folder, out = begun_run(asked.run, "report"), asked.out
    if out is not None and out.exists() and not (out / "page.js").is_file():
        raise UsageError(f"--out {out} is there already and is no page; name a new folder")
    with Display().shown() as display:
        with display.phase("laying out the page", 1, {}, "report") as phase:
            page = write_report(folder, out)
        display.say(f"written in {phase.seconds:.1f} s: {page}")
    return 0
