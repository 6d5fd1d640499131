"""What filters want to see and like best, as blocks of a figure."""

from __future__ import annotations

from collections.abc import Sequence

from PIL import Image

from deepcluster.viewed_run import ViewedRun
from deepcluster.visuals.panels import Block, mosaic, square
from deepcluster.visuals.top_images import TopImages

_SIDE = 64  # of one of nine


def nine_best(run: ViewedRun, top: TopImages, number: int, side: int = _SIDE) -> Image.Image:
    """The nine images that a filter likes best, three by three."""
    ids = top.images[number].tolist()
    return mosaic([run.album.picture(one) for one in ids], across=3, side=side)


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


def in_rows(blocks: Sequence[Block], across: int) -> list[list[Block]]:
    """So many side by side."""
    return [list(blocks[start : start + across]) for start in range(0, len(blocks), across)]


def among(run: ViewedRun) -> str:
    """Which images were looked at, in words."""
    whose = "its training images" if run.elsewhere is None else str(run.elsewhere)
    return f"{len(run.album):,} images ({whose})"
