"""JPEG pixels by simplejpeg: Pillow's own, bit for bit, in three quarters of the time.

Both are libjpeg-turbo. Where the two on this machine should differ, Pillow decodes.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from functools import cache

import numpy as np
import simplejpeg
from numpy.typing import NDArray
from PIL import Image

Decoder = Callable[[bytes], NDArray[np.uint8]]
"""The RGB pixels (height x width x 3) of a JPEG in memory; raises ValueError."""

_END = b"\xff\xd9"
_SCAN, _JFIF = 0xDA, 0xE0
_SAY_NOTHING_OF_THE_PICTURE = frozenset(  # but how it is encoded
    [0xDB, 0xC4, 0xDD, 0xFE, 0xC0, 0xC2]  # tables, restarts, comments, frames (whole, in passes)
)
_MODES = {"Gray": "L", "YCbCr": "RGB"}
_first = threading.Lock()


def plain(data: bytes, most: int) -> tuple[NDArray[np.uint8], str] | None:
    """Pixels and mode of a JPEG of which no header needs a reader of its own, or None: ask Pillow.

    That is an ordinary file, as for `pixels`, with nothing that could turn it or say more of its
    colours: no EXIF, no profile, no mark of an application.

    Args:
        data: The content of the file, whatever it is.
        most: Pixels, above which it is not decoded.
    """
    if not data.endswith(_END) or not _is_plain(data) or (decode := _decoder()) is None:
        return None
    try:
        height, width, colours, _ = simplejpeg.decode_jpeg_header(data)
        if height * width > most or colours not in _MODES:
            return None
        return decode(data), _MODES[colours]
    except ValueError:
        return None


def pixels(image: Image.Image, data: bytes) -> NDArray[np.uint8] | None:
    """The pixels of a JPEG that Pillow has opened, as they are stored, or None: ask Pillow.

    Only of ordinary files: 8-bit grey or colour, one picture, whole to its last marker. What is
    wrong with any other file is Pillow's to say, so that a verdict never depends on the decoder.
    """
    if image.format != "JPEG" or image.mode not in ("L", "RGB") or not data.endswith(_END):
        return None
    if (decode := _decoder()) is None:
        return None
    try:
        decoded = decode(data)
    except ValueError:
        return None
    return decoded if decoded.shape[1::-1] == image.size else None


def _is_plain(data: bytes) -> bool:
    if not data.startswith(b"\xff\xd8\xff\xe0\x00\x10JFIF\x00"):
        return False
    at = 20  # behind the one segment of that length
    while at + 4 <= len(data) and data[at] == 0xFF:
        kind = data[at + 1]
        if kind == _SCAN:
            return True
        if kind not in _SAY_NOTHING_OF_THE_PICTURE:
            return False
        at += 2 + int.from_bytes(data[at + 2 : at + 4])
    return False


def _decoder() -> Decoder | None:
    """The decoder, if it agrees with Pillow."""
    with _first:  # threads come here at once, and the first one asks both
        return _decode if _agrees_with_pillow(_decode) else None


def _decode(data: bytes) -> NDArray[np.uint8]:
    return simplejpeg.decode_jpeg(data)


@cache
def _agrees_with_pillow(decode: Decoder) -> bool:
    """Whether a few small pictures come out the same, to the bit."""
    noise = np.random.default_rng(0).integers(0, 256, (41, 57, 3), dtype=np.uint8)
    smooth = Image.fromarray(noise[:6, :8]).resize((57, 41), Image.Resampling.BICUBIC)
    for picture in (Image.fromarray(noise), smooth, smooth.convert("L")):
        for progressive in (False, True):
            file = io.BytesIO()
            picture.save(file, "JPEG", quality=80, progressive=progressive)
            expected = np.asarray(Image.open(file).convert("RGB"))
            try:
                if not np.array_equal(decode(file.getvalue()), expected):
                    return False
            except ValueError:
                return False
    return True
