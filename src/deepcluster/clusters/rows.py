"""Rows wherever they live: in memory, on a GPU, or in a file that is mapped.

Nothing here asks for all of them at once. Blocks come as float32 on the device that computes; while
a GPU works on one block, the next is on its way.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from deepcluster.runtime.errors import UsageError

_ON_THE_WAY = 2**25  # numbers of a block that travels to a GPU


@dataclass(frozen=True)
class Rows:
    """(n, d) rows of this process, read as float32 on `device`."""

    source: Tensor
    """Where they live, in whatever type they have."""
    device: torch.device
    """Where the arithmetic is done."""
    unit: bool = False
    """Whether each is read as its direction: divided by its length, unless that is zero."""
    origin: Tensor | None = None
    """(d,) float64, what is subtracted before they are read as float32, if anything is."""

    @staticmethod
    def of(rows: Any, device: torch.device | None = None) -> Rows:
        """Rows of an array, a mapped file or a tensor; on a GPU they are worked on there."""
        source = rows.detach() if isinstance(rows, Tensor) else _shared(rows)
        stays = device is None or (source.is_cuda and device.type != "cuda")
        return Rows(source, source.device if stays else torch.device(device or "cpu"))

    def __len__(self) -> int:
        return len(self.source)

    @property
    def width(self) -> int:
        """How many numbers a row has."""
        return self.source.shape[1]

    @property
    def resident(self) -> bool:
        """Whether they lie on the device as they are read."""
        same_place = self.source.device.type == self.device.type
        plain = self.source.dtype == torch.float32 and self.source.is_contiguous()
        return same_place and plain and not self.unit and self.origin is None

    def whole(self) -> Tensor:
        """All of them."""
        return self._read(self.source)

    def at(self, index: Tensor) -> Tensor:
        """Those with these numbers."""
        return self._read(self.source[index.to(self.source.device)])

    def directions(self) -> Rows:
        """The same rows, each read as its direction."""
        scaled = replace(self, unit=True)
        if self.source.is_cuda:  # read again and again at the speed of the memory: scaled once
            return Rows(scaled.whole(), self.device)
        return scaled

    def about(self, origin: Tensor) -> Rows:
        """The same rows, each read less `origin`."""
        return replace(self, origin=origin.to(self.device))

    def placed(self, read: Tensor) -> Tensor:
        """What was read, or computed from it, where it lies; in float64 if rows are read moved."""
        return read if self.origin is None else read.double() + self.origin

    def part(self, start: int, count: int) -> Rows:
        """So many consecutive ones."""
        return replace(self, source=self.source[start : start + count])

    def blocks(self, most: int) -> Iterator[tuple[slice, Tensor]]:
        """Consecutive blocks of at most so many rows, with their places."""
        away = self.device.type == "cuda" and not self.source.is_cuda
        if away:
            most = min(most, max(1, _ON_THE_WAY // max(1, self.width)))
        places = [slice(p, p + most) for p in range(0, len(self), most)]
        if not away:
            for place in places:
                yield place, self._read(self.source[place])
            return
        stream = torch.cuda.Stream(self.device)
        with ThreadPoolExecutor(1) as carrier:
            coming = [carrier.submit(self._carried, place, stream) for place in places[:1]]
            for number, place in enumerate(places):
                block = coming.pop().result()
                after = places[number + 1 : number + 2]
                coming = [carrier.submit(self._carried, place, stream) for place in after]
                # Its memory is not given to a later block before the work on it is done.
                block.record_stream(torch.cuda.current_stream(self.device))
                yield place, block

    def _carried(self, place: slice, stream: torch.cuda.Stream) -> Tensor:
        """A block on the GPU; it is there when this returns."""
        with torch.cuda.stream(stream):
            block = self._read(self.source[place].pin_memory())
            stream.synchronize()
        return block

    def _read(self, part: Tensor) -> Tensor:
        part = part.to(self.device, non_blocking=True)
        if self.origin is not None:
            part = part.double() - self.origin
        part = part.float().contiguous()
        return directions(part) if self.unit else part


def directions(rows: Tensor) -> Tensor:
    """Rows of unit length, whatever theirs was; a row of zeros stays."""
    largest = rows.abs().amax(dim=1, keepdim=True)
    scaled = rows / torch.where(largest > 0, largest, 1.0)  # squares neither vanish nor overflow
    return torch.nn.functional.normalize(scaled, dim=1)


def _shared(array: Any) -> Tensor:
    """A tensor on the memory of an array; what may only be read is not written to here either."""
    try:
        numbers = np.asarray(array)
    except ValueError as error:
        raise UsageError(f"the rows are no matrix, so they cannot be grouped: {error}") from error
    if any(stride < 0 for stride in numbers.strides) or not numbers.dtype.isnative:
        numbers = np.array(numbers, dtype=numbers.dtype.newbyteorder("="), order="C")
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")
            return torch.from_numpy(numbers)
    except TypeError as error:
        raise UsageError(
            f"rows of {numbers.dtype} cannot be grouped: give a matrix (rows, columns) of numbers"
        ) from error
