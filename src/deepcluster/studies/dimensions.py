"""What is clustered: features by PCA, of more or fewer dimensions, or as they are."""

from __future__ import annotations

from dataclasses import replace

from deepcluster.features import Whitening
from deepcluster.studies.drawing import accuracy_by_layer
from deepcluster.studies.study import Results, Row, Section, Study
from deepcluster.studies.tables import by_layer
from deepcluster.studies.terms import Terms


def rows(terms: Terms) -> list[Row]:
    """No PCA, and PCA with fewer dimensions than the recipe, as many, and more."""
    own = terms.recipe.whitening.dimensions
    counts = sorted({max(4, own // 4), own, own * 4})
    return [
        Row("no PCA", replace(terms.recipe, whitening=Whitening(kind="none"))),
        *(
            Row(
                f"{count} dimensions",
                replace(terms.recipe, whitening=Whitening(dimensions=count)),
                note="at most one for every 20 images" if count > terms.images // 20 else "",
            )
            for count in counts
        ),
    ]


def sections(results: Results, terms: Terms) -> list[Section]:
    """Accuracy by layer, and agreement with the labels."""
    return by_layer(results, terms, {"256 dimensions": "the paper's choice"})


STUDY = Study("dimensions", rows, sections, accuracy_by_layer, source="section 3.4, in words only")
