"""Pictures composed as the paper's figures are: blocks under headings, in rows and columns."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import NamedTuple

from PIL import Image, ImageDraw, ImageFont

from deepcluster.visuals.thumbnails import SIDE, centred_square

_MARGIN = 16
_BETWEEN = 22  # blocks
_CLOSE = 6  # pictures of one block
_GREY = (200, 200, 200)


class Block(NamedTuple):
    """Pictures side by side that belong together, and what is written above them."""

    title: str
    pictures: Sequence[Image.Image]


def laid_out(rows: Sequence[Sequence[Block]], heads: Sequence[str] = ()) -> Image.Image:
    """The blocks on white, row under row; heads stand above the columns."""
    columns = max(len(row) for row in rows)
    widths = [0] * columns
    for row in rows:
        for at, block in enumerate(row):
            across = sum(p.width for p in block.pictures) + _CLOSE * (len(block.pictures) - 1)
            widths[at] = max(widths[at], across)
    title_font, head_font = (ImageFont.load_default(size) for size in (13, 17))
    title = 20 if any(block.title for row in rows for block in row) else 0
    head = 30 if any(heads) else 0
    heights = [title + max(p.height for block in row for p in block.pictures) for row in rows]
    width = 2 * _MARGIN + sum(widths) + _BETWEEN * (columns - 1)
    height = 2 * _MARGIN + head + sum(heights) + _BETWEEN // 2 * (len(rows) - 1)
    page = Image.new("RGB", (width, height), "white")
    pen = ImageDraw.Draw(page)
    lefts = [_MARGIN + sum(widths[:at]) + _BETWEEN * at for at in range(columns)]
    for at, text in enumerate(heads):
        pen.text((lefts[at] + widths[at] / 2, _MARGIN), text, "black", head_font, anchor="ma")
    top = _MARGIN + head
    for row, tall in zip(rows, heights, strict=True):
        for left, wide, block in zip(lefts, widths, row, strict=False):
            if block.title:
                where = (left + wide / 2, top)
                pen.text(where, block.title, (60, 60, 60), title_font, anchor="ma")
            across = left
            for picture in block.pictures:
                page.paste(picture, (across, top + title))
                across += picture.width + _CLOSE
        top += tall + _BETWEEN // 2
    return page


def in_rows(blocks: Sequence[Block], across: int) -> list[list[Block]]:
    """So many side by side."""
    return [list(blocks[start : start + across]) for start in range(0, len(blocks), across)]


def mosaic(pictures: Sequence[Image.Image], across: int, side: int, gap: int = 2) -> Image.Image:
    """Squares edge to edge, row by row."""
    down = -(-len(pictures) // across)
    whole = Image.new("RGB", (across * (side + gap) - gap, down * (side + gap) - gap), "white")
    for place, picture in enumerate(pictures):
        where = (place % across * (side + gap), place // across * (side + gap))
        whole.paste(square(picture, side), where)
    return whole


def strip(pictures: Sequence[Image.Image], side: int = SIDE) -> Image.Image:
    """Squares in one row."""
    return mosaic(pictures, len(pictures), side)


def named_tile(name: str) -> Image.Image:
    """A grey square with the name, for an image that is no longer where it was."""
    tile = Image.new("RGB", (SIDE, SIDE), _GREY)
    text = "\n".join(textwrap.wrap(name[-84:], 14)[-7:])  # the end of a path tells more
    ImageDraw.Draw(tile).text((5, 5), text, (50, 50, 50), ImageFont.load_default(11))
    return tile


def square(picture: Image.Image, side: int) -> Image.Image:
    """The middle of a picture at this size, enlarged smoothly where it is smaller."""
    cut = centred_square(picture.convert("RGB"), side)
    return cut if cut.width == side else cut.resize((side, side), Image.Resampling.BICUBIC)
