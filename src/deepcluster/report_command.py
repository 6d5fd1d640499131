"""The verb report: the page of a run, laid out anew from its folder. Imports no torch."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Annotated

import tyro

from deepcluster.evaluation.subject import begun_run
from deepcluster.flags import parsed, refuse_unknown
from deepcluster.report import write_report
from deepcluster.runtime.display import Display


@dataclass(frozen=True)
class Report:
    """Write RUN/report/index.html anew from what the run folder has; opens offline.

    The run may be unfinished or old: what is missing is said on the page.
    """

    run: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
    """Run folder, or its name in runs/."""


def report(words: list[str]) -> int:
    """Carry out `deepcluster report`; gives the exit code."""
    if {"-h", "--help"} & {*words}:
        tyro.cli(Report, args=["--help"], prog="deepcluster report")
    refuse_unknown(words, [], "deepcluster report --help", {})
    asked = parsed(Report, words, "report")
    started = time.monotonic()
    page = write_report(begun_run(asked.run, "report"))
    Display().say(f"written in {time.monotonic() - started:.1f} s: {page}")
    return 0
