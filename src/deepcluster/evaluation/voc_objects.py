"""What Pascal VOC's annotations say is in an image: classes, boxes, and the verdict on a bad one.

A box is (left, top, right, bottom) in pixels counted from 0, the right and bottom edges exclusive:
VOC's own numbers count from 1 and include the last pixel, so that its (xmin, ymin, xmax, ymax) is
our (xmin - 1, ymin - 1, xmax, ymax). The width is right - left, and the ordinary intersection over
union of such boxes is VOC's, which adds 1 to each side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree
from xml.parsers import expat

import numpy as np

CLASSES = (
    *("aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow"),
    *("diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa"),
    *("train", "tvmonitor"),
)
"""The 20 classes in VOC's order, which is the alphabet's; in a mask, class i is the value i + 1."""

_MOST_BYTES = 1 << 20  # of an annotation; true ones have a few thousand
_SLACK = 1.0  # pixels by which rounding may push a box over the edge


class Box(NamedTuple):
    """Edges in pixels counted from 0; right and bottom are exclusive."""

    left: float
    top: float
    right: float
    bottom: float


@dataclass(frozen=True)
class VocObject:
    """One thing in an image."""

    label: int
    """Its class, a place in `CLASSES`."""
    box: Box
    difficult: bool = False
    """Neither to be found nor to be held against who finds it."""
    truncated: bool = False
    """Whether it goes on beyond its box."""


class NotUsable(Exception):  # noqa: N818 - a verdict on an image, not a fault of the program
    """Why an image is left out."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail


def labels_of(objects: Sequence[VocObject]) -> list[int]:
    """For each class 1 where it is there, 0 where all of it is difficult, else -1."""
    labels = [-1] * len(CLASSES)
    for one in objects:
        labels[one.label] = max(labels[one.label], 0 if one.difficult else 1)
    return labels


def objects_of(place: Path, size: tuple[int, int]) -> tuple[VocObject, ...]:
    """What an annotation says is in an image of that size."""
    root = _parsed(place)
    if (
        stated := tuple(int(_number(root, f"size/{side}")) for side in ("width", "height"))
    ) != size:
        raise NotUsable("annotation of another size", f"{stated} and not {size}")
    objects = tuple(_object(entry, size) for entry in root.findall("object"))
    if not objects:
        raise NotUsable("no object in its annotation")
    return objects


def _object(entry: ElementTree.Element, size: tuple[int, int]) -> VocObject:
    name = (entry.findtext("name") or "").strip()
    if name not in CLASSES:
        raise NotUsable("an object of no class of VOC", repr(name))
    low_x, low_y, high_x, high_y = (
        _number(entry, f"bndbox/{edge}") for edge in ("xmin", "ymin", "xmax", "ymax")
    )
    width, height = size
    said = f"{name} {low_x:g} {low_y:g} {high_x:g} {high_y:g}"
    if high_x < low_x or high_y < low_y:  # equal numbers are one pixel: the last is included
        raise NotUsable("a box without area", said)
    beyond = max(1 - low_x, 1 - low_y, high_x - width, high_y - height)
    box = Box(max(low_x - 1, 0), max(low_y - 1, 0), min(high_x, width), min(high_y, height))
    # One pixel just beyond the edge is within the slack, but nothing of it is left to be found.
    if beyond > _SLACK or box.right <= box.left or box.bottom <= box.top:
        raise NotUsable("a box outside the image", said)
    return VocObject(
        CLASSES.index(name),
        box,
        difficult=_flag(entry, "difficult"),
        # It enters no figure, and some programs write Unspecified.
        truncated=(entry.findtext("truncated") or "").strip() == "1",
    )


def _number(entry: ElementTree.Element, path: str) -> float:
    text = entry.findtext(path)
    try:
        value = float(text or "")
    except ValueError:
        value = float("nan")
    if not np.isfinite(value):
        raise NotUsable("broken annotation", f"{path} is {text!r}")
    return value


def _flag(entry: ElementTree.Element, name: str) -> bool:
    text = (entry.findtext(name) or "0").strip()
    if text not in ("0", "1"):
        raise NotUsable("broken annotation", f"{name} is {text!r}")
    return text == "1"


def _parsed(place: Path) -> ElementTree.Element:
    """The annotation's root; nothing that an XML file may declare is followed or expanded."""
    try:
        if place.stat().st_size > _MOST_BYTES:
            raise NotUsable("broken annotation", "it is larger than 1 MiB")
        data = place.read_bytes()
    except OSError as error:
        raise NotUsable("no annotation", (error.strerror or str(error)).lower()) from error
    builder = ElementTree.TreeBuilder()
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.data
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = _refuse_declarations
    try:
        parser.Parse(data, True)
    except (expat.ExpatError, LookupError, ValueError) as error:  # LookupError: of encodings
        raise NotUsable("broken annotation", str(error)) from error
    return builder.close()


def _refuse_declarations(*_: object) -> None:
    raise NotUsable("broken annotation", "it declares a document type or entities")
