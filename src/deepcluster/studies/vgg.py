"""The appendix's figures of VGG-16: what filters of its last convolution want to see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from deepcluster.studies.filter_blocks import LastFilters, among, pairs
from deepcluster.studies.paper_figure import Choices, Drawn, Exhibit, PaperFigure
from deepcluster.studies.study import Row
from deepcluster.studies.terms import Terms
from deepcluster.visuals import tables
from deepcluster.visuals.panels import in_rows, laid_out
from deepcluster.visuals.top_images import TopImages

_FILTERS, _ACROSS = 12, 3


def rows(terms: Terms) -> list[Row]:
    """The recipe with VGG-16."""
    return [Row("VGG-16", terms.with_arch("vgg16").recipe)]


def draw(exhibits: Sequence[Exhibit], choices: Choices) -> Drawn:
    """Three pairs in a row: the image that a filter wants to see, and the nine it likes best."""
    run = exhibits[0].run
    last = LastFilters.of(run, choices, TopImages.most_telling, _FILTERS)
    blocks, objectives = pairs(run, *last, choices.steps, choices.seed)
    caption = (
        f"Filter visualization and, to its right, the 9 most activated of {among(run)} for filters "
        f"of {last.layer} of {run.folder.path.name} ({run.shape.arch}). The paper's second "
        "figure, of filters that seem to like people, was chosen by hand: --filters chooses."
    )
    reached = [(f, f"{value:.6g}") for f, value in zip(last.filters, objectives, strict=True)]
    data = {
        **last.table(run),
        "ascent.csv": tables.csv_of(["filter", "objective"], reached),
    }
    return Drawn(laid_out(in_rows(blocks, _ACROSS)), data, caption)


FIGURE = PaperFigure(
    "vgg",
    "appendix: filters of the last convolution of a VGG-16, each as an image learned by gradient "
    "ascent beside its 9 most activated of 1 million images of YFCC100M",
    draw,
    rows,
    smoke=lambda recipe: replace(recipe, epochs=1, draw=replace(recipe.draw, reassign=1)),
)
