"""Table 3: transfer of what was learnt from clean images and from unbalanced ones with scenes."""

from __future__ import annotations

from deepcluster.studies import paper
from deepcluster.studies.drawing import bars_by_task
from deepcluster.studies.study import Results, Row, Section, Study
from deepcluster.studies.tables import by_task, share_of_gap
from deepcluster.studies.terms import Terms
from deepcluster.studies.uncurated import prepare

PRINTED = {
    "supervised": paper.TABLE2["ImageNet labels"],
    "random": paper.TABLE2["random-sobel"],
    "curated": paper.TABLE3["ImageNet"],
    "uncurated": paper.TABLE3["YFCC100M"],
}


def rows(terms: Terms) -> list[Row]:
    """The same recipe on two lists of equally many images; and the ends of the gap."""
    return [
        Row.tuned("supervised", terms.supervised()),
        Row("random", terms.recipe, trained=False, every_seed=True),
        Row("curated", terms.on_fewer(terms.curated), images=terms.curated, every_seed=True),
        Row("uncurated", terms.on_fewer(terms.uncurated), images=terms.uncurated, every_seed=True),
    ]


def sections(results: Results, terms: Terms) -> list[Section]:
    """What each task reaches, and how much of the gap is closed."""
    ways = [(name, "random", "supervised") for name in ("curated", "uncurated")]
    return by_task(results, terms, PRINTED) + share_of_gap(results, terms, PRINTED, ways)


STUDY = Study(
    "table3",
    rows,
    sections,
    bars_by_task,
    source=paper.TABLE3_SOURCE,
    judge="transfer",
    needs_second=True,
    prepare=prepare,
)
