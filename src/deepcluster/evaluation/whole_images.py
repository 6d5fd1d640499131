"""Whole images at a given size, in batches of equal shape; no two photographs need be alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from deepcluster.images.decode import (
    Unusable,
    is_turned_by_exif,
    read,
    size_in_header,
    unreadable,
)
from deepcluster.images.source import Source
from deepcluster.images.threads import in_order

LEAST = 64
"""Pixels; a side that is shorter is filled up by repeating the edge: networks need so many."""

_SLACK = 2.0  # pixels by which rounding may push a box over the edge
_WAITING = 4  # batches' worth of images that may wait for others of their shape


class Wanted(NamedTuple):
    """A whole image, or the part of it in a box (left, top, right, bottom; pixels of the file)."""

    path: str
    box: tuple[float, float, float, float] | None = None


@dataclass(frozen=True)
class Batch:
    """Images of one shape, and which of those asked for they are."""

    numbers: list[int]
    pixels: Tensor  # B x 3 x height x width, uint8


@dataclass(frozen=True)
class WholeImages:
    """Images of a source, resized so that the longer side has `size` pixels."""

    source: Source
    size: int

    def batches(
        self,
        wanted: Sequence[Wanted],
        batch: int,
        workers: int,
        unusable: dict[str, str],
    ) -> Iterator[Batch]:
        """Every usable image once; the others go into `unusable` with the reason.

        No more than a few batches are held at a time, however many images there are.
        """
        waiting: dict[tuple[int, int], list[tuple[int, Tensor]]] = {}
        held = 0
        prepared = in_order(self._prepared, wanted, workers, ahead=2 * workers)
        try:
            for number, made in enumerate(prepared):
                if isinstance(made, Unusable):
                    unusable[wanted[number].path] = made.reason
                    continue
                shape = (made.shape[1], made.shape[2])
                waiting.setdefault(shape, []).append((number, made))
                held += 1
                full = len(waiting[shape]) == batch
                if full or held == _WAITING * batch:
                    most = shape if full else max(waiting, key=lambda kind: len(waiting[kind]))
                    held -= len(waiting[most])
                    yield _stacked(waiting.pop(most))
            for alike in waiting.values():
                yield _stacked(alike)
        finally:
            prepared.close()

    def reaching_beyond(self, wanted: Sequence[Wanted]) -> list[Wanted]:
        """Those whose box reaches beyond their image, as far as headers say."""
        found = []
        for one in wanted:
            try:
                with self.source.open(one.path) as file:
                    if one.box is not None and _reaches_beyond(one.box, size_in_header(file)):
                        found.append(one)
            except (OSError, Unusable):
                continue  # it cannot be asked in any case
        return found

    def _prepared(self, wanted: Wanted) -> Tensor | Unusable:
        try:
            if wanted.box is not None and self._is_turned(wanted.path):
                return Unusable("turned by its EXIF tag, and its box is not: save it upright")
            image = read(wanted.path, self.source)
        except Unusable as reason:
            return reason
        try:
            return _pixels(resized(image, self.size, wanted.box))
        except ValueError as error:
            return Unusable(str(error))

    def _is_turned(self, path: str) -> bool:
        try:
            with self.source.open(path) as file:
                return is_turned_by_exif(file)
        except OSError as error:
            raise Unusable(unreadable(error)) from error


def resized(
    image: Image.Image, size: int, box: tuple[float, float, float, float] | None = None
) -> Image.Image:
    """The image with a longer side of `size` pixels, or the part of it in a box.

    The box is cut out of the resized image, so that things have the same scale in both. What of
    the box rounding has pushed outside the image is cut off; one that reaches farther is meant for
    another image, or for this one in another size.
    """
    scale = size / max(image.size)
    width, height = (max(1, round(side * scale)) for side in image.size)
    whole = image.resize((width, height), Image.Resampling.BILINEAR)
    if box is None:
        return whole
    if box[0] >= box[2] or box[1] >= box[3]:
        raise ValueError("its box has no area")
    across, down = width / image.width, height / image.height
    left, top = max(0, round(box[0] * across)), max(0, round(box[1] * down))
    right, bottom = min(width, round(box[2] * across)), min(height, round(box[3] * down))
    if right <= left or bottom <= top:
        raise ValueError("its box lies outside the image")
    if _reaches_beyond(box, image.size):
        raise ValueError("its box reaches beyond the image; is it of another size?")
    return whole.crop((left, top, right, bottom))


def _reaches_beyond(box: tuple[float, float, float, float], size: tuple[int, int]) -> bool:
    return min(box[:2]) < -_SLACK or any(
        edge > side + _SLACK for edge, side in zip(box[2:], size, strict=True)
    )


def _pixels(image: Image.Image) -> Tensor:
    pixels = np.asarray(image)
    down, across = (max(0, LEAST - side) for side in pixels.shape[:2])
    if down or across:
        around = ((down // 2, down - down // 2), (across // 2, across - across // 2), (0, 0))
        pixels = np.pad(pixels, around, mode="edge")
    return torch.from_numpy(pixels.transpose(2, 0, 1).copy())


def _stacked(alike: list[tuple[int, Tensor]]) -> Batch:
    return Batch([number for number, _ in alike], torch.stack([pixels for _, pixels in alike]))
