"""Figures that several studies share."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from deepcluster.studies.study import Figured, Measured, Results
from deepcluster.studies.terms import Terms


def accuracy_by_layer(
    figure: Figure, results: Results, terms: Terms, *, ten_crops: bool = False
) -> None:
    """One panel for every data set, one curve for every row, bars where there are seeds."""
    rows = list(dict.fromkeys(entry.row for entry in results.measured))
    figure.set_size_inches(5 * len(terms.data) + 1, 4)
    panels = figure.subplots(1, len(terms.data), squeeze=False)[0]
    for axes, data in zip(panels, terms.data, strict=True):
        for row in rows:
            top1 = results.top1(row, data.name, ten_crops)
            curve(axes, list(top1), list(top1.values()), row)
        axes.set_title(f"{data.name}, mean of 10 crops" if ten_crops else data.name)
        axes.set_ylabel("top-1 accuracy, %")
        axes.tick_params(axis="x", rotation=45 if len(axes.get_xticks()) > 6 else 0)
    _legend_below(figure, panels[0])


def bars_by_task(figure: Figure, results: Results, terms: Terms) -> None:
    """One group of bars for every task of transfer, one bar for every row."""
    tasks = [task.name for task in terms.tasks]
    figure.set_size_inches(2 * len(tasks) + 3, 4)
    axes = figure.subplots()
    width = 0.8 / len(results.names)
    for number, name in enumerate(results.names):
        found = results.transferred(name, tasks)
        axes.bar(
            [place + number * width for place in range(len(tasks))],
            [one.mean if one else 0.0 for one in found],
            width,
            yerr=_bars(found),
            label=name,
        )
    axes.set_xticks([place + 0.4 - width / 2 for place in range(len(tasks))], tasks)
    masks = any(task.startswith("segmentation") for task in tasks)
    axes.set_ylabel("mAP, of segmentation mean IoU, %" if masks else "mAP, %")
    _legend_below(figure, axes)


def bars_of_first_data(figure: Figure, results: Results, terms: Terms) -> None:
    """One bar for every row: accuracy at its best layer, on the first data set."""
    figure.set_size_inches(7, 4)
    axes = figure.subplots()
    data = terms.data[0].name
    found = [results.best_layer(name, data) for name in results.names]
    axes.bar(
        results.names,
        [0.0 if best is None else best.mean for best in found],
        yerr=_bars(found),
        capsize=3,
    )
    axes.set(ylabel="top-1 accuracy, %", title=data)
    axes.tick_params(axis="x", rotation=20)


def agreement_over_training(axes: Axes, measured: Measured, figure: str, name: str) -> None:
    """NMI of a run's groups, from the first clustering to that of the final network."""
    points = measured.agreement(figure)
    axes.plot([epochs for epochs, _ in points], [nmi for _, nmi in points], label=name)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel="epochs of training", ylabel="NMI")


def curve(
    axes: Axes,
    places: Sequence[str | float],
    values: Sequence[Figured],
    name: str,
    style: str = "-o",
) -> None:
    """Means joined by a line, with the spread over seeds."""
    means = [value.mean for value in values]
    axes.errorbar(places, means, yerr=_bars(values), fmt=style, markersize=4, capsize=3, label=name)


def _legend_below(figure: Figure, axes: Axes) -> None:
    """Beside the axes, where it covers nothing."""
    named = axes.get_legend_handles_labels()
    figure.legend(*named, fontsize="small", loc="outside lower center", ncols=4)


def _bars(figures: Sequence[Figured | None]) -> list[float] | None:
    """The spread over seeds, with no bar where there is a single seed: it is unknown, not zero."""
    spreads = [one.spread if one else None for one in figures]
    if all(spread is None for spread in spreads):
        return None
    return [math.nan if spread is None else spread for spread in spreads]
