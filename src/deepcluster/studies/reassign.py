"""How often to recluster: the same number of updates, with more or fewer clusterings."""

from __future__ import annotations

from dataclasses import replace

from deepcluster.runtime.errors import UsageError
from deepcluster.studies.drawing import accuracy_by_layer
from deepcluster.studies.study import Results, Row, Section, Study
from deepcluster.studies.tables import by_layer
from deepcluster.studies.terms import Terms

PASSES = (0.5, 1, 2, 4, 8)  # through the images between two clusterings


def rows(terms: Terms) -> list[Row]:
    """One row for every number of passes; all see as many images as the recipe."""
    recipe = terms.recipe
    seen = recipe.epochs * recipe.draw.reassign
    made = []
    for clusterings in (round(seen / passes) for passes in PASSES if passes <= seen):
        passes = seen / clusterings  # where they do not divide, the clusterings are whole
        run = replace(recipe, epochs=clusterings, draw=replace(recipe.draw, reassign=passes))
        made.append(Row(_name(passes), run, note=f"{clusterings} clusterings"))
    return made


def _name(passes: float) -> str:
    return f"every {passes:g} passes"


def sections(results: Results, terms: Terms) -> list[Section]:
    """Accuracy by layer, and agreement with the labels."""
    return by_layer(results, terms, {_name(1): "every epoch is nearly optimal on ImageNet"})


def refuse(terms: Terms) -> None:
    """Equal time is not an equal number of updates: clusterings take time."""
    if terms.recipe.minutes is not None:
        raise UsageError(
            "--minutes: this study compares equal numbers of updates; give --epochs instead"
        )


STUDY = Study(
    "reassign",
    rows,
    sections,
    accuracy_by_layer,
    source="section 3.4, in words only",
    refuse=refuse,
)
