"""Curves and sizes of runs, drawn by matplotlib without a screen."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from deepcluster.visuals.purity import Panel

_BARS = 24  # in a panel
_DOTTED = 20  # epochs that have a dot each, without which a single one would not be seen
_GUESSING = "guessing, ln k"


def curves(journal: Sequence[Mapping[str, Any]]) -> bytes:
    """PNG: loss beside ln k, agreement (NMI) with folders and last epoch, seconds per phase."""
    return png(drawn_curves(journal))


def drawn_curves(journal: Sequence[Mapping[str, Any]]) -> Figure:
    """The same, as a figure; a panel for each of the three of which there is something to show."""
    epochs = [entry["epoch"] + 1 for entry in journal]
    loss = {"loss": _column(journal, "loss"), _GUESSING: _column(journal, "ln_k")}
    agreement = {
        "with the epoch before": _column(journal, "nmi_last"),
        "with the folders": _column(journal, "nmi_labels"),
    }
    seconds = [entry.get("seconds", {}) for entry in journal]
    spent = {phase: _column(seconds, phase) for phase in ("look", "group", "learn")}
    panels = [
        ("loss", "loss", loss),
        ("agreement of the groups", "NMI", agreement),
        ("time of an epoch", "seconds", spent),
    ]
    known = [panel for panel in panels if any(map(_seen, panel[2].values()))] or panels[:1]
    figure = Figure(figsize=(4 * len(known), 3.6), layout="constrained")
    row = figure.subplots(1, len(known), squeeze=False)[0]
    for axes, (title, unit, lines) in zip(row, known, strict=True):
        axes.set(title=title, xlabel="epoch", ylabel=unit)
        _draw_by_epoch(axes, epochs, lines)
        if unit == "NMI":
            axes.set_ylim(-0.02, 1.02)
        else:  # from zero on, or the noise of a loss that stays at ln k would look like learning
            largest = max(line[np.isfinite(line)].max(initial=0) for line in lines.values())
            axes.set_ylim(0, 1.05 * largest or 1)
    return figure


def sizes(of_runs: Mapping[str, NDArray[np.int64]]) -> bytes:
    """PNG: the sizes of the groups of one or more runs, the largest first."""
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    for name, counts in of_runs.items():
        falling = np.sort(counts[counts > 0])[::-1]
        axes.plot(np.arange(1, len(falling) + 1), falling, label=name, drawstyle="steps-mid")
    positive = np.concatenate([counts[counts > 0] for counts in of_runs.values()])
    scale = "log" if positive.max() > 50 * positive.min() else "linear"
    axes.set(xlabel="groups, the largest first", ylabel="images", yscale=scale)
    axes.set_ylim(bottom=0 if scale == "linear" else None)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    return png(figure)


def purity(panels: Sequence[Panel]) -> bytes:
    """PNG: for every synset the share of its images in pure clusters, and the share by chance."""
    most = max(min(_BARS, len(panel.bars)) for panel in panels)
    figure = Figure(figsize=(4.6 * len(panels), 1.3 + 0.27 * most), layout="constrained")
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        largest = sorted(panel.bars, key=lambda bar: (-bar.images, bar.synset))[:_BARS]
        bars = sorted(largest, key=lambda bar: (bar.share, bar.images))
        heights = np.arange(most - len(bars), most)  # the first bars of all panels in one line
        axes.barh(heights, [100 * bar.share for bar in bars], color="tab:blue", height=0.7)
        axes.plot([100 * bar.chance for bar in bars], heights, "|", color="black", markersize=9)
        axes.set_yticks(heights, [f"{bar.name} ({bar.images:,})" for bar in bars])
        axes.set(xlim=(0, 100), ylim=(-0.6, most - 0.4), xlabel="% of images in a pure cluster")
        left_out = len(panel.bars) - len(bars)
        axes.set_title(panel.title + (f" ({left_out} smaller ones left out)" if left_out else ""))
        axes.grid(axis="x", alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_axisbelow(True)
    figure.supxlabel("| by chance, in clusters of the same sizes", fontsize="small")
    return png(figure)


def png(figure: Figure) -> bytes:
    """The figure as a file; the same every time, since no date goes into it."""
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=150, metadata={"Software": None})
    return content.getvalue()


def _column(journal: Sequence[Mapping[str, Any]], name: str) -> NDArray[np.float64]:
    values = (entry.get(name) for entry in journal)
    return np.array([math.nan if value is None else value for value in values], dtype=float)


def _seen(line: NDArray[np.float64]) -> bool:
    return bool(np.isfinite(line).any())


def _draw_by_epoch(
    axes: Axes, epochs: Sequence[int], lines: Mapping[str, NDArray[np.float64]]
) -> None:
    """The lines of a panel, each in the colour of its place, over whole epochs."""
    marker = "." if len(epochs) <= _DOTTED else ""
    for number, (name, line) in enumerate(lines.items()):
        if _seen(line):
            dash, colour = ("--", "grey") if name == _GUESSING else ("-", f"C{number}")
            axes.plot(epochs, line, dash, marker=marker, color=colour, label=name)
    if epochs:
        axes.set_xlim(epochs[0] - 0.5, epochs[-1] + 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1, steps=[1, 2, 5, 10]))
    axes.grid(alpha=0.3)
    if axes.lines:
        axes.legend(frameon=False)
