"""What a person sees while a run works: a live display on a terminal, plain lines without one."""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live

from deepcluster.runtime import interruption
from deepcluster.runtime.dashboard import Dashboard, progress_line
from deepcluster.runtime.durations import duration
from deepcluster.runtime.errors import HealthWarning

_LOOKS_PER_SECOND = 4  # at most so often a terminal is drawn anew
_QUIET_SECONDS = 30.0  # without a terminal, a long phase says so this often
_NARROW = 118  # columns, below which an epoch is told in words
_HEADER = (
    "epoch        loss  ln(k)  cluster  same as  same as  clusters: number,          seconds to"
    "       images      left",
    "                            loss     last   folders  smallest..largest, empty  look group"
    " learn a second",
)


class _Voice(Console):
    """A console that outlives its listener: the work goes on without one."""

    def on_broken_pipe(self) -> None:
        """Fall silent, where rich would end the program."""
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Display:
    """The voice of a run. Only the leading process speaks."""

    def __init__(self, *, speaks: bool = True, console: Console | None = None) -> None:
        self.speaks = speaks
        self.console = console or _Voice(file=sys.stdout, highlight=False, soft_wrap=True)
        self.warned: list[str] = []  # names of the warnings since the epoch began
        self._times_warned: Counter[str] = Counter()
        self._live: Live | None = None
        self._dashboard: Dashboard | None = None
        self._header_shown = False
        self._phase: _Phase | None = None
        self._seconds_left: float | None = None

    @contextmanager
    def shown(self) -> Iterator[Display]:
        """While open, warnings about the run's health are shown here, and progress is live."""
        with warnings.catch_warnings():
            warnings.simplefilter("always", HealthWarning)
            as_before = warnings.showwarning

            def show(message: Warning | str, category: type[Warning], *where: Any) -> None:
                if isinstance(message, HealthWarning):
                    self.warn(message)
                else:
                    as_before(message, category, *where)

            warnings.showwarning = show  # type: ignore[assignment]
            if self.speaks and self.console.is_terminal and not self.console.is_dumb_terminal:
                live = Live(
                    console=self.console,
                    get_renderable=self._seen,
                    refresh_per_second=_LOOKS_PER_SECOND,
                    transient=True,
                )
                try:
                    with live as self._live:
                        yield self
                finally:
                    self._live = None
            else:
                yield self

    @contextmanager
    def following(
        self,
        title: str,
        epochs: int,
        journal: Sequence[dict[str, Any]],
        phases: Sequence[str] = ("look", "group", "learn"),
        images: int | None = None,
    ) -> Iterator[None]:
        """While open, a terminal shows a run of so many epochs; its last state stays there.

        Args:
            title: What is trained where.
            epochs: How many there will be.
            journal: Those that are done.
            phases: The parts of an epoch, by their keys.
            images: How many there are, if that is known.
        """
        self._dashboard = dashboard = Dashboard(title, epochs, journal, phases, images)
        try:
            yield
            dashboard.ended = True
        finally:
            self._dashboard = None
            if self._live is not None:
                self._live.refresh()  # take the moving one away before the lasting one comes
                self.console.print(dashboard)

    def closes(self) -> None:
        """What comes now is the closing pass of the run that is followed."""
        if self._dashboard is not None:
            self._dashboard.closes()

    def _seen(self) -> RenderableType:
        """What the terminal shows now, under what has been said."""
        if self._dashboard is not None:
            return self._dashboard
        return Group() if self._phase is None else progress_line(self._phase, self._seconds_left)

    def say(self, text: str = "", style: str | None = None) -> None:
        """One line for the user."""
        if self.speaks:
            self.console.print(text, style=style, markup=False, emoji=False)

    def warn(self, warning: HealthWarning) -> None:
        """A named warning, shown and remembered for the journal."""
        self.warned.append(warning.name)
        self._times_warned[warning.name] += 1
        if self._dashboard is not None:
            self._dashboard.warned.append(warning.name)
        if self._times_warned[warning.name] == 1:  # the journal has every one
            self.say(f"warning ({warning.name}): {warning}", style="yellow")

    @contextmanager
    def phase(self, name: str, total: int, seconds: dict[str, float], key: str) -> Iterator[_Phase]:
        """A named part of the work on `total` things; its duration is added to `seconds[key]`."""
        self._phase = phase = _Phase(self, name, key, total)
        if self._dashboard is not None:
            self._dashboard.current = phase
        try:
            yield phase
            if self._dashboard is not None:  # of a phase that fails, how far it came stays there
                self._dashboard.current = None
                self._dashboard.spent[key] = seconds.get(key, 0.0) + phase.seconds
        finally:
            seconds[key] = round(seconds.get(key, 0.0) + phase.seconds, 3)
            self._phase = None

    def progressed(self, phase: _Phase) -> None:
        """Show how far a phase has come."""
        # A terminal looks for itself, a few times a second.
        if not self.speaks or self._live is not None or phase.quiet_for <= _QUIET_SECONDS:
            return
        phase.spoke()
        rate = f"{phase.rate:,.0f} a second"
        if self._seconds_left:  # after the last epoch nobody knows
            rate += f", about {duration(self._seconds_left)} to the end"
        total = f" of {phase.total:,}" if phase.total else ""  # which nobody knows yet
        self.say(f"  {phase.label}: {phase.done:,}{total}, {rate}")

    def epoch(self, record: dict[str, Any], epochs: int, seconds_left: float) -> None:
        """The line of one epoch."""
        self._seconds_left = seconds_left
        if self._dashboard is not None:
            self._dashboard.completed(record, seconds_left)
        seconds = record["seconds"]
        number = f"{record['epoch'] + 1:>4}/{epochs}"
        if "classes" in record:
            self.say(
                f"{number.strip()}: loss {record['loss']:.3f} of {record['ln_k']:.3f}, "
                f"{record['accuracy']:.1%} of {record['classes']:,} classes right in training, "
                f"{record['images_per_second']:,.0f} images a second, "
                f"{duration(seconds_left)} left"
            )
            return
        sizes = f"{record['smallest']:,}..{record['largest']:,}, {record['empty']}"
        if self.console.is_terminal and self.console.width < _NARROW:
            same = "" if record["nmi_last"] is None else f", same as last {record['nmi_last']:.2f}"
            self.say(
                f"{number.strip()}: loss {record['loss']:.2f} of {record['ln_k']:.2f}{same}, "
                f"{record['clusters']:,} clusters of {sizes} empty, "
                f"{sum(seconds.values()):.0f} s, {duration(seconds_left)} left"
            )
            return
        if not self._header_shown:
            for line in _HEADER:
                self.say(line, style="bold")
            self._header_shown = True
        self.say(
            f"{number:<10} {record['loss']:6.3f} {record['ln_k']:6.3f}  "
            f"{record['clustering_loss']:7.4f}    {_share(record['nmi_last'])}    "
            f"{_share(record['nmi_labels'])}  {record['clusters']:>6,}: {sizes:<17} "
            f"{seconds['look']:5.1f} {seconds['group']:5.1f} {seconds['learn']:5.1f} "
            f"{record['images_per_second']:8,.0f}  {duration(seconds_left):>8}"
        )


class _Phase:
    """How far one part of the work has come."""

    def __init__(self, display: Display, label: str, key: str, total: int) -> None:
        self.label, self.key, self.total, self.done = label, key, total, 0
        self._display = display
        self._started = self._spoke = time.monotonic()

    def advance(self, count: int = 1) -> None:
        """So much more is done."""
        self.done += count
        self._display.progressed(self)

    def reached(self, done: int, total: int) -> None:
        """So much of so much is done by now; raises if the user has asked to stop."""
        self.total = total
        self.advance(done - self.done)
        interruption.raise_if_asked()

    def spoke(self) -> None:
        """Remember that the user has just been told."""
        self._spoke = time.monotonic()

    @property
    def quiet_for(self) -> float:
        """Seconds since the user was last told."""
        return time.monotonic() - self._spoke

    @property
    def seconds(self) -> float:
        """Seconds since the phase began."""
        return time.monotonic() - self._started

    @property
    def rate(self) -> float:
        """Things done per second."""
        return self.done / max(1e-9, self.seconds)


def _share(value: float | None) -> str:
    return "   - " if value is None else f"{value:5.3f}"
