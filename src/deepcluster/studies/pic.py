"""The appendix's table of transfer: k-means against power iteration clustering."""

from __future__ import annotations

from deepcluster.studies import paper
from deepcluster.studies.drawing import bars_by_task
from deepcluster.studies.study import Results, Row, Section, Study
from deepcluster.studies.tables import by_task
from deepcluster.studies.terms import Terms


def rows(terms: Terms) -> list[Row]:
    """The recipe with each of the two."""
    return [
        Row("k-means", terms.with_k(terms.k), every_seed=True),
        Row("PIC", terms.with_power_iteration(), every_seed=True),
    ]


def sections(results: Results, terms: Terms) -> list[Section]:
    """What each task reaches."""
    return by_task(results, terms, paper.PIC)


STUDY = Study("pic", rows, sections, bars_by_task, source=paper.PIC_SOURCE, judge="transfer")
