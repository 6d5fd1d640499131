"""Does it need clean data? Classes of very different sizes, mixed with scenes.

In the place of the paper's YFCC100M; beside it equally many images of balanced classes.
"""

from __future__ import annotations

from deepcluster.studies import paper
from deepcluster.studies.drawing import accuracy_by_layer
from deepcluster.studies.image_lists import write_uncurated
from deepcluster.studies.study import Results, Row, Section, Study
from deepcluster.studies.tables import by_layer
from deepcluster.studies.terms import Terms


def rows(terms: Terms) -> list[Row]:
    """The same recipe on two lists of equally many images."""
    return [
        Row("curated", terms.on_fewer(terms.curated), images=terms.curated, every_seed=True),
        Row("uncurated", terms.on_fewer(terms.uncurated), images=terms.uncurated, every_seed=True),
        Row("random", terms.recipe, trained=False),
    ]


def prepare(terms: Terms) -> None:
    """Write both lists; the same seed, so the same images, for every seed of training."""
    objects, scenes = terms.data[0].train, terms.data[1].train
    how = terms.recipe.pixels
    write_uncurated(terms.uncurated, terms.curated, objects, scenes, seed=0, how=how)


def sections(results: Results, terms: Terms) -> list[Section]:
    """Accuracy by layer, and agreement with the labels."""
    told = {
        "curated": paper.TEN_CROPS["DeepCluster"][0],
        "uncurated": paper.TEN_CROPS["YFCC100M"][0],
    }
    said = {
        name: " / ".join(f"{value}" for value in figures) + " (ImageNet, 10 crops)"
        for name, figures in told.items()
    }
    return by_layer(results, terms, said)


STUDY = Study(
    "uncurated",
    rows,
    sections,
    accuracy_by_layer,
    source=paper.TEN_CROPS_SOURCE,
    needs_second=True,
    prepare=prepare,
)
