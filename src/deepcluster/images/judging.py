"""One file: what the index says of it, and its pixels as a store keeps them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deepcluster.images.decode import TOO_LITTLE_MEMORY, Unusable, decode_pixels, unreadable
from deepcluster.images.folder import Found, encoded
from deepcluster.images.kept import Colour, Pixels, kept
from deepcluster.images.shards import LARGEST
from deepcluster.images.shrink import Room, new_room

COPY = "a copy of a file before it"
"""The reason against a file that is a usable image, where each content is wanted once."""


SMALL = "smaller than --min-side"
"""The same, where small images are not wanted."""


class Judged(NamedTuple):
    """A file that was read."""

    row: dict[str, Any]
    """Of the index; the id is still missing."""
    pixels: NDArray[np.uint8] | None
    """height x width x channels; None where the file is unusable, or no pixels were wanted."""


class Wanted(NamedTuple):
    """The manner in which files are read and pixels are to be kept."""

    colour: Colour | None
    """None: no pixels are kept."""
    how: Pixels


Examine = Callable[[bytes], Judged]
"""The content of a file to the part of its row that the content decides, and its pixels."""


def judged(opened: Callable[[str], BinaryIO], examine: Examine, found: Found) -> Judged:
    """What the index says of a file, and its pixels.

    Args:
        opened: The bytes of a path; raises OSError or `Unusable`.
        examine: What judges them.
        found: The file.
    """
    row: dict[str, Any] = {
        "path": encoded(found.path),
        "size": found.size,
        "modified": found.modified,
        "label": None if found.label is None else encoded(found.label),
        "reason": found.reason,
    }
    if found.reason is None and found.size > LARGEST:
        row["reason"] = f"larger than {LARGEST / 2**30:.0f} GiB"
    if row["reason"] is not None:
        return Judged(row, None)
    try:
        with opened(found.path) as file:
            data = file.read()
    except OSError as error:
        return Judged(row | {"reason": unreadable(error)}, None)
    except Unusable as unusable:  # a frame or a band that is not there
        return Judged(row | {"reason": unusable.reason}, None)
    about, pixels = examine(data)
    return Judged(row | about, pixels)


def examined(wanted: Wanted, data: bytes, room: Room = new_room) -> Judged:
    """What the content of a file decides.

    Args:
        wanted: How it is read, and pixels are to be kept.
        data: The content.
        room: Memory in which the pixels may be made.
    """
    about: dict[str, Any] = {"hash": content_hash(data)}
    try:
        pixels, mode = decode_pixels(data, reading=wanted.how.reading)
        small = None if wanted.colour is None else kept(pixels, wanted.colour, wanted.how, room)
    except Unusable as unusable:
        return Judged(about | {"reason": unusable.reason}, None)
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "alloc" not in str(error):  # torch has no other word
            raise
        return Judged(about | {"reason": TOO_LITTLE_MEMORY}, None)
    about |= {"mode": mode, "height": pixels.shape[0], "width": pixels.shape[1]}
    return Judged(about, small)


def without_small(files: Iterable[Judged], least: int) -> Iterator[Judged]:
    """The files in their order, each whose short side has fewer pixels made unusable."""
    for file in files:
        row = file.row
        if row["reason"] is None and min(row["width"], row["height"]) < least:
            yield Judged(row | {"reason": SMALL}, None)
        else:
            yield file


def without_copies(files: Iterable[Judged], seen: set[str]) -> Iterator[Judged]:
    """The files in their order, each that holds what one before it held made unusable.

    Args:
        files: What was judged.
        seen: The contents of the files before them; those of these are added.
    """
    for file in files:
        if file.row["reason"] is None:
            if file.row["hash"] in seen:
                yield Judged(file.row | {"reason": COPY}, None)
                continue
            seen.add(file.row["hash"])
        yield file


def content_hash(data: bytes) -> str:
    """The name of a content."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()
