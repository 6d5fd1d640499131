"""Table 1: linear classifiers on conv1 to conv5, and how much of the gap to labels is closed."""

from __future__ import annotations

from typing import Literal

from deepcluster.studies import paper
from deepcluster.studies.drawing import accuracy_by_layer
from deepcluster.studies.study import Line, Results, Row, Section, Study
from deepcluster.studies.terms import Terms

Front = Literal["sobel", "rgb"]


def rows(terms: Terms) -> list[Row]:
    """The method, three variants of it, and what lies below and above."""
    own: Front = terms.recipe.network.front
    other: Front = "rgb" if own == "sobel" else "sobel"
    made = [
        Row("random", terms.recipe, trained=False, every_seed=True),
        Row.tuned("supervised", terms.supervised()),
        Row("DeepCluster", terms.recipe, every_seed=True),
        Row("paper values", terms.paper_values(), note=_paper_values_note(terms)),
        Row("PIC", terms.with_power_iteration()),
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
    return made


def _printed(place: int) -> dict[str, paper.Figures]:
    """The paper's single-crop figures on ImageNet (0) or Places (1), by our names."""
    named = {"random": "random", "supervised": "ImageNet labels", "DeepCluster": "DeepCluster"}
    return {ours: paper.TABLE1[theirs][place] for ours, theirs in named.items()}


def _shares(results: Results, data: str, printed: dict[str, paper.Figures]) -> list[Line]:
    means = {
        name: tuple(figure.mean for figure in results.top1(name, data).values())
        for name in results.names
    }
    lines = []
    for name in ("DeepCluster", "paper values", "PIC", "RGB", "SOBEL"):
        front = f"-{name.lower()}" if f"random-{name.lower()}" in means else ""
        if f"supervised{front}" not in means:
            front = ""
        low, high = means.get(f"random{front}"), means.get(f"supervised{front}")
        if name not in means or low is None or high is None:
            continue
        theirs = (
            paper.gap_closed(printed[name], printed["random"], printed["supervised"])
            if name in printed
            else "-"
        )
        note = f"between random{front} and supervised{front}"
        lines.append(Line(name, theirs, paper.gap_closed(means[name], low, high), note))
    return lines


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
