"""The appendix's pages of what the first 100 filters of the last convolution like best."""

from __future__ import annotations

from collections.abc import Sequence

from deepcluster.studies.filter_blocks import among, in_rows, nine_best
from deepcluster.studies.paper_figure import Choices, Drawn, Exhibit, PaperFigure
from deepcluster.visuals import tables
from deepcluster.visuals.panels import Block, laid_out

_FILTERS, _ACROSS, _SIDE = 100, 10, 44


def draw(exhibits: Sequence[Exhibit], choices: Choices) -> Drawn:
    """Nine images for each filter, ten filters in a row."""
    run = exhibits[0].run
    layer = run.layer(None)
    top = run.top(layer, choices.filters)
    first = range(min(choices.count or _FILTERS, len(top.images)))
    filters = list(choices.filters) or list(first)
    blocks = [Block(f"Filter {f}", [nine_best(run, top, f, _SIDE)]) for f in filters]
    caption = (
        f"The 9 most activated of {among(run)} for the first {len(filters)} filters of {layer} of "
        f"{run.folder.path.name} ({run.shape.arch}). The paper leaves out filters that show "
        "people; none is left out here."
    )
    data = {"top.csv": tables.csv_of(*tables.top({layer: top}, run.album.names))}
    return Drawn(laid_out(in_rows(blocks, _ACROSS)), data, caption)


FIGURE = PaperFigure(
    "top100",
    "appendix: the 9 most activated of 10 million images of YFCC100M for the first 100 filters of "
    "the last convolution of an AlexNet (people not displayed)",
    draw,
)
