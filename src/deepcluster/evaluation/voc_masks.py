"""Whether a mask of Pascal VOC can be read: its values must be the numbers of classes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from deepcluster.evaluation.voc_objects import CLASSES, NotUsable
from deepcluster.images.decode import opened
from deepcluster.images.unusable import TooLarge, Unusable, megapixels

_NAMES = {0: "background", 255: "border"} | dict(enumerate(CLASSES, 1))
_GREYS_OF_VOC = 2  # black, and that of cars
_DEPTH_AT = 24  # bytes into a PNG, where its first chunk says how many bits a number has


def colour_of(value: int) -> tuple[int, int, int]:
    """What VOC paints a value in: of its bits every third belongs to one channel, lowest first."""
    channels = [0, 0, 0]
    for place in range(8):
        channels[place % 3] |= (value >> place & 1) << (7 - place // 3)
    return channels[0], channels[1], channels[2]


_CLASS_IN = {colour_of(value): value for value in _NAMES}


def refuse_mask(place: Path, size: tuple[int, int]) -> None:
    """Raise `NotUsable` where a mask is not there, of another size or without class numbers."""
    if not place.is_file():
        raise NotUsable("no mask")
    mask = read_mask(place, size)
    if mask.mode == "P" and (mistaken := _mistaken(mask)):
        raise NotUsable("mask without class numbers", mistaken)


def read_mask(place: Path, size: tuple[int, int]) -> Image.Image:
    """A mask of that size, whole, with one number for each pixel; raises `NotUsable`."""
    try:
        with place.open("rb") as file:
            mask = opened(file)
            if mask.format != "PNG":
                raise NotUsable("mask cannot be read", "it is no PNG")
            if mask.size != size:  # before pixels are decoded: there may be very many
                raise NotUsable("mask of another size", f"{mask.size} and not {size}")
            mask.load()  # whole, or it would end the evaluation when it is used
            file.seek(_DEPTH_AT)
            depth = file.read(1)[0]
    except TooLarge as bomb:  # the image itself would be left out if it were as large
        raise NotUsable(
            "mask of another size", f"{megapixels(bomb.pixels)} and not {size}"
        ) from bomb
    except Unusable as unusable:
        raise NotUsable("mask cannot be read", unusable.reason) from unusable
    except (OSError, SyntaxError, ValueError) as error:
        raise NotUsable("mask cannot be read", str(error)) from error
    if mask.mode not in ("P", "L"):
        raise NotUsable("mask without class numbers", f"it is {mask.mode}, not a palette image")
    if mask.mode == "L" and depth < 8:  # such greys are stretched over 0 to 255 as they are read
        raise NotUsable("mask without class numbers", f"its greys have {depth} bits, not 8")
    return mask


def _mistaken(mask: Image.Image) -> str:
    """What is wrong with a mask in VOC's colours whose values are others than VOC's, if it is one.

    Programs that store a picture anew number its colours anew. Black says nothing, since palettes
    are filled up with it, and a ramp of greys has that of cars by chance.
    """
    colours = np.array(mask.getpalette(), dtype=np.uint8).reshape(-1, 3)
    if _is_ramp(colours):
        return ""
    painted = {
        value: (int(red), int(green), int(blue)) for value, (red, green, blue) in enumerate(colours)
    }
    others = {
        value: _CLASS_IN[colour]
        for value, colour in painted.items()
        if _CLASS_IN.get(colour, value) != value and any(colour)
    }
    # Of a whole palette of VOC, nothing; then no pixel need be looked at.
    used = np.unique(np.asarray(mask)).tolist() if others else []
    for value in used:
        if value in others:
            return (
                f"its value {value} has the colour of {_NAMES[others[value]]}: its palette is not "
                "in VOC's order"
            )
    return ""


def _is_ramp(colours: NDArray[np.uint8]) -> bool:
    is_grey = bool((colours == colours[:, :1]).all())
    return is_grey and len(np.unique(colours[:, 0])) > _GREYS_OF_VOC
