"""Figure 5: what filters of the last convolution like best."""

from __future__ import annotations

from collections.abc import Sequence

from deepcluster.studies.filter_blocks import best_of_last
from deepcluster.studies.paper_figure import Choices, Drawn, Exhibit, PaperFigure
from deepcluster.visuals.top_images import TopImages

_SAID = (
    "those that images excite most",
    "The paper's are chosen by hand, objects above and styles below: --filters chooses.",
)


def draw(exhibits: Sequence[Exhibit], choices: Choices) -> Drawn:
    """Nine images for each filter, four filters in a row."""
    return best_of_last(exhibits, choices, TopImages.most_telling, 8, 4, _SAID)


FIGURE = PaperFigure(
    "fig5",
    "figure 5: the 9 most activated of 10 million images of YFCC100M for 8 filters of the last "
    "convolution, above such as like objects, below such as like styles",
    draw,
)
