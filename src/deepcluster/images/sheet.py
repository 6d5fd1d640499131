"""An image of any size, in parts: what is too large to be decoded as a whole.

A TIFF is read piece by piece; every other format has to be decoded whole, up to a limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any, BinaryIO, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from deepcluster.images.decode import decode, size_in_header, stretched, window_of
from deepcluster.images.reading import Reading
from deepcluster.images.selection import chosen_of
from deepcluster.images.tiff import TiffPage, is_tiff
from deepcluster.images.unusable import MAX_PIXELS, TooLarge, Unusable, megapixels

WHOLE = 400_000_000
"""Pixels of an image that is decoded as a whole, at four bytes each."""

_PATCHES, _PATCH = 8, 256  # by which the window of a large image is found: 8 x 8 of 256 pixels
_WHITE_IS_ZERO, _BLACK_IS_ZERO, _RGB, _PALETTE, _CMYK, _YCBCR = 0, 1, 2, 3, 5, 6


class Sheet(Protocol):
    """An image whose size is known; raises `Unusable` where a part cannot be had."""

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
        ...

    def part(self, left: int, top: int, right: int, bottom: int) -> Image.Image:
        """A part of it, RGB or grey."""
        ...


def sheet_of(file: BinaryIO, bands: tuple[int, ...] | None = None) -> Sheet:
    """The image in an open file; only its header is read yet.

    Args:
        file: It must stay open.
        bands: Of a TIFF of more than three, which are wanted, counted from 1.
    """
    head = file.read(4)
    file.seek(0)
    if is_tiff(head):
        page = TiffPage(file)
        if page.bands > 4 and bands is None:
            raise Unusable(f"TIFF of {page.bands} bands: choose three with --bands")
        if bands is not None and page.bands > 3:
            return _TiffSheet(page, chosen_of(page, bands))
        if page.width * page.height > MAX_PIXELS:
            return _TiffSheet(page, None)
    return _WholeSheet(file)


class _WholeSheet:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        try:
            with _large_ones():
                self.size = size_in_header(file, Reading(max_pixels=WHOLE))
        except TooLarge as error:
            reason = f"too many pixels ({megapixels(error.pixels)} > {megapixels(WHOLE)})"
            raise Unusable(reason) from error

    @cached_property
    def _image(self) -> Image.Image:
        self._file.seek(0)
        with _large_ones():
            return decode(self._file, Reading(max_pixels=WHOLE))[0]

    def part(self, left: int, top: int, right: int, bottom: int) -> Image.Image:
        return self._image.crop((left, top, right, bottom))


class _TiffSheet:
    def __init__(self, page: TiffPage, bands: tuple[int, ...] | None) -> None:
        self._page = page
        self._bands = bands
        self.size = page.width, page.height
        if page.turned:
            raise Unusable("large TIFF that is stored turned or mirrored")
        known = (_WHITE_IS_ZERO, _BLACK_IS_ZERO, _RGB, _PALETTE, _CMYK, _YCBCR)
        if bands is None and page.photometric not in known:
            raise Unusable(f"large TIFF of colours of kind {page.photometric}")

    def part(self, left: int, top: int, right: int, bottom: int) -> Image.Image:
        levels = self._levels(left, top, right, bottom)
        if self._bands is not None:
            return Image.fromarray(levels[..., 0] if levels.shape[2] == 1 else levels)
        kind = self._page.photometric
        if kind == _PALETTE:
            return Image.fromarray(self._page.colours[levels[..., 0]])
        if kind == _CMYK and levels.shape[2] == 4:
            return Image.fromarray(levels, "CMYK").convert("RGB")
        if levels.shape[2] < 3:
            grey = levels[..., 0]
            return Image.fromarray(255 - grey if kind == _WHITE_IS_ZERO else grey)
        if levels.shape[2] == 4 and self._page.is_transparent:
            colour = Image.fromarray(levels, "RGBA")
            paper = Image.new("RGBA", colour.size, "white")
            return Image.alpha_composite(paper, colour).convert("RGB")
        return Image.fromarray(np.ascontiguousarray(levels[..., :3]))

    def _levels(self, left: int, top: int, right: int, bottom: int) -> NDArray[np.uint8]:
        values = self._page.region(left, top, right, bottom, self._bands)
        return values if values.dtype == np.uint8 else stretched(values, self._window)

    @cached_property
    def _window(self) -> tuple[float, float]:
        """One for all of the image, so that parts of it can be compared: by patches all over it."""
        width, height = self.size
        patches: list[NDArray[Any]] = []
        for down in np.linspace(0, max(0, height - _PATCH), _PATCHES).astype(int).tolist():
            for over in np.linspace(0, max(0, width - _PATCH), _PATCHES).astype(int).tolist():
                box = (over, down, min(width, over + _PATCH), min(height, down + _PATCH))
                patches.append(self._page.region(*box, self._bands).ravel())
        return window_of(np.concatenate(patches))


@contextmanager
def _large_ones() -> Iterator[None]:
    """Pillow has a limit of its own, which is lower."""
    before, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
    try:
        yield
    finally:
        Image.MAX_IMAGE_PIXELS = before
