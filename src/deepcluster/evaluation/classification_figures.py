"""Average precision class by class, its mean, and how both are shown."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepcluster.evaluation.average_precision import AveragePrecision, average_precision
from deepcluster.evaluation.candidates import Candidate
from deepcluster.evaluation.step_search import remark as at_the_edge
from deepcluster.evaluation.transfer import Outcome, Shown, percent, time_spent
from deepcluster.evaluation.voc_objects import CLASSES

FIGURES = ("eleven_point", "all_point", "plain")


def judged_classes(
    scores: NDArray[np.float64], labels: NDArray[np.int64]
) -> list[AveragePrecision | None]:
    """For each class its average precision; nothing where the scores are not finite."""
    if not np.isfinite(scores).all():
        return [None] * labels.shape[1]
    found = []
    for own, truth in zip(scores.T, labels.T, strict=True):
        counted = truth != 0  # what is difficult is neither right nor wrong
        found.append(average_precision(own[counted], truth[counted] > 0))
    return found


def mean_of(judged: Sequence[AveragePrecision | None]) -> dict[str, float | None]:
    """Over the classes that have a positive."""
    there = [figures for figures in judged if figures is not None]
    return {
        figure: statistics.fmean(getattr(one, figure) for one in there) if there else None
        for figure in FIGURES
    }


def outcome_of(
    name: str,
    learnt: str,
    data: dict[str, Any],
    chosen: Candidate,
    choice: dict[str, Any] | None,
    results: dict[int, dict[str, Any]],
) -> Outcome:
    """The means over seeds with their table and remarks."""
    means = {figure: [result["mean"][figure] for result in results.values()] for figure in FIGURES}
    mean = {figure: statistics.fmean(values) for figure, values in means.items()}
    spread = (
        {figure: statistics.stdev(values) for figure, values in means.items()}
        if len(results) > 1
        else None
    )
    result = {
        "mean": mean,
        "spread": spread,
        "step": chosen.step,
        "decay": chosen.decay,
        "choice": choice,
        "seeds": {str(seed): figures for seed, figures in results.items()},
    }
    count = len(results)
    title = f"{name}: {Path(data['test']['place']).name} classification, {learnt} learnt"
    if count > 1:
        title += f", mean of {count} seeds"
    rows = [_row("mean over classes", list(results.values()), "mean")]
    rows += [_row(name, [one["classes"] for one in results.values()], name) for name in CLASSES]
    columns = ["average precision, %", "11-point", *(["spread"] if count > 1 else [])]
    table = Shown(title, [*columns, "all-point", "plain"], rows)
    return Outcome(data, result, [table], _remarks(chosen, choice, results))


def _remarks(
    chosen: Candidate,
    choice: dict[str, Any] | None,
    results: dict[int, dict[str, Any]],
) -> list[str]:
    remarks = []
    if choice is not None:
        on_val = percent(choice["eleven_point_on_val"])
        remarks.append(
            f"step {chosen.step:g} and decay {chosen.decay:g}, chosen on val, where they reach "
            f"{on_val}"
        )
        tried = {one["step"] for one in choice["candidates"]}
        remarks += at_the_edge(chosen.step, tried) if len(tried) > 1 else []
    missing = [
        name
        for name in CLASSES
        if any(result["classes"][name] is None for result in results.values())
    ]
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        remarks.append(
            f"no test image shows {', '.join(missing[:3])}{more}; the mean is over the others"
        )
    return remarks + time_spent(results.values(), choice)


def _row(title: str, results: Sequence[dict[str, Any]], key: str) -> list[str]:
    """The figures of one class over the seeds."""
    found = [result[key] for result in results if result[key] is not None]
    values = {
        figure: [one[figure] for one in found] for figure in FIGURES if len(found) == len(results)
    }
    if not values:
        return [title, *["-"] * (3 if len(results) == 1 else 4)]
    eleven, area, plain = (percent(statistics.fmean(values[figure])) for figure in FIGURES)
    spread = [percent(statistics.stdev(values["eleven_point"]))] if len(results) > 1 else []
    return [title, eleven, *spread, area, plain]
