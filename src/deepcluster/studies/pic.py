"""The appendix's table of transfer: k-means against power iteration clustering."""

from __future__ import annotations

from deepcluster.studies import paper
from deepcluster.studies.drawing import bars_by_task
from deepcluster.studies.study import Results, Row, Section, Study
from deepcluster.studies.tables import by_task, share_of_gap
from deepcluster.studies.terms import Terms

PRINTED = {
    "supervised": paper.TABLE2["ImageNet labels"],
    "random": paper.TABLE2["random-sobel"],
    **paper.PIC,
}


def rows(terms: Terms) -> list[Row]:
    """The recipe with each of the two, and the ends of the gap."""
    return [
        Row.tuned("supervised", terms.supervised()),
        Row("random", terms.recipe, trained=False, every_seed=True),
        Row("k-means", terms.with_k(terms.k), every_seed=True),
        Row.by_power_iteration("PIC", terms.with_power_iteration(), every_seed=True),
    ]


def sections(results: Results, terms: Terms) -> list[Section]:
    """What each task reaches, and how much of the gap is closed."""
    ways = [(name, "random", "supervised") for name in ("k-means", "PIC")]
    return by_task(results, terms, PRINTED) + share_of_gap(results, terms, PRINTED, ways)


STUDY = Study("pic", rows, sections, bars_by_task, source=paper.PIC_SOURCE, judge="transfer")
