"""What Python hands over in place of a path: a list of paths, an array, a dataset, as a source.

An array or a dataset is turned into files in memory, one at a time and without loss, so that it
takes the same way as every other image.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from deepcluster.images.folder import Extent, Found, Seen, unseen
from deepcluster.images.list_file import found_file
from deepcluster.images.source import Source, is_picture, is_store, source_of
from deepcluster.images.store import Store
from deepcluster.runtime.errors import DataError, UsageError


@dataclass(frozen=True)
class Paths:
    """Image files in the order given, which may name one twice: row i is path i."""

    paths: tuple[str, ...]
    place: Path = Path()

    def find(self, seen: Seen = unseen) -> list[Found]:
        """Every path; a file that is missing too."""
        return [found_file(Path(), path) for path in self.paths]

    def open(self, path: str) -> BinaryIO:
        """The bytes of one file."""
        return Path(path).open("rb")

    def extent(self, path: str) -> Extent:
        """The file."""
        return Extent(path)

    def refuse_without_images(self) -> None:
        """Raise, in one sentence, where nothing is listed."""
        if not self.paths:
            raise DataError("the list of images is empty")


@dataclass(frozen=True, eq=False)
class Pictures:
    """Pictures that are in memory, or that a dataset makes; image i has the path "i"."""

    pictures: Any  # len() and [i], which gives a picture or a tuple that begins with one
    place: Path = Path()

    def find(self, seen: Seen = unseen) -> list[Found]:
        """Every picture; the bytes are made when one is opened."""
        return [Found(name, 0, 0) for name in self._names]

    def open(self, path: str) -> BinaryIO:
        """One picture as a PNG file."""
        file = io.BytesIO()
        as_picture(self.pictures[int(path)]).save(file, "PNG", compress_level=1)
        file.seek(0)
        return file

    def extent(self, path: str) -> None:
        """Nowhere: the file is made when it is opened."""

    def refuse_without_images(self) -> None:
        """Raise, in one sentence, where nothing is given."""
        if not self._names:
            raise DataError("there are no images in what was given")

    @cached_property
    def _names(self) -> list[str]:
        digits = len(str(max(0, len(self.pictures) - 1)))
        return [f"{number:0{digits}d}" for number in range(len(self.pictures))]


def opened(given: Any) -> Source | Store:
    """The images that are meant by a path, a list of paths, a picture, an array or a dataset.

    Args:
        given: A folder, one file, a list file, tar shards or a store; or a list of paths or
            pictures; or an array of uint8, N x H x W or N x H x W x C; or anything with `len` and
            `[i]` that gives pictures, or tuples that begin with one.
    """
    if isinstance(given, str | Path):
        return _named(Path(given))
    if isinstance(given, Image.Image):
        return Pictures([given])
    shape = tuple(given.shape) if hasattr(given, "shape") else ()
    in_line = len(shape) == 1 or isinstance(given, Sequence)  # a column of a data frame too
    if in_line and len(given) and all(isinstance(x, str | Path) for x in given):
        return Paths(tuple(str(path) for path in given))
    if shape and len(shape) not in (3, 4):
        raise UsageError(f"an array of shape {shape}: give N x H x W or N x H x W x C, of uint8")
    if len(shape) == 3 and shape[2] <= 4:  # nobody has images so narrow
        raise UsageError(
            f"an array of shape {shape} looks like one picture in colours; give an array "
            "N x H x W x C: array[None] holds this one"
        )
    if hasattr(given, "__len__") and hasattr(given, "__getitem__"):
        return Pictures(given)
    raise UsageError(
        f"no images can be had from a {type(given).__name__}; give a path, a list of paths, an "
        "array N x H x W x C of uint8, or a dataset with a length"
    )


def as_picture(item: Any) -> Image.Image:
    """The picture that an array, a tensor or a dataset's item holds."""
    if isinstance(item, tuple | list):  # with a label, as torch's datasets give it
        item = item[0]
    if isinstance(item, Image.Image):
        return item
    if isinstance(item, str | Path):
        return Image.open(item)
    pixels = np.asarray(item)
    if type(item).__module__.startswith("torch"):
        pixels = _from_tensor(pixels)
    if pixels.dtype != np.uint8:
        raise UsageError(f"an image of {pixels.dtype}: give uint8, from 0 to 255")
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[..., 0]
    if pixels.ndim not in (2, 3) or (pixels.ndim == 3 and pixels.shape[2] not in (2, 3, 4)):
        raise UsageError(f"an image of shape {pixels.shape}: give H x W or H x W x C, C up to 4")
    return Image.fromarray(np.ascontiguousarray(pixels))


def _from_tensor(pixels: NDArray[Any]) -> NDArray[Any]:
    """As an array has it: channels last, bytes. Tensors are C x H x W, floats from 0 to 1."""
    if pixels.ndim == 3 and pixels.shape[0] in (1, 2, 3, 4):
        pixels = pixels.transpose(1, 2, 0)
    if np.issubdtype(pixels.dtype, np.floating):
        if pixels.size and (pixels.min() < 0 or pixels.max() > 1):
            raise UsageError(
                "an image tensor with numbers outside 0 to 1: give images before normalisation"
            )
        pixels = np.rint(pixels * 255).astype(np.uint8)
    return pixels


def _named(place: Path) -> Source | Store:
    if is_store(place):
        return Store(place)
    if is_picture(place):
        return Paths((str(place),), place)
    return source_of(place)
