"""Table 2: transfer to Pascal VOC, where fc6 to fc8 learn, and where all layers do."""

from __future__ import annotations

from deepcluster.studies import paper
from deepcluster.studies.drawing import bars_by_task
from deepcluster.studies.study import Results, Row, Section, Study
from deepcluster.studies.tables import by_task, share_of_gap
from deepcluster.studies.terms import Terms

PRINTED = {
    "supervised": paper.TABLE2["ImageNet labels"],
    "random-rgb": paper.TABLE2["random-rgb"],
    "random-sobel": paper.TABLE2["random-sobel"],
    "DeepCluster": paper.TABLE2["DeepCluster"],
}


def rows(terms: Terms) -> list[Row]:
    """The method, and what lies below and above it; random with both fronts, as in the paper."""
    return [
        Row.tuned("supervised", terms.supervised()),
        Row("random-rgb", terms.with_front("rgb"), trained=False, every_seed=True),
        Row("random-sobel", terms.with_front("sobel"), trained=False, every_seed=True),
        Row("DeepCluster", terms.recipe, every_seed=True),
    ]


def sections(results: Results, terms: Terms) -> list[Section]:
    """What each task reaches, and how much of the gap is closed."""
    low = f"random-{terms.recipe.network.front}"  # the untrained network of the recipe's front
    ways = [("DeepCluster", low, "supervised")]
    return by_task(results, terms, PRINTED) + share_of_gap(results, terms, PRINTED, ways)


STUDY = Study("table2", rows, sections, bars_by_task, source=paper.TABLE2_SOURCE, judge="transfer")
