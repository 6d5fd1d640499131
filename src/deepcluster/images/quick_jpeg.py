"""JPEG pixels by torchvision's decoder: Pillow's own, bit for bit, in four fifths of the time.

Both are libjpeg-turbo. Where this machine's two should differ, or torchvision comes without its
decoder, there is none here, and Pillow decodes.
"""

from __future__ import annotations

import importlib.util
import io
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

Decoder = Callable[[bytes], NDArray[np.uint8]]
"""The RGB pixels (height x width x 3) of a JPEG in memory; raises RuntimeError."""

_RGB = 3  # torchvision.io.ImageReadMode.RGB
_END = b"\xff\xd9"
_loading = threading.Lock()


def pixels(image: Image.Image, data: bytes) -> NDArray[np.uint8] | None:
    """The pixels of a JPEG that Pillow has opened, as they are stored, or None: ask Pillow.

    Only of ordinary files: 8-bit grey or colour, one picture, whole to its last marker. What is
    wrong with any other file is Pillow's to say, so that a verdict never depends on the decoder.
    """
    if image.format != "JPEG" or image.mode not in ("L", "RGB") or not data.endswith(_END):
        return None
    with _loading:  # threads come here at once, and the first one asks both decoders
        decode = _decoder()
    if decode is None:
        return None
    try:
        decoded = decode(data)
    except RuntimeError:
        return None
    return decoded if decoded.shape[1::-1] == image.size else None


@cache
def _decoder() -> Decoder | None:
    """The decoder of torchvision, if it is there and agrees with Pillow."""
    package = importlib.util.find_spec("torchvision")  # importing all of it would take seconds
    folders = (package and package.submodule_search_locations) or []
    libraries = [file for folder in folders for file in Path(folder).glob("image*.so")]
    try:
        for library in libraries:
            torch.ops.load_library(library)
        decode_jpeg = torch.ops.image.decode_jpeg
    except (OSError, AttributeError, RuntimeError):
        return None

    def decode(data: bytes) -> NDArray[np.uint8]:
        # Read only, and said to be: torch warns of arrays that it could write to and must not.
        encoded = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        decoded: NDArray[np.uint8] = decode_jpeg(encoded, _RGB, False).permute(1, 2, 0).numpy()
        return decoded

    return decode if _agrees_with_pillow(decode) else None


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
            except RuntimeError:
                return False
    return True
