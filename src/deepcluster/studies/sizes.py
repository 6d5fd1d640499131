"""The appendix's figure of cluster sizes, k-means beside power iteration."""

from __future__ import annotations

from collections.abc import Sequence

from deepcluster.studies.paper_figure import Choices, Drawn, Exhibit, PaperFigure
from deepcluster.studies.study import Row
from deepcluster.studies.terms import Terms
from deepcluster.visuals import plots, tables

_SMALL = 10  # images, as in the paper


def rows(terms: Terms) -> list[Row]:
    """The recipe with either clustering."""
    return [
        Row("k-means", terms.with_k(terms.k)),
        Row.by_power_iteration("PIC", terms.with_power_iteration()),
    ]


def draw(exhibits: Sequence[Exhibit], choices: Choices) -> Drawn:
    """One curve for each network."""
    counts = {title: run.sizes[run.sizes > 0] for title, run in exhibits}
    said = [
        f"{title}: {len(some):,} clusters, {(some < _SMALL).mean():.0%} of them with fewer than "
        f"{_SMALL} images, the largest with {some.max():,}"
        for title, some in counts.items()
    ]
    caption = f"Sizes of the clusters of the final network, the largest first. {'; '.join(said)}."
    data = {"sizes.csv": tables.csv_of(*tables.sizes(counts))}
    return Drawn(plots.sizes(counts), data, caption)


FIGURE = PaperFigure(
    "sizes",
    "appendix: sizes of the clusters at the last epoch; for PIC almost one third have fewer than "
    "10 images, the largest roughly 3,000; k-means is more balanced",
    draw,
    rows,
    networks=8,
)
