"""An image as a store keeps it: its short side and shape, grey or in colours.

All of it in whole numbers, so that a store has the same bytes on every machine. torch is imported
only where no kernel takes its place: the processes that decode begin at once without it, and small.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import ImageColor

from deepcluster.images import shrink
from deepcluster.images.reading import Reading
from deepcluster.images.shrink import Room, new_room
from deepcluster.images.unusable import MAX_PIXELS
from deepcluster.runtime.errors import UsageError

Colour = Literal["grey", "rgb"]
Copies = Literal["keep", "once"]
Frames = Literal["first", "all"]

MEAN = (0.485, 0.456, 0.406)
DEVIATION = (0.229, 0.224, 0.225)
"""Of ImageNet's training images, per channel, on the scale 0 to 1."""

# Sobel begins with the mean of the normalised channels, (x_c - mean_c) / deviation_c: the channels
# weighted by the inverse deviation, then one scale and one offset, which `normalize` applies.
GREY = tuple(1 / d / sum(1 / e for e in DEVIATION) for d in DEVIATION)

# In 65,536ths; the first is for a channel in the lowest byte, the others for one in the second.
_SHARES = tuple(round(weight * 65_536) for weight in GREY)
_WEIGHTS = (np.uint32(_SHARES[0] << 8), np.uint32(_SHARES[1]), np.uint32(_SHARES[2]))
_FIRST, _SECOND, _BYTE, _HALF = (np.uint32(number) for number in (0xFF, 0xFF00, 8, 1 << 23))


@dataclass(frozen=True)
class Pixels:
    """How images are kept for training."""

    keep: Literal["store", "files"] = "store"
    """store: decoded once into the run folder. files: decoded anew at every look (slow)."""

    short_side: int = 256
    """Short side of the images in the store, in pixels; smaller images are not enlarged."""

    shape: Literal["aspect", "square"] = "aspect"
    """aspect: the whole image. square: its centre."""

    colour: Literal["auto", "grey", "rgb"] = "auto"
    """auto: grey where the network begins with Sobel, which makes no difference to it, else rgb."""

    copies: Copies = "keep"
    """keep: every file is an image. once: of files with the same content only the first is one."""

    frames: Frames = "first"
    """Of an animation, or a TIFF or DICOM of several pages: first, or all, each an image."""

    min_side: int = 1
    """Images whose short side has fewer pixels are left out."""

    bands: str | None = None
    """Of a TIFF of more than three bands: which are red, green and blue, such as 4,3,2; or one."""

    max_pixels: int = MAX_PIXELS
    """Images of more pixels are left out before they are decoded; deepcluster tile cuts them."""

    background: str = "white"
    """What is transparent is laid on this colour: a name, or #rrggbb."""

    follow_links: bool = False
    """Whether links are followed that lead out of the folder of images."""

    accept_truncated: bool = False
    """Whether a JPEG that is cut short is used, with what is missing in grey."""

    def refuse_impossible(self) -> None:
        """Raise, in one sentence, where no image could be read so."""
        if self.max_pixels < 1:
            raise UsageError(f"--max-pixels {self.max_pixels}: use at least 1")
        colour = self.background.lower()
        if colour not in ImageColor.colormap and not re.fullmatch("#[0-9a-f]{6}", colour):
            raise UsageError(
                f"--background {self.background}: give a colour by name, such as black, or as "
                "#rrggbb"
            )

    @property
    def reading(self) -> Reading:
        """What of this a decoder is asked."""
        return Reading(*(getattr(self, name) for name in Reading._fields))

    @classmethod
    def of(cls, effective: Mapping[str, Any]) -> Pixels:
        """Those of a run with these settings, by dotted name; an earlier run has not all."""
        names = {f"pixels.{entry.name}": entry.name for entry in fields(cls)}
        return cls(**{own: effective[name] for name, own in names.items() if name in effective})


def kept(
    pixels: NDArray[np.uint8], colour: Colour, how: Pixels, room: Room = new_room
) -> NDArray[np.uint8]:
    """The RGB image (height x width x 3) as the store keeps it (height x width x channels).

    Where a kernel makes it, that is in the memory that `room` gives; else it is elsewhere.
    """
    height, width = pixels.shape[:2]
    short = min(height, width)
    side = min(short, how.short_side)
    if how.shape == "square":
        top, left = (height - short) // 2, (width - short) // 2
        pixels = pixels[top : top + short, left : left + short]
    if side < short:
        down, across = (max(1, round(side * each / short)) for each in pixels.shape[:2])
        if shrink.is_there():
            shares = _SHARES if colour == "grey" else None
            return shrink.shrunk(pixels, down, across, shares, room)
        pixels = resized(pixels, down, across)
    return grey(pixels) if colour == "grey" else np.ascontiguousarray(pixels)


def resized(pixels: NDArray[np.uint8], height: int, width: int) -> NDArray[np.uint8]:
    """The image in another size, antialiased: Pillow's bilinear, but for one level here and there.

    By torch, which has vector instructions for it.
    """
    import torch
    import torch.nn.functional as F

    pixels = np.require(pixels, requirements=["C", "W"])  # torch wants arrays that it may write
    # The batch is made by torch: numpy's strides of a batch of one would miss the fast way.
    batch = torch.from_numpy(pixels)[None].permute(0, 3, 1, 2)
    result = F.interpolate(batch, (height, width), mode="bilinear", antialias=True)
    return np.ascontiguousarray(result[0].permute(1, 2, 0).numpy())


def grey(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The mean of the channels weighted by `GREY`, rounded."""
    height, width = pixels.shape[:2]
    last = height * width - 1
    # A pixel is read as the four bytes that begin with it: one pass where channels would be three.
    colours = np.empty(last + 1, dtype=np.uint32)
    colours[:last] = np.ndarray((last,), "<u4", np.ascontiguousarray(pixels), strides=(3,))
    colours[last] = int.from_bytes(pixels[-1, -1].tobytes(), "little")
    # Each product is that of one channel times 2 ** 24, and all of them together fit into 32 bits.
    total = (colours & _FIRST) * _WEIGHTS[0]
    second = (colours & _SECOND) * _WEIGHTS[1]
    total += second
    np.right_shift(colours, _BYTE, out=second)
    second &= _SECOND
    second *= _WEIGHTS[2]
    total += second
    total += _HALF
    total >>= np.uint32(24)
    return total.astype(np.uint8).reshape(height, width, 1)


def load() -> None:
    """Load all that `kept` may need, before memory is limited."""
    if not shrink.is_there():
        resized(np.zeros((2, 2, 3), dtype=np.uint8), 1, 1)
