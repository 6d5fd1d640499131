"""The appendix's table of variants: other images, another clustering, no Sobel; by ten crops."""

from __future__ import annotations

from functools import partial

from deepcluster.studies import paper
from deepcluster.studies.drawing import accuracy_by_layer
from deepcluster.studies.study import Results, Row, Section, Study
from deepcluster.studies.terms import Terms
from deepcluster.studies.uncurated import prepare

ROWS = {"DeepCluster": "DeepCluster", "uncurated": "YFCC100M", "PIC": "PIC", "RGB": "RGB"}


def rows(terms: Terms) -> list[Row]:
    """The method and three changes of it."""
    fewer = "fewer images than the other rows, seen more often: see the study uncurated"
    return [
        Row("DeepCluster", terms.recipe, every_seed=True),
        Row("uncurated", terms.on_fewer(terms.uncurated), images=terms.uncurated, note=fewer),
        Row.by_power_iteration("PIC", terms.with_power_iteration()),
        Row("RGB", terms.with_front("rgb")),
    ]


def sections(results: Results, terms: Terms) -> list[Section]:
    """Ten crops, as in the paper, on each data set."""
    return [
        Section(
            f"top-1 on {data.name}, mean of 10 crops",
            list(results.top1(results.names[0], data.name, ten_crops=True)),
            [
                results.line(name, data.name, _printed(name, place), ten_crops=True)
                for name in results.names
            ],
        )
        for place, data in enumerate(terms.data)
    ]


def _printed(name: str, place: int) -> paper.Figures | str:
    return paper.TEN_CROPS[ROWS[name]][place] if name in ROWS else "-"


STUDY = Study(
    "variants",
    rows,
    sections,
    partial(accuracy_by_layer, ten_crops=True),
    source=paper.TEN_CROPS_SOURCE,
    ten_crops=True,
    needs_second=True,
    prepare=prepare,
)
