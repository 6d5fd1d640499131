"""Figure 3: the filters of the first layer."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
from PIL import Image

from deepcluster.studies.paper_figure import Choices, Drawn, Exhibit, PaperFigure
from deepcluster.studies.study import Row
from deepcluster.studies.terms import Terms
from deepcluster.visuals.filters import first_kernels, grid
from deepcluster.visuals.panels import Block, laid_out

_KERNEL = 46  # pixels, about
_FRONTS = {"rgb": "RGB", "sobel": "Sobel"}


def rows(terms: Terms) -> list[Row]:
    """The recipe on colours and behind Sobel."""
    return [Row("RGB", terms.with_front("rgb")), Row("Sobel", terms.with_front("sobel"))]


def draw(exhibits: Sequence[Exhibit], choices: Choices) -> Drawn:
    """The kernels of each network."""
    blocks, heads, data = [], [], {}
    for title, run in exhibits:
        kernels = first_kernels(run.network)
        shown = grid(kernels, scale=max(1, round(_KERNEL / kernels.shape[-1])))
        blocks.append(Block("", [Image.fromarray(shown)]))
        front = _FRONTS[run.shape.front]
        heads.append(title if title == front else f"{title}, {front}")
        stream = io.BytesIO()
        np.save(stream, kernels.numpy(), allow_pickle=False)
        data[f"filters-{len(blocks)}-{run.shape.front}.npy"] = stream.getvalue()
    page = laid_out([blocks], heads)
    names = " and ".join(
        f"{run.shape.arch} ({head})" for head, (_, run) in zip(heads, exhibits, strict=True)
    )
    caption = (
        f"Filters of the first layer of {names}, each stretched to its own darkest and lightest. "
        "Behind Sobel a filter's two channels are shown as the one kernel that they make of the "
        "grey image."
    )
    return Drawn(page, data, caption)


FIGURE = PaperFigure(
    "fig3",
    "figure 3: an AlexNet trained on ImageNet on colours (left) and behind Sobel (right)",
    draw,
    rows,
    networks=4,
)
