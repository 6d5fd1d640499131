"""What filters want to see and like best, as blocks of a figure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from PIL import Image

from deepcluster.studies.paper_figure import Choices, Drawn, Exhibit
from deepcluster.viewed_run import ViewedRun
from deepcluster.visuals import tables
from deepcluster.visuals.panels import Block, in_rows, laid_out, mosaic, square
from deepcluster.visuals.top_images import TopImages

_SIDE = 64  # of one of nine


class LastFilters(NamedTuple):
    """Filters of the last convolution, and the images that excite each of that layer's most."""

    layer: str
    top: TopImages
    filters: list[int]

    @staticmethod
    def of(
        run: ViewedRun, choices: Choices, usual: Callable[[TopImages, int], list[int]], count: int
    ) -> LastFilters:
        """Those that are asked for; else the usual ones, so many."""
        layer = run.layer(None)
        top = run.top(layer, choices.filters)
        filters = list(choices.filters) or usual(top, choices.count or count)
        return LastFilters(layer, top, filters)

    def table(self, run: ViewedRun) -> dict[str, bytes]:
        """The data of a figure of them."""
        return {"top.csv": tables.csv_of(*tables.top({self.layer: self.top}, run.album.names))}


def best_of_last(
    exhibits: Sequence[Exhibit],
    choices: Choices,
    usual: Callable[[TopImages, int], list[int]],
    count: int,
    across: int,
    said: tuple[str, str],
    side: int = _SIDE,
) -> Drawn:
    """Nine images for each filter of the last convolution.

    Args:
        exhibits: The network.
        choices: Which filters, or how many.
        usual: Which, where they are not named.
        count: How many of these.
        across: Filters in a row.
        said: What is said of the usual choice, and of the paper's.
        side: Of an image, in pixels.
    """
    run = exhibits[0].run
    last = LastFilters.of(run, choices, usual, count)
    blocks = [Block(f"filter {f}", [nine_best(run, last.top, f, side)]) for f in last.filters]
    how, paper = said
    caption = (
        f"The 9 most activated of {among(run)} for filters of {last.layer} of "
        f"{run.folder.path.name} ({run.shape.arch}), {'as asked for' if choices.filters else how}. "
        f"{paper}"
    )
    return Drawn(laid_out(in_rows(blocks, across)), last.table(run), caption)


def nine_best(run: ViewedRun, top: TopImages, number: int, side: int = _SIDE) -> Image.Image:
    """The nine images that a filter likes best, three by three."""
    return mosaic([run.picture(one) for one in top.images[number].tolist()], across=3, side=side)


def pairs(
    run: ViewedRun, layer: str, top: TopImages, filters: Sequence[int], steps: int, seed: int
) -> tuple[list[Block], list[float]]:
    """For each filter the image it wants to see beside the nine it likes best; its objective."""
    made = run.ascended(layer, filters, steps, seed)
    blocks = []
    for number, wanted in zip(filters, made.pictures, strict=True):
        best = nine_best(run, top, number)
        blocks.append(Block(f"filter {number}", [square(wanted, best.width), best]))
    return blocks, made.objectives


def among(run: ViewedRun) -> str:
    """Which images were looked at, in words."""
    whose = "its training images" if run.elsewhere is None else str(run.elsewhere)
    return f"{len(run.album):,} images ({whose})"
