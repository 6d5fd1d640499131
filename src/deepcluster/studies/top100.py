"""The appendix's pages of what the first 100 filters of the last convolution like best."""

from __future__ import annotations

from collections.abc import Sequence

from deepcluster.studies.filter_blocks import best_of_last
from deepcluster.studies.paper_figure import Choices, Drawn, Exhibit, PaperFigure
from deepcluster.visuals.top_images import TopImages

_SAID = (
    "the first ones",
    "The paper leaves out filters that show people; none is left out here.",
)


def draw(exhibits: Sequence[Exhibit], choices: Choices) -> Drawn:
    """Nine images for each filter, ten filters in a row."""
    return best_of_last(exhibits, choices, _first, 100, 10, _SAID, side=44)


def _first(top: TopImages, count: int) -> list[int]:
    return list(range(min(count, len(top.images))))


FIGURE = PaperFigure(
    "top100",
    "appendix: the 9 most activated of 10 million images of YFCC100M for the first 100 filters of "
    "the last convolution of an AlexNet (people not displayed)",
    draw,
)
