"""Regions of images that may hold an object: read from the user's files, or made once and kept.

What is made lies in the folder of stores, in blocks of images: a block is whole or not there, so
that the same command goes on where it was stopped.
"""

from __future__ import annotations

import hashlib
import zlib
from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from scipy.io import loadmat
from scipy.io.matlab import MatReadError

from deepcluster.evaluation.bench import Bench
from deepcluster.evaluation.boxes import overlaps
from deepcluster.evaluation.detection_map import OVERLAP
from deepcluster.evaluation.region_makers import (
    Maker,
    edition,
    leave_interrupts,
    made_regions,
    opencv_is_there,
)
from deepcluster.evaluation.region_samples import Candidates
from deepcluster.evaluation.voc import VocImage, VocSet
from deepcluster.images.folder import encoded
from deepcluster.runtime import interruption
from deepcluster.runtime.errors import DataError, DeepClusterError, UsageError
from deepcluster.runtime.run_folder import RunFolder

Source = Literal["auto", "opencv", "grouping"]

_BLOCK = 64  # images whose regions are kept in one file
_PROCESSES_PAY = 32  # images, below which they are made before processes have begun
_SLACK = 2.0  # pixels by which a box of a file may be outside of its image


@dataclass(frozen=True)
class Regions:
    """Boxes for every image of a set: `boxes[i]` are those of image i."""

    boxes: list[NDArray[np.float64]]
    source: str
    """Who made them."""
    _candidates: dict[float, list[Candidates]] = field(
        default_factory=dict, repr=False, compare=False
    )

    def candidates(self, images: Sequence[VocImage], lowest: float) -> list[Candidates]:
        """What can be learnt from of each image, sorted once for all detectors that learn from it.

        Args:
            images: Those that these regions are of.
            lowest: The overlap with an object that background has at least.
        """
        if lowest not in self._candidates:
            self._candidates[lowest] = [
                Candidates.of(image, boxes, lowest)
                for image, boxes in zip(images, self.boxes, strict=True)
            ]
        return self._candidates[lowest]

    @property
    def fingerprint(self) -> str:
        """Names these boxes."""
        digest = hashlib.blake2b(digest_size=8)
        for rows in self.boxes:
            digest.update(np.ascontiguousarray(rows).tobytes())
        return digest.hexdigest()

    def chosen(self, mine: VocSet, others: VocSet) -> Regions | None:
        """Those of other images, where all of them are among the images that these belong to."""
        by_name = {image.name: boxes for image, boxes in zip(mine.images, self.boxes, strict=True)}
        if mine.folder != others.folder or not {image.name for image in others.images} <= {
            *by_name
        }:
            return None
        return Regions([by_name[image.name] for image in others.images], self.source)

    def recall(self, images: Sequence[VocImage]) -> float:
        """The share of the objects, difficult ones aside, that some region overlaps by half."""
        found, count = 0, 0
        for rows, image in zip(self.boxes, images, strict=True):
            things = [thing.box for thing in image.objects if not thing.difficult]
            count += len(things)
            if things and len(rows):
                found += int((overlaps(np.array(things), rows).max(axis=1) >= OVERLAP).sum())
        return found / max(1, count)

    def described(self, images: Sequence[VocImage]) -> dict[str, Any]:
        """What a result says of them."""
        return {
            "source": self.source,
            "fingerprint": self.fingerprint,
            "boxes": round(sum(map(len, self.boxes)) / max(1, len(self.boxes)), 1),
            "recall": self.recall(images),
        }


def maker_of(source: Source) -> Maker:
    """Who makes regions: as asked, or selective search where it is installed."""
    there = opencv_is_there()
    if source == "opencv" and not there:
        raise UsageError(
            "--proposals opencv: selective search is not installed; pip install "
            "'deepcluster[proposals]', or use --proposals grouping"
        )
    return "opencv" if there and source != "grouping" else "grouping"


def read_regions(folder: Path, images: VocSet, most: int) -> Regions:
    """The boxes of Fast R-CNN's release: `voc_2007_<set>.mat` in the folder.

    `images` names the images, `boxes` has for each of them top, left, bottom and right, counted
    from 1. Those of trainval serve train and val too.
    """
    file = _mat_file(folder, images.split)
    where = encoded(str(file))
    try:
        content = loadmat(file, variable_names=("boxes", "images"))
        names = [str(np.ravel(cell)[0]) for cell in content["images"].ravel()]
        cells = [
            np.asarray(cell, dtype=np.float64).reshape(-1, 4) for cell in content["boxes"].ravel()
        ]
    except (
        *(OSError, ValueError, TypeError, IndexError, KeyError, NotImplementedError),
        *(MatReadError, zlib.error),  # cut short or damaged
    ) as error:
        why = (str(error) or type(error).__name__).splitlines()[0]
        raise DataError(
            f"{where} is no file of selective-search boxes ({why}); it "
            "needs boxes and images, as MATLAB 5 writes them"
        ) from error
    if len(names) != len(cells):
        raise DataError(f"{where} has boxes of {len(cells):,} images and names {len(names):,}")
    by_name = dict(zip(names, cells, strict=True))
    found = []
    for image in images.images:
        cell = by_name.get(image.name)
        if cell is None or not len(cell):
            raise DataError(f"{where} has no boxes of image {image.name}")
        boxes = cell[:most][:, [1, 0, 3, 2]] - (1, 1, 0, 0)
        size = np.array([image.width, image.height] * 2)
        if not np.isfinite(boxes).all() or (boxes < -_SLACK).any() or (boxes > size + _SLACK).any():
            raise DataError(
                f"{where} has boxes outside of image {image.name} ({image.width} x {image.height} "
                "pixels); are they of images of another size?"
            )
        boxes = boxes.clip(0, size)
        boxes = boxes[(boxes[:, 2:] - boxes[:, :2]).min(axis=1) > 0]
        if not len(boxes):
            raise DataError(f"{where}: every box of image {image.name} is without area")
        found.append(boxes)
    return Regions(found, f"{file.name}")


def _mat_file(folder: Path, split: str) -> Path:
    if not folder.is_dir():
        raise UsageError(f"--boxes {folder}: there is no such folder")
    splits = (split, "trainval") if split in ("train", "val") else (split,)
    for name in splits:
        found = sorted(path for path in folder.glob("*.mat") if path.stem.endswith(f"_{name}"))
        if len(found) > 1:
            raise UsageError(
                f"--boxes {folder}: both {found[0].name} and {found[1].name} are there"
            )
        if found:
            return found[0]
    raise UsageError(f"--boxes {folder}: there is no voc_2007_{splits[-1]}.mat")


def made_once(images: VocSet, maker: Maker, most: int, stores: Path, bench: Bench) -> Regions:
    """The regions that the maker finds, made by the leading process where they are not there."""
    digest = hashlib.blake2b(digest_size=6)
    digest.update(repr([edition(maker), most, images.fingerprint]).encode())
    target = RunFolder(stores / f"regions-{edition(maker)}-{images.split}-{digest.hexdigest()}")
    blocks = [
        (f"block-{start // _BLOCK:05d}.safetensors", images.images[start : start + _BLOCK])
        for start in range(0, len(images), _BLOCK)
    ]
    if bench.world.leads:
        with bench.world.others_waiting(), target.locked():
            missing = [(name, part) for name, part in blocks if _kept(target, name, part) is None]
            if missing:
                _make(missing, maker, most, target, bench)
        bench.world.broadcast_bytes(b"made")
    else:
        bench.world.heard()
    found: list[NDArray[np.float64]] = []
    for name, part in blocks:
        kept = _kept(target, name, part)
        assert kept is not None
        found += kept
    return Regions(found, edition(maker))


def _kept(
    target: RunFolder, name: str, images: Sequence[VocImage]
) -> list[NDArray[np.float64]] | None:
    """The regions of a block, where it is there and whole."""
    path = target.path / name
    try:
        tensors = load_file(path)
        counts, boxes = tensors["counts"], tensors["boxes"]
    except (OSError, SafetensorError, KeyError):
        return None
    if len(counts) != len(images) or counts.sum() != len(boxes):
        return None
    return np.split(boxes.astype(np.float64), np.cumsum(counts)[:-1])


def _make(
    blocks: Sequence[tuple[str, Sequence[VocImage]]],
    maker: Maker,
    most: int,
    target: RunFolder,
    bench: Bench,
) -> None:
    count = sum(len(images) for _, images in blocks)
    every = [image for _, images in blocks for image in images]
    title = f"finding regions ({maker})"
    made = _made_in_order(every, partial(made_regions, maker, most), bench.workers)
    with bench.display.phase(title, count, {}, "regions") as phase, closing(made) as results:
        for name, images in blocks:
            found = []
            for image in images:
                boxes = next(results)
                if not len(boxes):  # an image of a few pixels: all of it is the region
                    boxes = np.array([[0, 0, image.width, image.height]], dtype=np.int16)
                found.append(boxes)
                phase.advance()
                interruption.raise_if_asked()
            tensors: dict[str, NDArray[Any]] = {
                "boxes": np.concatenate(found),
                "counts": np.array([len(boxes) for boxes in found], dtype=np.int64),
            }
            target.write(name, partial(save_file, tensors))


def _made_in_order(
    images: Sequence[VocImage], make: partial[NDArray[np.int16]], workers: int
) -> Generator[NDArray[np.int16], None, None]:
    if len(images) < _PROCESSES_PAY or workers < 2:
        for image in images:
            yield make(np.asarray(image.picture()))
        return
    # Spawned, not forked: a fork beside the threads of torch and a GPU may hang.
    pool = ProcessPoolExecutor(workers, get_context("spawn"), initializer=leave_interrupts)
    waiting: deque[Future[NDArray[np.int16]]] = deque()
    try:
        for image in images:
            waiting.append(pool.submit(make, np.asarray(image.picture())))
            if len(waiting) > 3 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool as error:
        raise DeepClusterError(
            "a process that finds regions ended unexpectedly (too little memory?); the same "
            "command goes on where it was; --workers 1 uses no other process"
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
