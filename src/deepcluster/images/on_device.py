"""The images of a store as batches of crops made on the GPU that trains."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deepcluster.images.crops import (
    CENTRE,
    PAPER,
    CropRange,
    Place,
    RandomView,
    placed_boxes,
    resized,
)
from deepcluster.images.resample import Crops, resample
from deepcluster.images.store import Store
from deepcluster.images.stored import StoredImages
from deepcluster.images.threads import in_order
from deepcluster.runtime.seeds import uniforms

_DRAWS = 16_384  # whose boxes are computed and sent in one go
_MOST_OF_GPU = 0.5  # the rest is for the network and the features
_MOST_OF_MEMORY = 0.5  # the rest is for the mapped file, the features and everybody else
_AHEAD = 3  # batches whose pixels are on their way


class DeviceImages(StoredImages):
    """The usable images of a store, cropped on a GPU; image i is image i of its index.

    The pixels live on the GPU where they fit; else in pinned memory, a copy for each process of a
    machine, from where the GPU fetches every image of a batch itself. Where there is no room for
    that, threads gather batches in pinned memory from the mapped file, of which the system keeps
    in memory what it can.
    """

    def __init__(
        self,
        store: Store,
        size: int,
        device: torch.device,
        live: Literal["auto", "device", "pinned", "host"] = "auto",
        crops: CropRange = PAPER,
    ) -> None:
        super().__init__(store, size, crops)
        self.device = device
        if live == "auto":
            live = _home(store, device)
        self._pixels = _sent(store.pixels, device) if live == "device" else None
        self._pinned = _pinned(store.pixels, device) if live == "pinned" else None
        self.live = "host" if live == "pinned" and self._pinned is None else live

    def seen(
        self,
        ids: Sequence[int],
        batch: int,
        workers: int,
        start: int = 0,
        place: Place = CENTRE,
    ) -> Iterator[Tensor]:
        """The centre crops of the images, uint8, on the GPU, in the order of the ids."""
        left = np.asarray(ids[start:], dtype=np.int64)
        parts = [left[first : first + batch] for first in range(0, len(left), batch)]
        what = ((self._placed(some, place), some) for some in parts)
        for crops, _ in self._cut(parts, what, workers):
            yield crops

    def drawn(
        self,
        batches: Sequence[NDArray[np.int64]],
        image_of_draw: NDArray[np.int64],
        seed: int,
        epoch: int,
        workers: int,
        view: RandomView | None = None,
    ) -> Iterator[tuple[Tensor, NDArray[np.int64]]]:
        """The random crops, uint8, on the GPU, of each batch of draws, and the draws."""
        ids = [image_of_draw[draws] for draws in batches]
        boxes = self._random(batches, image_of_draw, seed, epoch, view or resized(self.crops))
        yield from self._cut(ids, boxes, workers)

    def _random(
        self,
        batches: Sequence[NDArray[np.int64]],
        image_of_draw: NDArray[np.int64],
        seed: int,
        epoch: int,
        view: RandomView,
    ) -> Iterator[tuple[Crops, NDArray[np.int64]]]:
        """What to cut for each batch; computed for many at once."""
        for together in _gathered(batches, _DRAWS):
            draws = np.concatenate(together)
            ids = image_of_draw[draws]
            numbers = uniforms(seed, view.purpose, epoch, draws, view.numbers)
            boxes = view.boxes(self.store.widths[ids], self.store.heights[ids], self.size, numbers)
            limits = boxes.astype(np.int64) if view.is_cut_first else self._wholes(ids)
            all_crops = self._sent_crops(ids, boxes, limits, numbers[:, -1] < 0.5)
            first = 0
            for part in together:
                yield all_crops.rows(slice(first, first + len(part))), part
                first += len(part)

    def _placed(self, ids: NDArray[np.int64], place: Place) -> Crops:
        boxes = placed_boxes(self.store.widths[ids], self.store.heights[ids], self.size, place)
        return self._sent_crops(ids, boxes, self._wholes(ids), np.full(len(ids), place.flipped))

    def _wholes(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Left, top, right and bottom of each image itself."""
        widths, heights = self.store.widths[ids], self.store.heights[ids]
        nothing = np.zeros_like(widths)
        return np.stack([nothing, nothing, widths, heights], axis=1)

    def _sent_crops(
        self,
        ids: NDArray[np.int64],
        boxes: NDArray[np.float64] | NDArray[np.int64],
        limits: NDArray[np.int64],
        flips: NDArray[np.bool_],
    ) -> Crops:
        sides = np.stack([self.store.widths[ids], self.store.heights[ids]], axis=1)
        return Crops(
            torch.from_numpy(self.store.offsets[ids]),
            torch.from_numpy(sides),
            torch.from_numpy(np.ascontiguousarray(boxes, dtype=np.float32)),
            torch.from_numpy(np.ascontiguousarray(limits)),
            torch.from_numpy(flips),
        ).to(self.device)

    def _cut(
        self,
        ids: Sequence[NDArray[np.int64]],
        what: Iterable[tuple[Crops, NDArray[np.int64]]],
        workers: int,
    ) -> Iterator[tuple[Tensor, NDArray[np.int64]]]:
        if self._pixels is not None:
            for crops, part in what:
                yield resample(self._pixels, crops, self.size, self.channels), part
            return
        if self._pinned is not None:
            for some, (crops, part) in zip(ids, what, strict=True):
                here, starts = self._fetched(self._pinned, some)
                yield resample(here, crops.starting_at(starts), self.size, self.channels), part
            return
        with closing(in_order(self._staged, ids, workers, _AHEAD)) as staged:
            for (pixels, starts), (crops, part) in zip(staged, what, strict=True):
                here = pixels.to(self.device, non_blocking=True)
                moved = crops.starting_at(starts.to(self.device, non_blocking=True))
                yield resample(here, moved, self.size, self.channels), part

    def _staged(self, ids: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """The images' bytes one after another where the GPU can fetch them, and their starts."""
        store = self.store
        lengths, starts = self._places(ids)
        pinned = self.device.type == "cuda"
        pixels = torch.empty(int(lengths.sum()), dtype=torch.uint8, pin_memory=pinned)
        rows = pixels.numpy()
        for start, length, begin in zip(starts, lengths, store.offsets[ids], strict=True):
            rows[start : start + length] = store.pixels[begin : begin + length]
        return pixels, torch.from_numpy(starts)

    def _fetched(self, pinned: Tensor, ids: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """The images' bytes one after another on the GPU, fetched by it, and their starts."""
        lengths, starts = self._places(ids)
        here = torch.empty(int(lengths.sum()), dtype=torch.uint8, device=self.device)
        sizes = lengths.tolist()
        for to, begin in zip(here.split(sizes), self.store.offsets[ids].tolist(), strict=True):
            to.copy_(pinned[begin : begin + len(to)], non_blocking=True)
        return here, torch.from_numpy(starts).to(self.device, non_blocking=True)

    def _places(self, ids: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """How long each image is, in bytes, and where it begins, one after another."""
        lengths = self.store.widths[ids] * self.store.heights[ids] * self.channels
        return lengths, np.cumsum(lengths) - lengths


def _gathered(batches: Sequence[NDArray[np.int64]], most: int) -> Iterator[list[NDArray[np.int64]]]:
    """The batches in groups of about `most` draws."""
    together: list[NDArray[np.int64]] = []
    count = 0
    for batch in batches:
        together.append(batch)
        count += len(batch)
        if count >= most:
            yield together
            together, count = [], 0
    if together:
        yield together


def _home(store: Store, device: torch.device) -> Literal["device", "pinned", "host"]:
    """Where the pixels are to live."""
    if device.type != "cuda" or not store.contents.bytes:
        return "host"
    free, _ = torch.cuda.mem_get_info(device)
    if store.contents.bytes < _MOST_OF_GPU * free:
        return "device"
    return "pinned" if fits_pinned(store.contents.bytes) else "host"


def fits_pinned(size: int) -> bool:
    """Whether so many bytes may be pinned, beside what this machine's other processes pin.

    torch takes a power of two.
    """
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return processes * (1 << (size - 1).bit_length()) < _MOST_OF_MEMORY * free


def _pinned(pixels: NDArray[np.uint8], device: torch.device) -> Tensor | None:
    """All pixels where the GPU can fetch them; None where the system does not allow it."""
    try:
        there = torch.empty(len(pixels), dtype=torch.uint8, pin_memory=device.type == "cuda")
    except RuntimeError:  # a limit of the system's; batches are pinned instead
        return None
    there.numpy()[:] = pixels
    return there


def _sent(pixels: NDArray[np.uint8], device: torch.device) -> Tensor:
    """All pixels on the device, copied piece by piece: the file need not fit into memory."""
    there = torch.empty(len(pixels), dtype=torch.uint8, device=device)
    piece = 1 << 28
    for first in range(0, len(pixels), piece):
        part = np.array(pixels[first : first + piece])
        there[first : first + piece] = torch.from_numpy(part).to(device)
    return there
