"""A contact sheet: small pictures in rows under titles, as one PNG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from PIL import Image, ImageDraw, ImageFont, ImageOps

from deepcluster.runtime.run_folder import RunFolder

_SIDE = 120
_CAPTION = 14
_TITLE = 22
_GAP = 6
_ACROSS = 8
MOST = 240
"""Pictures on one sheet."""


class Shown(NamedTuple):
    """A picture with what is written under it."""

    picture: Image.Image
    caption: str
    figure: str = ""
    """Before the caption; it stays whole where the caption is too long."""


class Strip(NamedTuple):
    """Pictures that belong together, and what is written above them."""

    title: str
    shown: Sequence[Shown]


def write_sheet(path: Path, strips: Sequence[Strip]) -> None:
    """Write the strips one below the other."""
    sheet = drawn(strips)
    RunFolder(path.parent).write(path.name, lambda aside: sheet.save(aside, "PNG"))


def drawn(strips: Sequence[Strip]) -> Image.Image:
    """The sheet as a picture."""
    cell = _SIDE + _CAPTION + _GAP
    heights = [_TITLE + cell * -(-len(strip.shown) // _ACROSS) for strip in strips]
    widest = max((min(_ACROSS, len(strip.shown)) for strip in strips), default=1)
    across = max(4, widest)  # room for a title
    sheet = Image.new("RGB", (_GAP + across * (_SIDE + _GAP), _GAP + sum(heights)), "white")
    pen = ImageDraw.Draw(sheet)
    title_font, font = (ImageFont.load_default(size) for size in (14, 10))
    top = _GAP
    for strip, height in zip(strips, heights, strict=True):
        pen.text(
            (_GAP, top), _fitting(pen, strip.title, sheet.width, title_font), "black", title_font
        )
        for at, (picture, caption, figure) in enumerate(strip.shown):
            left = _GAP + at % _ACROSS * (_SIDE + _GAP)
            above = top + _TITLE + at // _ACROSS * cell
            small = ImageOps.contain(picture.convert("RGB"), (_SIDE, _SIDE))
            sheet.paste(small, (left, above + (_SIDE - small.height) // 2))
            lead = f"{figure} " if figure else ""
            room = _SIDE - pen.textlength(lead, font)
            pen.text(
                (left, above + _SIDE), lead + _fitting(pen, caption, room, font), "black", font
            )
        top += height
    return sheet


def _fitting(
    pen: ImageDraw.ImageDraw,
    text: str,
    width: float,
    font: ImageFont.ImageFont | ImageFont.FreeTypeFont,
) -> str:
    """The end of the text, which tells files apart, where not all of it fits."""
    printable = "".join(letter if letter.isprintable() else "?" for letter in text)
    if pen.textlength(printable, font) <= width:
        return printable
    while printable and pen.textlength("..." + printable, font) > width:
        printable = printable[1:]
    return "..." + printable
