"""A small Pascal VOC devkit in the true format: what is drawn is what its files say."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from deepcluster.evaluation.voc import BORDER
from deepcluster.evaluation.voc_objects import CLASSES

Drawn = tuple[str, tuple[int, int, int, int], bool]
"""Class, box as VOC counts (from 1, inclusive) and whether it is difficult."""

SPLITS = {"train": 20, "val": 20, "test": 20}


def write_devkit(
    root: Path,
    counts: dict[str, int] | None = None,
    *,
    year: int = 2007,
    size: tuple[int, int] = (96, 80),
    suffix: str = ".jpg",
    class_sets: bool = True,
) -> Path:
    """VOCdevkit/VOC<year> under the root, and its path.

    Image number i of a split shows class i (modulo 20) and class i + 7 in boxes that do not
    overlap, each class as stripes of its own colour and direction on noise; every fifth image also
    has a difficult object of class i + 3. Every second image has a mask.
    """
    folder = root / f"VOCdevkit/VOC{year}"
    for name in ("JPEGImages", "Annotations", "SegmentationClass"):
        (folder / name).mkdir(parents=True)
    for name in ("Main", "Segmentation"):
        (folder / "ImageSets" / name).mkdir(parents=True)
    randomness = np.random.default_rng(year)
    members: dict[str, dict[str, list[Drawn]]] = {}
    number = 0
    for split, count in (counts or SPLITS).items():
        members[split] = {}
        for place in range(count):
            number += 1
            name = f"{number:06d}"
            objects = _objects(place, size, randomness)
            members[split][name] = objects
            _draw(folder, name, objects, size, suffix, randomness, masked=place % 2 == 0)
            annotate(folder, name, objects, size, suffix)
    if "train" in members and "val" in members:
        members["trainval"] = {**members["train"], **members["val"]}
    for split, images in members.items():
        _write_sets(folder, split, images, class_sets)
    return folder


def annotate(
    folder: Path, name: str, objects: Sequence[Drawn], size: tuple[int, int], suffix: str = ".jpg"
) -> None:
    """Write an image's XML as VOC has it."""
    entries = "".join(
        f"""	<object>
		<name>{kind}</name>
		<pose>Unspecified</pose>
		<truncated>{int(box[0] == 1)}</truncated>
		<difficult>{int(difficult)}</difficult>
		<bndbox>
			<xmin>{box[0]}</xmin>
			<ymin>{box[1]}</ymin>
			<xmax>{box[2]}</xmax>
			<ymax>{box[3]}</ymax>
		</bndbox>
		<part>
			<name>head</name>
			<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>2</xmax><ymax>2</ymax></bndbox>
		</part>
	</object>
"""
        for kind, box, difficult in objects
    )
    (folder / f"Annotations/{name}.xml").write_text(
        f"""<annotation>
	<folder>{folder.name}</folder>
	<filename>{name}{suffix}</filename>
	<size>
		<width>{size[0]}</width>
		<height>{size[1]}</height>
		<depth>3</depth>
	</size>
	<segmented>0</segmented>
{entries}</annotation>
"""
    )


def _objects(place: int, size: tuple[int, int], randomness: np.random.Generator) -> list[Drawn]:
    width, height = size
    left = int(randomness.integers(1, width // 8))
    top = int(randomness.integers(1, height // 6))
    middle = width // 2
    drawn: list[Drawn] = [
        (CLASSES[place % 20], (left, top, middle - 2, height - 4), False),
        (CLASSES[(place + 7) % 20], (middle + 2, top + 3, width, height - height // 4), False),
    ]
    if place % 5 == 0:
        box = (middle + 2, height - height // 4 + 2, width - 2, height)
        drawn.append((CLASSES[(place + 3) % 20], box, True))
    return drawn


def _draw(
    folder: Path,
    name: str,
    objects: Sequence[Drawn],
    size: tuple[int, int],
    suffix: str,
    randomness: np.random.Generator,
    *,
    masked: bool,
) -> None:
    width, height = size
    pixels = randomness.normal(128, 15, (height, width, 3))
    mask = np.zeros((height, width), np.uint8)
    y, x = np.mgrid[:height, :width]
    for kind, (left, top, right, bottom), _ in objects:
        label = CLASSES.index(kind)
        inside = (slice(top - 1, bottom), slice(left - 1, right))
        angle = np.pi * (label % 5) / 5
        wave = np.sin((x * np.cos(angle) + y * np.sin(angle)) * 2 * np.pi / (5 + 2 * (label // 5)))
        pixels[inside] += 80 * wave[inside][..., None] * _colour(label)
        mask[inside] = label + 1
        for edge in (top - 1, bottom - 1):
            mask[edge, left - 1 : right] = BORDER
        for edge in (left - 1, right - 1):
            mask[top - 1 : bottom, edge] = BORDER
    image = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
    image.save(folder / f"JPEGImages/{name}{suffix}")
    if masked:
        palette = Image.fromarray(mask)
        # Without its 256 colours Pillow would write one bit for a pixel.
        palette.putpalette([level for level in range(256) for _ in range(3)])
        palette.save(folder / f"SegmentationClass/{name}.png")


def _colour(label: int) -> NDArray[np.float64]:
    turn = 2 * np.pi * label / len(CLASSES) + np.array([0, 2, 4]) * np.pi / 3
    return 0.6 + 0.4 * np.cos(turn)


def _write_sets(folder: Path, split: str, images: dict[str, list[Drawn]], class_sets: bool) -> None:
    sets = folder / "ImageSets"
    (sets / f"Main/{split}.txt").write_text("".join(f"{name}\n" for name in images))
    masked = [name for name in images if (folder / f"SegmentationClass/{name}.png").is_file()]
    (sets / f"Segmentation/{split}.txt").write_text("".join(f"{name}\n" for name in masked))
    if not class_sets:
        return
    for kind in CLASSES:
        lines = []
        for name, objects in images.items():
            there = [not difficult for one, _, difficult in objects if one == kind]
            label = -1 if not there else int(any(there))
            lines.append(f"{name} {label:2d}\n")
        (sets / f"Main/{kind}_{split}.txt").write_text("".join(lines))
