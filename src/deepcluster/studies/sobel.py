"""Sobel filters against colours, each beside its own untrained network."""

from __future__ import annotations

from deepcluster.studies import paper
from deepcluster.studies.drawing import accuracy_by_layer
from deepcluster.studies.study import Results, Row, Section, Study
from deepcluster.studies.tables import by_layer
from deepcluster.studies.terms import Terms


def rows(terms: Terms) -> list[Row]:
    """Two fronts, trained and not."""
    return [
        Row("Sobel", terms.with_front("sobel"), every_seed=True),
        Row("RGB", terms.with_front("rgb"), every_seed=True),
        Row("random-sobel", terms.with_front("sobel"), trained=False),
        Row("random-rgb", terms.with_front("rgb"), trained=False),
    ]


def sections(results: Results, terms: Terms) -> list[Section]:
    """Accuracy by layer, and agreement with the labels."""
    told = {
        "Sobel": " / ".join(f"{value}" for value in paper.TEN_CROPS["DeepCluster"][0]),
        "RGB": " / ".join(f"{value}" for value in paper.TEN_CROPS["RGB"][0]),
    }
    return by_layer(
        results, terms, {name: f"{figures} (10 crops)" for name, figures in told.items()}
    )


STUDY = Study(
    "sobel", rows, sections, accuracy_by_layer, source=f"ImageNet; {paper.TEN_CROPS_SOURCE}"
)
