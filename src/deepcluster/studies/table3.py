"""Table 3: transfer of what was learnt from clean images and from unbalanced ones with scenes."""

from __future__ import annotations

from deepcluster.studies import paper
from deepcluster.studies.drawing import bars_by_task
from deepcluster.studies.study import Results, Row, Section, Study
from deepcluster.studies.tables import by_task
from deepcluster.studies.terms import Terms
from deepcluster.studies.uncurated import prepare


def rows(terms: Terms) -> list[Row]:
    """The same recipe on two lists of equally many images."""
    return [
        Row("curated", terms.on_fewer(terms.curated), images=terms.curated, every_seed=True),
        Row("uncurated", terms.on_fewer(terms.uncurated), images=terms.uncurated, every_seed=True),
    ]


def sections(results: Results, terms: Terms) -> list[Section]:
    """What each task reaches."""
    printed = {"curated": paper.TABLE3["ImageNet"], "uncurated": paper.TABLE3["YFCC100M"]}
    return by_task(results, terms, printed)


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
