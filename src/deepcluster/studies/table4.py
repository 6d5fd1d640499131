"""Table 4: AlexNet and VGG-16, each beside its own untrained and supervised network."""

from __future__ import annotations

from deepcluster.studies import paper
from deepcluster.studies.depth import ARCHITECTURES
from deepcluster.studies.drawing import bars_by_task
from deepcluster.studies.study import Results, Row, Section, Study
from deepcluster.studies.tables import by_task, share_of_gap
from deepcluster.studies.terms import Terms

_ROWS = {"supervised": "ImageNet labels", "random": "random", "DeepCluster": "DeepCluster"}
PRINTED: dict[str, paper.Tasks] = {
    f"{row} {name}": {"detection all": paper.TABLE4[theirs][place]}
    for place, name in enumerate(ARCHITECTURES)
    for row, theirs in _ROWS.items()
}


def rows(terms: Terms) -> list[Row]:
    """The method, and what lies below and above it, with each network."""
    made = []
    for name, arch in ARCHITECTURES.items():
        these = terms.with_arch(arch)
        made += [
            Row.tuned(f"supervised {name}", these.supervised()),
            Row(f"random {name}", these.recipe, trained=False, every_seed=True),
            Row(f"DeepCluster {name}", these.recipe, every_seed=True),
        ]
    return made


def ways() -> list[tuple[str, str, str]]:
    """Of each network: the row in question, and where the gap begins and ends."""
    return [
        (f"DeepCluster {name}", f"random {name}", f"supervised {name}") for name in ARCHITECTURES
    ]


def sections(results: Results, terms: Terms) -> list[Section]:
    """What each task reaches, of which the paper has one; and how much of the gap is closed."""
    return by_task(results, terms, PRINTED) + share_of_gap(results, terms, PRINTED, ways())


STUDY = Study("table4", rows, sections, bars_by_task, source=paper.TABLE4_SOURCE, judge="transfer")
