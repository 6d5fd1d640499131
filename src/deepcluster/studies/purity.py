"""The appendix's figure of pure clusters, by synset."""

from __future__ import annotations

from collections.abc import Sequence

from deepcluster.studies.paper_figure import Choices, Drawn, Exhibit, PaperFigure
from deepcluster.viewed_run import purity_of
from deepcluster.visuals import plots, tables


def draw(exhibits: Sequence[Exhibit], choices: Choices) -> Drawn:
    """Synsets at depth 6, 9 and 13; without an ontology, classes."""
    run = exhibits[0].run
    found = purity_of(run, choices.wordnet, choices.words)
    what = "classes" if choices.wordnet is None else "synsets at depth 6, 9 and 13 of the ontology"
    caption = (
        f"Share of the images that lie in a pure cluster (more than 70% of its images are of that "
        f"synset), for {what}; {run.folder.path.name}. The marks are what chance would give in "
        "clusters of the same sizes."
    )
    data = {"purity.csv": tables.csv_of(*tables.purity(found.bars))}
    return Drawn(plots.purity(found.panels), data, caption)


FIGURE = PaperFigure(
    "purity",
    "appendix: proportion of images in a pure cluster for synsets at depth 6, 9 and 13 of the "
    "ImageNet ontology, with zooms on animal and mammal; highest for animals and plants",
    draw,
)
