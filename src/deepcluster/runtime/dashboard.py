"""A run on a terminal: what it does now, how far it is, how its loss falls, and a light."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Protocol

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from deepcluster.runtime import interruption
from deepcluster.runtime.durations import duration
from deepcluster.runtime.health import WORDS, health_of

_LIGHTS = {"good": "green", "watch": "yellow", "bad": "red"}
_BLOCKS, _PLAIN_BLOCKS = "▁▂▃▄▅▆▇█", "_.-~=+*#"
_LEAST_ROWS = 18  # below, and in fewer columns, one line has to do
_LEAST_COLUMNS = 44
_MOST_COLUMNS = 100
_NAME = 16
_FLOOR = 0.8
_EARLY = 3  # epochs, before which a loss near that of guessing says nothing


class Progress(Protocol):
    """How far a part of the work has come."""

    label: str
    key: str
    total: int
    done: int

    @property
    def seconds(self) -> float:
        """Since it began."""
        ...

    @property
    def rate(self) -> float:
        """Things done per second."""
        ...


class Dashboard:
    """What is known of a run; drawn anew at every look.

    Args:
        title: What is trained where.
        epochs: How many there will be.
        journal: The epochs that are done.
        phases: The parts of an epoch.
    """

    def __init__(
        self,
        title: str,
        epochs: int,
        journal: Sequence[dict[str, Any]],
        phases: Sequence[str],
        images: int | None = None,
    ) -> None:
        self.title, self.epochs, self.phases, self.images = title, epochs, list(phases), images
        self.journal = list(journal)
        self.warned: list[str] = []  # since the last epoch
        self.spent: dict[str, float] = {}  # seconds of the phases that are done in this epoch
        self.current: Progress | None = None
        self.closing = self.ended = False
        self._left: tuple[float, float] | None = None  # seconds to the end, and when that was said

    def completed(self, record: dict[str, Any], seconds_left: float) -> None:
        """An epoch is done."""
        self.journal.append(record)
        self.warned = []
        self.spent = {}
        self._left = seconds_left, time.monotonic()

    def closes(self) -> None:
        """All epochs are done: what comes now is the closing pass."""
        self.closing, self.spent, self._left = True, {}, None
        self.phases = ["look", "group"]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        # A console that never wraps what is said must still wrap this.
        options = options.update(no_wrap=False, overflow="fold", height=None)
        width = min(options.max_width, _MOST_COLUMNS)
        if width < _LEAST_COLUMNS or console.size.height < _LEAST_ROWS:
            yield from console.render(self._line(width, options.ascii_only), options)
            return
        inner, ascii_only = width - 4, options.ascii_only
        parts = [*self._head(inner, ascii_only), Text(), self._phases(inner)]
        if self.journal:
            parts += [Text(), *self._charts(inner, ascii_only)]
        panel = Panel(
            Group(*parts),
            title=Text(f" {self.title} ", overflow="ellipsis", no_wrap=True),
            title_align="left",
            border_style="dim",
            width=width,
            padding=(0, 1),
        )
        yield from console.render(Padding(panel, (1, 0, 0, 0)), options)

    @property
    def _where(self) -> str:
        if self.ended:
            return f"{len(self.journal)} epochs, done"
        if self.closing:
            return "closing pass"
        return f"epoch {min(len(self.journal) + 1, self.epochs)} of {self.epochs}"

    def _light(self, ascii_only: bool) -> tuple[Text, str]:
        health = health_of(self.journal, self.warned, self.images)
        mark = "*" if ascii_only else "●"
        if len(self.journal) < _EARLY and health.level != "bad":
            return Text(f"{mark} ", "dim"), "too early to say"
        return Text(f"{mark} ", f"bold {_LIGHTS[health.level]}"), health.verdict

    def _head(self, width: int, ascii_only: bool) -> list[Text]:
        """The light, and where the run is; on two lines where one does not hold both."""
        left, verdict = self._light(ascii_only)
        left.append(verdict, "bold" if verdict != WORDS["good"] else "")
        dot = " - " if ascii_only else " · "
        right = Text(self._where, "bold")
        if interruption.asked() is not None:
            right.append(dot + "stopping where nothing is lost", "yellow")
        elif self._left is not None:
            seconds, said = self._left
            left_now = max(0.0, seconds - (time.monotonic() - said))
            right.append(f"{dot}about {duration(left_now)} left", "")
        gap = width - left.cell_len - right.cell_len
        if gap >= 2:
            return [left.append(" " * gap).append_text(right)]
        return [left, right]

    def _phases(self, width: int) -> RenderableType:
        bar, wide = max(8, min(36, width - 50)), width > 80
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(width=_NAME - 2, no_wrap=True)
        table.add_column(width=bar)
        table.add_column(overflow="fold")
        now = self.current
        for name in self.phases:
            if now is not None and now.key == name:
                # The seconds of what came before under the same name are part of it.
                table.add_row(Text(name, "bold"), _bar(now, bar), _progress(now, wide))
            elif name in self.spent:
                done = ProgressBar(1, 1, bar, finished_style="dim green")
                table.add_row(name, done, Text(_seconds(self.spent[name]), "dim"))
            else:
                waiting = ProgressBar(1, 0, bar)
                table.add_row(Text(name, "dim"), waiting, "")
        if now is not None and now.key not in self.phases:
            words = now.label.split(": ")[-1]
            other = Text(words, "bold", overflow="ellipsis")
            table.add_row(other, _bar(now, bar), _progress(now, wide))
        return table

    def _charts(self, width: int, ascii_only: bool) -> list[Text]:
        last = self.journal[-1]
        room = width - _NAME - 18
        losses = _known(self.journal, "loss")
        guessing = last.get("ln_k")
        lines = []
        if losses and isinstance(guessing, float):
            low = min(*losses, _FLOOR * guessing)  # a small fall must look small
            marks = sparkline(losses, room, low, max(*losses, guessing), ascii_only)
            said = f"{losses[-1]:.3f} (ln k {guessing:.2f})"
            lines.append(_chart("loss", marks, room, said, "cyan"))
        for name, key, style in (
            ("same as last", "nmi_last", "magenta"),
            ("same as folders", "nmi_labels", "blue"),
            ("classes right", "accuracy", "magenta"),
        ):
            if key == "accuracy" and "classes" not in last:
                continue
            if known := _known(self.journal, key):
                marks = sparkline(known, room, 0.0, 1.0, ascii_only)
                lines.append(_chart(name, marks, room, f"{known[-1]:.3f}", style))
        said = f"{last.get('images_per_second', 0):,.0f} images a second"
        if "clusters" in last:
            dot = " - " if ascii_only else " · "
            empty = f", {last['empty']:,} empty" if last.get("empty") else ""
            said = (
                f"{last['clusters']:,} groups of {last['smallest']:,} to {last['largest']:,} "
                f"images{empty}{dot}{said}"
            )
        lines.append(Text(said, "dim"))
        return lines

    def _line(self, width: int, ascii_only: bool) -> Text:
        line, _ = self._light(ascii_only)
        line.append(self._where)
        if self.current is not None:
            line.append(f", {self.current.key}")
            line.append(f" {self.current.done / max(1, self.current.total):.0%}")
        line.truncate(width)
        return line


def progress_line(now: Progress, left: float | None) -> Table:
    """One part of the work on one line, where there is no run to show."""
    table = Table.grid(padding=(0, 1, 0, 0))
    said = _progress(now, not left)
    if left:  # after the last epoch nobody knows
        said.append(f", about {duration(left)} to the end")
    table.add_row(now.label, _bar(now, 30), said)
    return table


def sparkline(
    values: Sequence[float], width: int, low: float, high: float, ascii_only: bool = False
) -> str:
    """The values as a row of blocks, at most so wide: of many, means of neighbours."""
    blocks = _PLAIN_BLOCKS if ascii_only else _BLOCKS
    if len(values) > width:
        edges = [round(at * len(values) / width) for at in range(width + 1)]
        parts = [values[a:b] for a, b in pairwise(edges)]
        values = [sum(part) / len(part) for part in parts]
    steps = len(blocks) - 1
    shares = ((value - low) / max(high - low, 1e-12) for value in values)
    return "".join(blocks[round(steps * min(1.0, max(0.0, share)))] for share in shares)


def _chart(name: str, marks: str, room: int, said: str, style: str) -> Text:
    line = Text(name.ljust(_NAME))
    line.append(marks, style)
    # Young curves keep their figure near, long ones have it at the edge.
    return line.append(" " * min(2, max(1, room - cell_len(marks))) + said, "bold")


def _bar(now: Progress, width: int) -> ProgressBar:
    if now.total <= 1:  # nobody knows how far it is
        return ProgressBar(None, width=width, pulse=True, animation_time=time.monotonic())
    return ProgressBar(now.total, min(now.done, now.total), width)


def _progress(now: Progress, wide: bool = True) -> Text:
    if now.total <= 1:
        counted = f"{now.done:,}, " if now.done > now.total else ""
        return Text(counted + _seconds(now.seconds), "dim")
    said = Text(f"{now.done:,} of {now.total:,}")
    if now.done:
        left = max(0, now.total - now.done) / max(1e-9, now.rate)
        rate = f"{now.rate:,.0f} a second" if wide else f"{now.rate:,.0f}/s"
        said.append(f", {rate}, {duration(left)}" + (" left" if wide else ""))
    return said


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else duration(seconds)


def _known(journal: Sequence[dict[str, Any]], key: str) -> list[float]:
    values = (entry.get(key) for entry in journal)
    return [v for v in values if isinstance(v, float) and math.isfinite(v)]
