"""How a file becomes a picture, as far as that is for the user to say."""

from __future__ import annotations

from typing import NamedTuple

from deepcluster.images.unusable import MAX_PIXELS


class Reading(NamedTuple):
    """What is asked of a decoder."""

    max_pixels: int = MAX_PIXELS
    """Images of more are refused by their header."""
    background: str = "white"
    """What is transparent is laid on this colour, by name or as #rrggbb."""
    accept_truncated: bool = False
    """A JPEG that ends too early is an image whose missing part is grey."""
