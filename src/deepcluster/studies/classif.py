"""The appendix's table of data and clusterings: fc6 to fc8 learnt anew on frozen convolutions.

Its columns about VOC 2007 are not here.
"""

from __future__ import annotations

from collections.abc import Callable

from deepcluster.settings import Run
from deepcluster.studies import paper
from deepcluster.studies.drawing import bars_of_first_data
from deepcluster.studies.study import Results, Row, Section, Study
from deepcluster.studies.tables import by_data
from deepcluster.studies.terms import Terms
from deepcluster.studies.uncurated import prepare


def rows(terms: Terms) -> list[Row]:
    """Two sets of equally many images, two clusterings, and the network untrained."""
    clusterings: dict[str, tuple[Callable[..., Row], Run]] = {
        "k-means": (Row, terms.with_k(terms.k)),
        "PIC": (Row.by_power_iteration, terms.with_power_iteration()),
    }
    lists = {"curated": terms.curated, "uncurated": terms.uncurated}
    return [
        *(
            made(f"{images}, {clustering}", terms.on_fewer(place, run), images=place)
            for images, place in lists.items()
            for clustering, (made, run) in clusterings.items()
        ),
        Row("random", terms.recipe, trained=False),
    ]


def sections(results: Results, terms: Terms) -> list[Section]:
    """One figure a row and data set; the paper's is on ImageNet."""
    theirs = {"random": paper.MLP["random"]}
    for (images, clustering), value in paper.CLASSIF.items():
        ours = "curated" if images == "ImageNet" else "uncurated"
        theirs[f"{ours}, {clustering}"] = value
    return by_data(results, terms, theirs)


STUDY = Study(
    "classif",
    rows,
    sections,
    bars_of_first_data,
    source=f"{paper.CLASSIF_SOURCE}; random from the {paper.MLP_SOURCE}",
    judge="mlp",
    needs_second=True,
    prepare=prepare,
)
