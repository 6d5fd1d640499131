"""Which images an epoch trains on: does the balancing of clusters matter?

The released code means to draw every cluster equally often and does not; the published figures may
therefore be those of the natural draw.
"""

from __future__ import annotations

from dataclasses import replace

from deepcluster.studies.drawing import accuracy_by_layer
from deepcluster.studies.study import Results, Row, Section, Study
from deepcluster.studies.tables import by_layer
from deepcluster.studies.terms import Terms


def rows(terms: Terms) -> list[Row]:
    """The three draws, every one with all seeds."""
    draw = terms.recipe.draw
    return [
        Row("uniform", replace(terms.recipe, draw=replace(draw, kind="uniform")), every_seed=True),
        Row("natural", replace(terms.recipe, draw=replace(draw, kind="natural")), every_seed=True),
        Row(
            "weighted", replace(terms.recipe, draw=replace(draw, kind="weighted")), every_seed=True
        ),
    ]


def sections(results: Results, terms: Terms) -> list[Section]:
    """Accuracy by layer, and agreement with the labels."""
    said = {
        "uniform": "what the paper says",
        "natural": "what its code comes to",
        "weighted": "equivalent, says the paper",
    }
    return by_layer(results, terms, said)


STUDY = Study("draw", rows, sections, accuracy_by_layer, source="section 3.3, in words only")
