"""Why a file is no image that can be used."""

from __future__ import annotations

MAX_PIXELS = 80_000_000


class Unusable(Exception):  # noqa: N818 - a verdict on a file, not a fault of the program
    """The file gives no image; `reason` is short and stable enough to be counted."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def too_large(pixels: int, most: int = MAX_PIXELS) -> Unusable:
    """The verdict on an image of so many pixels."""
    remedy = ": deepcluster tile cuts it" if most == MAX_PIXELS else ""
    return Unusable(f"too many pixels ({pixels / 1e6:.0f} MP > {most / 1e6:.0f} MP){remedy}")
