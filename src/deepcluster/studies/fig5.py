"""Figure 5: what filters of the last convolution like best."""

from __future__ import annotations

from collections.abc import Sequence

from deepcluster.studies.filter_blocks import among, in_rows, nine_best
from deepcluster.studies.paper_figure import Choices, Drawn, Exhibit, PaperFigure
from deepcluster.visuals import tables
from deepcluster.visuals.panels import Block, laid_out

_FILTERS, _ACROSS = 8, 4


def draw(exhibits: Sequence[Exhibit], choices: Choices) -> Drawn:
    """Nine images for each filter, four filters in a row."""
    run = exhibits[0].run
    layer = run.layer(None)
    top = run.top(layer, choices.filters)
    filters = list(choices.filters) or top.most_telling(choices.count or _FILTERS)
    blocks = [Block(f"Filter {f}", [nine_best(run, top, f)]) for f in filters]
    how = "as asked for" if choices.filters else "those that images excite most"
    caption = (
        f"The 9 most activated of {among(run)} for filters of {layer} of {run.folder.path.name} "
        f"({run.shape.arch}), {how}. The paper's are chosen by hand, objects above and styles "
        "below: --filters chooses."
    )
    data = {"top.csv": tables.csv_of(*tables.top({layer: top}, run.album.names))}
    return Drawn(laid_out(in_rows(blocks, _ACROSS)), data, caption)


FIGURE = PaperFigure(
    "fig5",
    "figure 5: the 9 most activated of 10 million images of YFCC100M for 8 filters of the last "
    "convolution, above such as like objects, below such as like styles",
    draw,
)
