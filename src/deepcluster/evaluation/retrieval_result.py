"""What queries for landmarks have found, and how it is shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from deepcluster.evaluation.landmarks import Landmarks, Query, Relevance
from deepcluster.evaluation.ranking import Ranking
from deepcluster.evaluation.transfer import Outcome, Shown, counted, percent
from deepcluster.images.folder import Found as FoundImage
from deepcluster.images.folder import encoded
from deepcluster.images.source import Source

PRECISIONS = (1, 5, 10)
"""How many first images the revisited protocol looks at."""


@dataclass(frozen=True)
class QueryResult:
    """What one query finds, for each level of difficulty at which something can be found."""

    name: str
    landmark: str | None
    levels: dict[str, Found]


@dataclass(frozen=True)
class Found:
    """Average precision, and precision at 1, 5 and 10; from 0 to 1."""

    average_precision: float
    precision_at: dict[int, float]


@dataclass(frozen=True)
class RetrievalResult:
    """The means over the queries, and every query's own."""

    levels: dict[str, dict[str, float]]
    """Of each level: map, precision at 1, 5 and 10, and the number of queries."""
    queries: list[QueryResult]
    layer: str
    width: int
    images: int
    whitened_on: int
    """Images that the whitening was learnt on; 0 where there is none."""
    left_out: list[str]
    """Queries that can be asked by the ground truth but not of these images, with the reason."""
    unusable: list[str]
    not_whitened_on: list[str]
    """Images that the whitening should have been learnt on and that cannot be used."""
    seconds: float


def found_by(query: Query, scores: Tensor, usable: set[int]) -> QueryResult:
    """What a query finds among the usable images; of equal scores the first path comes first."""
    order = torch.argsort(scores, descending=True, stable=True).cpu().numpy()
    order = order[np.isin(order, list(usable))]
    levels = {}
    for level, relevance in query.relevance.items():
        there = Relevance(relevance.positive & usable, relevance.ignored & usable)
        if not there.positive:
            continue  # nothing can be found: no figure, as the revisited protocol has it
        ranking = Ranking.of(order, there.positive, there.ignored)
        precisions = {count: ranking.precision_at(count) for count in PRECISIONS}
        levels[level] = Found(ranking.average_precision, precisions)
    return QueryResult(query.name, query.landmark, levels)


def summary(found: Sequence[Found]) -> dict[str, float]:
    """The means over queries, and how many they are."""
    if not found:
        return {"queries": 0}
    precisions = {
        f"precision_at_{count}": float(np.mean([one.precision_at[count] for one in found]))
        for count in PRECISIONS
    }
    mean = float(np.mean([one.average_precision for one in found]))
    return {"map": mean, **precisions, "queries": len(found)}


def outcome_of(
    name: str,
    size: int,
    results: Sequence[dict[str, Any]],
    landmarks: Landmarks,
    other: Source | None,
    learnt_from: Sequence[FoundImage] = (),
    dimensions: int = 0,
    channels: int = 0,
) -> Outcome:
    """The figures with their tables and remarks.

    Args:
        name: What the network is called.
        size: Pixels of the longer side of images.
        results: Of each network, as JSON has it; perhaps kept from before.
        landmarks: What was searched.
        other: What the whitening was learnt on.
        learnt_from: The images in it.
        dimensions: How many the whitening should have.
        channels: How many the layer has.
    """
    results = [_of_now(result, landmarks) for result in results]
    first = results[0]
    spread = len(results) > 1
    levels: dict[str, dict[str, float]] = {}
    rows = []
    for level, figures in first["levels"].items():
        every = [result["levels"][level] for result in results]
        levels[level] = {key: float(np.mean([one[key] for one in every])) for key in figures}
        if not figures["queries"]:
            continue
        if spread:
            levels[level]["spread"] = float(np.std([one["map"] for one in every], ddof=1))
        mean = levels[level]
        precisions = [percent(mean[f"precision_at_{count}"]) for count in PRECISIONS]
        row = [level, percent(mean["map"]), *precisions, f"{mean['queries']:.0f}"]
        rows.append([*row[:2], percent(mean["spread"]), *row[2:]] if spread else row)
    columns = ["level", "mAP"]
    columns += ["spread"] if spread else []
    columns += [f"P@{count}" for count in PRECISIONS] + ["asked"]
    images = counted(first["images"], "image")
    title = f"{name}: R-MAC of {first['layer']} at {size} px, {images}"
    tables = [Shown(title, columns, rows)]
    if not landmarks.is_revisited:  # which does not say what landmark a query shows
        tables.append(_landmark_table(results, list(levels)))
    return Outcome(
        data={**landmarks.described(), "whitening": other and encoded(str(other.place))},
        result={"levels": levels, "seeds": list(results)},
        tables=tables,
        remarks=_remarks(first, landmarks, other, learnt_from, dimensions, channels),
    )


def _of_now(result: dict[str, Any], landmarks: Landmarks) -> dict[str, Any]:
    """A result with what the present ground truth names and cannot be used.

    None of it changes a figure, so that a result may be kept from an earlier ground truth; and
    results of earlier versions have what that one left out among their own queries.
    """
    asked = tuple(f"{query.name}: " for query in landmarks.queries)
    own = [line for line in result["left_out"] if line.startswith(asked)]
    return {**result, "absent": landmarks.absent, "left_out": [*landmarks.left_out, *own]}


def _landmark_table(results: Sequence[dict[str, Any]], levels: Sequence[str]) -> Shown:
    """The mean average precision of each landmark's queries, over seeds."""
    found: dict[str, dict[str, list[float]]] = {}
    for query in (query for result in results for query in result["queries"]):
        places = found.setdefault(query["landmark"], {level: [] for level in levels})
        for level, one in query["levels"].items():
            places[level].append(one["average_precision"])
    rows = [
        [name, *(percent(float(np.mean(every))) if every else "-" for every in places.values())]
        for name, places in sorted(found.items())
    ]
    return Shown("mAP by landmark", ["landmark", *levels], rows)


def _remarks(
    result: dict[str, Any],
    landmarks: Landmarks,
    other: Source | None,
    learnt_from: Sequence[FoundImage],
    dimensions: int,
    channels: int,
) -> list[str]:
    said = []
    images = [one for one in learnt_from if one.reason is None]
    if landmarks.absent:
        names = _some([encoded(name) for name in landmarks.absent])
        said.append(
            f"{counted(len(landmarks.absent), 'image')} that the ground truth names "
            f"{'are' if len(landmarks.absent) > 1 else 'is'} not there: {names}; figures are of "
            "those that are"
        )
    if result["unusable"]:
        left = result["unusable"]
        verb = "are" if len(left) > 1 else "is"
        said.append(
            f"{counted(len(left), 'image')} cannot be used and {verb} left out: {_some(left)}"
        )
    if result["not_whitened_on"]:
        left = result["not_whitened_on"]
        said.append(
            f"{counted(len(left), 'image')} to learn the whitening on cannot be used: {_some(left)}"
        )
    if result["left_out"]:
        left = result["left_out"]
        verb = "are" if len(left) > 1 else "is"
        asked = counted(len(left), "query", "queries")
        said.append(f"{asked} {verb} not asked: {_some(left)}")
    if other is not None and result["width"] < dimensions:
        bounds = [f"the layer has {channels:,} channels"] if channels < dimensions else []
        if result["width"] < channels:
            bounds.append(f"the regions of {counted(result['whitened_on'], 'image')} bear no more")
        said.append(
            f"the whitening has {result['width']:,} dimensions instead of {dimensions:,}: "
            + ", and ".join(bounds)
        )
    if other is None:
        said.append("regions are not whitened, as the paper's are: figures are no protocol's")
    elif shared := landmarks.shared(images):
        said.append(
            f"{shared:,} of the {counted(len(images), 'image')} of "
            f"{encoded(str(other.place))}, on which the whitening was learnt, "
            f"{'are images that are' if shared > 1 else 'is an image that is'} searched, by name "
            "and size; the paper's is learnt on others"
        )
    return said


def _some(things: Sequence[str]) -> str:
    return ", ".join(things[:3]) + (", ..." if len(things) > 3 else "")
