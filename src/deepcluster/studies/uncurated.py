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
    return by_layer(results, terms, *(_told(place) for place in range(len(terms.data))))


def _told(place: int) -> dict[str, str]:
    """What the paper has of each row, on the first data set or on the second."""
    rows = {"curated": "DeepCluster", "uncurated": "YFCC100M"}
    where = ("ImageNet", "Places")[place]
    return {
        ours: " / ".join(map(str, paper.TEN_CROPS[theirs][place])) + f" ({where}, 10 crops)"
        for ours, theirs in rows.items()
    }


STUDY = Study(
    "uncurated",
    rows,
    sections,
    accuracy_by_layer,
    source=paper.TEN_CROPS_SOURCE,
    needs_second=True,
    prepare=prepare,
)
