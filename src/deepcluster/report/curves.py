"""Curves as SVG paths: numbers in, points on a small canvas out. Colours are the style sheet's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

WIDTH, HEIGHT = 460, 230
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 12, 14, 34
_MOST_POINTS = 400


@dataclass(frozen=True)
class Line:
    """One curve, drawn."""

    name: str
    style: str
    path: str
    dots: list[tuple[float, float, str]]
    """Where, and the words that a pointer or a reader is given."""


@dataclass(frozen=True)
class Chart:
    """A picture of curves over one axis, with the sentence that says what good looks like."""

    title: str
    good: str
    across: str
    lines: list[Line]
    ticks_across: list[tuple[float, str]]
    ticks_up: list[tuple[float, str]]
    summary: str

    width, height, left, right = WIDTH, HEIGHT, _LEFT, WIDTH - _RIGHT
    top, bottom = _TOP, HEIGHT - _BOTTOM


def of_journal(journal: list[dict[str, Any]]) -> list[Chart]:
    """The curves of a run's epochs; of an epoch without a figure there is a gap."""
    epochs = [entry["epoch"] + 1 for entry in journal if "epoch" in entry]
    if len(epochs) != len(journal) or not epochs:
        return []

    def values(key: str) -> list[float | None]:
        return [_number(entry.get(key)) for entry in journal]

    def seconds(key: str) -> list[float | None]:
        return [_number((entry.get("seconds") or {}).get(key)) for entry in journal]

    wanted = [
        (
            "Loss",
            "Good: the solid line falls clearly below the dashed one, which is the loss of "
            "guessing (ln k), and keeps falling.",
            {"loss": values("loss"), "guessing (ln k)": values("ln_k")},
            ("first", "guide"),
            None,
        ),
        (
            "Agreement of the groups (NMI)",
            "Good: agreement with the epoch before rises and settles below 1; agreement with "
            "folders, where there are classes, rises too, though the network never sees them.",
            {"with the epoch before": values("nmi_last"), "with the folders": values("nmi_labels")},
            ("first", "second"),
            (0.0, 1.0),
        ),
        (
            "Seconds of each epoch",
            "Good: learning takes most of the time, and the lines are level.",
            {"look": seconds("look"), "group": seconds("group"), "learn": seconds("learn")},
            ("first", "second", "third"),
            None,
        ),
    ]
    charts = (
        _drawn(title, good, "epoch", epochs, lines, styles, limits)
        for title, good, lines, styles, limits in wanted
    )
    return [chart for chart in charts if chart is not None]


def of_sizes(sizes: NDArray[np.int64]) -> Chart | None:
    """The sizes of the groups, the largest first."""
    falling = np.sort(sizes[sizes > 0])[::-1]
    return _drawn(
        "Sizes of the groups",
        "Good: a gentle slope. A cliff on the left is one group that swallows the others; a long "
        "floor on the right is many groups of one or two images.",
        "groups, the largest first",
        list(range(1, len(falling) + 1)),
        {"images": [float(size) for size in falling]},
        ("first",),
        None,
    )


def _drawn(
    title: str,
    good: str,
    across: str,
    places: Sequence[int],
    lines: dict[str, list[float | None]],
    styles: Sequence[str],
    limits: tuple[float, float] | None,
) -> Chart | None:
    known = {name: some for name, some in lines.items() if any(v is not None for v in some)}
    values = [value for some in known.values() for value in some if value is not None]
    if not values:
        return None
    low, high = limits or (0.0, max(values) * 1.05 or 1.0)
    first, last = places[0], places[-1]

    def x(place: float) -> float:
        share = (place - first) / (last - first) if last > first else 0.5
        return round(_LEFT + share * (WIDTH - _LEFT - _RIGHT), 1)

    def y(value: float) -> float:
        share = (value - low) / (high - low)
        return round(HEIGHT - _BOTTOM - share * (HEIGHT - _TOP - _BOTTOM), 1)

    drawn = []
    for (name, some), style in zip(lines.items(), styles, strict=True):
        if name not in known:
            continue
        pairs = [(p, v) for p, v in zip(places, some, strict=True) if v is not None]
        if len(pairs) > _MOST_POINTS:
            thin = np.linspace(0, len(pairs) - 1, _MOST_POINTS).round().astype(int)
            pairs = [pairs[i] for i in thin]
        points = [f"{x(p)},{y(v)}" for p, v in pairs]
        path = "M" + "L".join(points)
        dots = [(x(p), y(v), f"{name}, {across} {p}: {v:.4g}") for p, v in pairs]
        drawn.append(Line(name, style, path, dots if len(dots) <= 60 else []))
    told = "; ".join(
        f"{name} from {some[0]:.3g} to {some[-1]:.3g}"
        for name, raw in known.items()
        if (some := [v for v in raw if v is not None])
    )
    return Chart(
        title=title,
        good=good,
        across=across,
        lines=drawn,
        ticks_across=[(x(tick), f"{tick:,}") for tick in _whole_ticks(first, last)],
        ticks_up=[(y(tick), f"{tick:g}") for tick in _ticks(low, high)],
        summary=f"{title}: {told}.",
    )


def _ticks(low: float, high: float) -> list[float]:
    step = 10 ** math.floor(math.log10((high - low) / 2))
    step = next(step * m for m in (1, 2, 2.5, 5, 10) if (high - low) / (step * m) <= 5)
    return [round(step * i, 10) for i in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _whole_ticks(first: int, last: int) -> list[int]:
    return sorted({round(tick) for tick in np.linspace(first, last, min(5, last - first + 1))})


def _number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and math.isfinite(value)
    return float(value) if is_number else None
