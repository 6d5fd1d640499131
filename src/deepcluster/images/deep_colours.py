"""Colours of more than 8 bits in full: of these Pillow keeps the upper 8, or reads none at all.

What reads them is imported where such a file is met: processes that decode begin without it.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from deepcluster.images.unusable import Unusable

_BITS = 258  # the tag's number in TIFF 6.0
_RGB = 2
_UNCHANGED = 0  # torchvision.io.ImageReadMode.UNCHANGED


def levels_of(image: Image.Image) -> NDArray[Any] | None:
    """The numbers of an open image (height x width x 3, or 4 with alpha), or None: ask Pillow."""
    file = cast(BinaryIO | None, getattr(image, "fp", None))
    if image.mode not in ("RGB", "RGBA") or file is None:
        return None
    at = file.tell()
    try:
        if image.format == "TIFF" and max(image.tag_v2.get(_BITS, (8,))) > 8:  # type: ignore[attr-defined]
            return _of_tiff(file, image.tell(), image.width * image.height)
        if image.format == "PNG" and image.tell() == 0 and ";16" in str(image.tile[:1]):  # type: ignore[attr-defined]
            return _of_png(file)
    except (Unusable, RuntimeError):
        return None  # what is wrong with it is Pillow's to say
    finally:
        file.seek(at)
    return None


def unknown_to_pillow(file: BinaryIO, most: int) -> NDArray[Any] | None:
    """The numbers of a TIFF of colours that Pillow does not open (floating point), or None.

    None too where it has more than so many pixels.
    """
    from deepcluster.images.tiff import is_tiff

    file.seek(0)
    if not is_tiff(file.read(4)):
        return None
    try:
        return _of_tiff(file, 0, most)
    except Unusable:
        return None


def _of_tiff(file: BinaryIO, page: int, most: int) -> NDArray[Any] | None:
    from deepcluster.images.tiff import TiffPage

    tiff = TiffPage(file, page)
    if tiff.photometric != _RGB or tiff.bands not in (3, 4) or tiff.turned:
        return None
    if tiff.width * tiff.height > most:
        return None
    bands = None if tiff.bands == 3 or tiff.is_transparent else (0, 1, 2)
    return tiff.region(0, 0, tiff.width, tiff.height, bands)


def _of_png(file: BinaryIO) -> NDArray[np.uint16] | None:
    decode = _png_decoder()
    if decode is None:
        return None
    import torch

    file.seek(0)
    data = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)
    levels: NDArray[np.uint16] = decode(data, _UNCHANGED).permute(1, 2, 0).numpy()
    return levels


@cache
def _png_decoder() -> Callable[[Any, int], Any] | None:
    """That of torchvision's library, which knows 16 bits, if it is there."""
    package = importlib.util.find_spec("torchvision")  # importing all of it would take seconds
    folders = (package and package.submodule_search_locations) or []
    try:
        import torch

        for library in (file for folder in folders for file in Path(folder).glob("image*.so")):
            torch.ops.load_library(library)
        return cast(Callable[[Any, int], Any], torch.ops.image.decode_png)
    except (OSError, ImportError, AttributeError, RuntimeError):
        return None
