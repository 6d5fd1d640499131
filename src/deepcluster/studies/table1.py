"""Table 1: linear classifiers on conv1 to conv5, and how much of the gap to labels is closed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from deepcluster.studies import paper
from deepcluster.studies.drawing import accuracy_by_layer
from deepcluster.studies.study import Figured, Line, Results, Row, Section, Study
from deepcluster.studies.terms import Terms

Front = Literal["sobel", "rgb"]

_NAMED = {"random": "random", "supervised": "ImageNet labels", "DeepCluster": "DeepCluster"}
"""Rows of the paper's table, by our names."""


def rows(terms: Terms) -> list[Row]:
    """The method, three variants of it, and what lies below and above."""
    own: Front = terms.recipe.network.front
    other: Front = "rgb" if own == "sobel" else "sobel"
    made = [
        Row("random", terms.recipe, trained=False, every_seed=True),
        Row.tuned("supervised", terms.supervised()),
        Row("DeepCluster", terms.recipe, every_seed=True),
        Row("paper values", terms.paper_values(), note=_paper_values_note(terms)),
        Row.by_power_iteration("PIC", terms.with_power_iteration()),
        Row(other.upper(), terms.with_front(other)),
    ]
    if terms.both_fronts:
        made += [
            Row(f"random-{other}", terms.with_front(other), trained=False),
            Row.tuned(f"supervised-{other}", terms.supervised(other), tuned_like="supervised"),
        ]
    return made


def sections(results: Results, terms: Terms) -> list[Section]:
    """Accuracy by single crop and by ten, and the share of the gap, on each data set."""
    made = []
    for place, data in enumerate(terms.data):
        printed = _printed(place)
        columns = list(results.top1(results.names[0], data.name))
        for ten in (False, True) if terms.probe.ten_crops else (False,):
            known = {name: figures[place] for name, figures in paper.TEN_CROPS.items()}
            lines = [
                results.line(
                    name, data.name, (known if ten else printed).get(name, "-"), ten_crops=ten
                )
                for name in results.names
            ]
            crops = "mean of 10 crops" if ten else "single crop"
            made.append(Section(f"top-1 on {data.name}, {crops}", columns, lines))
        if shares := _shares(results, data.name, printed):
            title = f"share of the gap from random to supervised, %, on {data.name}"
            made.append(Section(title, columns, shares, digits=0))
    return [*made, *_courses(results)]


def _courses(results: Results) -> list[Section]:
    """What training every row took."""
    lines = []
    for name in results.names:
        trained = [one.training for one in results.of(name) if one.training is not None]
        if trained:
            epochs = Figured.of([len(one["journal"]) for one in trained])
            minutes = Figured.of([one["seconds"] / 60 for one in trained])
            theirs = "500 epochs" if name == "DeepCluster" else "-"
            lines.append(Line(name, theirs, [epochs, minutes]))
    return [Section("training", ("epochs", "minutes"), lines)] if lines else []


def _printed(place: int) -> dict[str, paper.Figures]:
    """The paper's single-crop figures on ImageNet (0) or Places (1), by our names."""
    return {ours: paper.TABLE1[theirs][place] for ours, theirs in _NAMED.items()}


def _shares(results: Results, data: str, printed: dict[str, paper.Figures]) -> list[Line]:
    """Of every seed of every row that learns without labels, between the means of the two others.

    The two others have the same front; a row whose front they were not run with has no share.
    """
    lines, found = [], False
    for row in results.rows:
        if not row.trained or row.run.labels == "folders":
            continue
        low, high = (_with_front(results, of, row) for of in ("random", "supervised"))
        of_seeds = [tuple(one.top1(data).values()) for one in results.of(row.name)]
        if low is None or high is None:
            none = [None for _ in of_seeds[0]]
            lines.append(Line(row.name, "-", none, "no random and supervised with its front"))
            continue
        found = True
        ends = [_means(results, end.name, data) for end in (low, high)]
        chance = results.chance(data)
        by_seed = [paper.gap_closed(figures, *ends, chance=chance) for figures in of_seeds]
        theirs: paper.Figures | str = "-"
        if row.name in printed:
            own = (printed[name] for name in (row.name, "random", "supervised"))
            theirs = paper.gap_closed(*own)
        ours = [_over_seeds(shares) for shares in zip(*by_seed, strict=True)]
        note = f"between {low.name} and {high.name}"
        lines.append(Line(row.name, theirs, ours, note))
    return lines if found else []


def _with_front(results: Results, name: str, row: Row) -> Row | None:
    """The baseline of that name, with the front of the row."""
    front = row.run.network.front
    found = (results.row(one) for one in (name, f"{name}-{front}"))
    return next((one for one in found if one and one.run.network.front == front), None)


def _means(results: Results, name: str, data: str) -> paper.Figures:
    return tuple(figure.mean for figure in results.top1(name, data).values())


def _over_seeds(shares: Sequence[float | None]) -> Figured | None:
    known = [share for share in shares if share is not None]
    return Figured.of(known) if known else None


def _paper_values_note(terms: Terms) -> str:
    own = terms.recipe
    changed = [f"k = {terms.k}", f"{own.network.input_size} px", own.precision]
    if own.network.width < 4096:
        changed.append(f"fc6 and fc7 {own.network.width} wide")
    return "the paper's settings but for length, " + ", ".join(changed)


STUDY = Study(
    "table1",
    rows,
    sections,
    accuracy_by_layer,
    source=f"{paper.TABLE1_SOURCE}; {paper.TEN_CROPS_SOURCE}",
)
