"""HEIC photographs, as phones take them, by pillow-heif where the extra [heif] is installed.

They come upright: how such a picture is turned is for the file's own boxes to say, which the
library obeys, and not for EXIF, which it therefore gives as turned already.
"""

from __future__ import annotations

from typing import BinaryIO

from PIL import Image

from deepcluster.images.folder import READS_HEIF
from deepcluster.images.unusable import Unusable

_CUT = ("end of file", "size too small", "cannot read full")


def opened(file: BinaryIO) -> Image.Image:
    """The image in an open file, whose header was read; raises SyntaxError where it is damaged."""
    if not READS_HEIF:
        raise Unusable("HEIC: pip install 'deepcluster[heif]' reads it")
    import pillow_heif

    pillow_heif.options.DECODE_THREADS = 1  # files are decoded side by side already
    image: Image.Image = pillow_heif.HeifImageFile(file)
    return image


def is_cut(error: Exception) -> bool:
    """Whether the library complains of a file that ends too early."""
    return any(sign in str(error).lower() for sign in _CUT)
