"""Why a file is no image that can be used."""

from __future__ import annotations

MAX_PIXELS = 80_000_000


class Unusable(Exception):  # noqa: N818 - a verdict on a file, not a fault of the program
    """The file gives no image; `reason` is short and stable enough to be counted."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class TooLarge(Unusable):
    """An image of more pixels than are asked for."""

    def __init__(self, pixels: int, most: int) -> None:
        super().__init__(
            f"too many pixels ({megapixels(pixels)} > --max-pixels {megapixels(most)}): "
            "deepcluster tile cuts it"
        )
        self.pixels = pixels


def megapixels(pixels: int) -> str:
    """A number of pixels as people say it."""
    return f"{pixels / 1e6:.0f} MP" if pixels >= 10_000_000 else f"{pixels / 1e6:.3g} MP"
