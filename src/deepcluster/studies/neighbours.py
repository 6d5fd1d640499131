"""The appendix's figure of images and their nearest, untrained and trained."""

from __future__ import annotations

from collections.abc import Sequence

from deepcluster.studies.paper_figure import Choices, Drawn, Exhibit, PaperFigure
from deepcluster.studies.study import Row
from deepcluster.studies.terms import Terms
from deepcluster.visuals import tables

_QUERIES = 6


def rows(terms: Terms) -> list[Row]:
    """The recipe with power iteration, as in the paper."""
    return [Row.by_power_iteration("DeepCluster PIC", terms.with_power_iteration())]


def draw(exhibits: Sequence[Exhibit], choices: Choices) -> Drawn:
    """A query, its three nearest untrained, its three nearest trained; row by row."""
    title, run = exhibits[0]
    found = run.retrieved(choices.count or _QUERIES, choices.seed)
    caption = (
        f"Images drawn at random and their 3 nearest of {found.among:,} in the feature space: by "
        f"the network before training, and by the same network trained ({run.folder.path.name})."
    )
    data = {"neighbours.csv": tables.csv_of(*tables.neighbours(found, run.album.names))}
    return Drawn(run.page_of(found, "random", title), data, caption)


FIGURE = PaperFigure(
    "neighbours",
    "appendix: images of Flickr and their 3 nearest, by a randomly initialized network and by the "
    "same network trained with power iteration",
    draw,
    rows,
)
