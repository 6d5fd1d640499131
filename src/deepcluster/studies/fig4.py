"""Figure 4: what filters want to see, beside what they like best, from shallow to deep."""

from __future__ import annotations

from collections.abc import Sequence

from deepcluster.runtime.errors import UsageError
from deepcluster.studies.filter_blocks import among, pairs
from deepcluster.studies.paper_figure import Choices, Drawn, Exhibit, PaperFigure
from deepcluster.visuals import tables
from deepcluster.visuals.panels import laid_out

_ROWS = 2


def draw(exhibits: Sequence[Exhibit], choices: Choices) -> Drawn:
    """One column for each of three layers, the most telling filters of each."""
    if choices.filters:
        raise UsageError("--filters: fig4 shows three layers; use fig5, or show RUN ascent --layer")
    run = exhibits[0].run
    columns, tops, objectives = [], {}, []
    for layer in _layers(list(run.network.layers)):
        tops[layer] = top = run.top(layer)
        filters = top.most_telling(choices.count or _ROWS)
        if not filters:
            raise UsageError(f"no filter of {layer} answers to any image: there is nothing to show")
        blocks, reached = pairs(run, layer, top, filters, choices.steps, choices.seed)
        columns.append(blocks)
        objectives += [(layer, f, f"{o:.6g}") for f, o in zip(filters, reached, strict=True)]
    deepest = min(len(column) for column in columns)
    page = laid_out([[column[at] for column in columns] for at in range(deepest)], list(tops))
    caption = (
        f"Filter visualization and the 9 most activated of {among(run)} for filters of "
        f"{', '.join(tops)} of {run.folder.path.name} ({run.shape.arch}). The visualization is an "
        f"image learned to maximize the response to the filter ({choices.steps} steps). The "
        "filters are those that images excite most, and each by other images."
    )
    data = {
        "top.csv": tables.csv_of(*tables.top(tops, run.album.names)),
        "ascent.csv": tables.csv_of(["layer", "filter", "objective"], objectives),
    }
    return Drawn(page, data, caption)


def _layers(names: list[str]) -> list[str]:
    """conv1, conv3 and conv5 where there are five; else the first, a middle and the last."""
    convolutions = [name for name in names if name.startswith("conv")] or names
    return list(dict.fromkeys(convolutions[at] for at in (0, (len(convolutions) - 1) // 2, -1)))


FIGURE = PaperFigure(
    "fig4",
    "figure 4: filters of conv1, conv3 and conv5 of an AlexNet, each as an image learned by "
    "gradient ascent beside its 9 most activated of 1 million images of YFCC100M",
    draw,
)
