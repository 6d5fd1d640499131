"""Memory shared with the processes that decode: pictures lie there instead of going through pipes.

Through a pipe each byte is copied once more, in small pieces for which two processes wait: in
colours a tenth of what packing an image takes.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

SIZE = 16 * 2**20
"""Bytes of a tray. It takes memory only as far as pictures were put on it."""


class Trays:
    """Equal parts of one memory. Each is lent, and comes back when nobody holds its pictures."""

    def __init__(self, count: int) -> None:
        self.descriptor: int | None = None
        self._free: list[int] = []
        self._bytes = np.empty(0, np.uint8)
        with contextlib.suppress(AttributeError, OSError):  # not every system has such memory
            if count:
                descriptor = os.memfd_create("deepcluster-pictures")
                os.ftruncate(descriptor, count * SIZE)
                self._bytes = _mapped(descriptor)
                self._free = [SIZE * number for number in range(count)]
                self.descriptor = descriptor

    def take(self) -> Tray | None:
        """A tray, or None: all are lent, or the system has none, and pictures need another way."""
        # One step of the interpreter, as is the return: trays come back in any thread at any time.
        with contextlib.suppress(IndexError):
            return Tray(self._bytes, self._free, self._free.pop())
        return None

    def close(self) -> None:
        """Let no further process share it; pictures that are held stay."""
        if self.descriptor is not None:
            os.close(self.descriptor)
        self.descriptor, self._free = None, []


class Tray:
    """One that is lent. Arrays made of it hold it, by numpy's own counting of who uses what."""

    def __init__(self, memory: NDArray[np.uint8], free: list[int], at: int) -> None:
        self.at = at
        self._free = free
        self._bytes = memory[at : at + SIZE]

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """What numpy asks of an object whose memory it is to use."""
        return self._bytes.__array_interface__

    def __del__(self) -> None:
        self._free.append(self.at)


class Counter:
    """The same memory, seen from a process that puts pictures there."""

    def __init__(self, descriptor: int | None) -> None:
        self._bytes = np.empty(0, np.uint8) if descriptor is None else _mapped(descriptor)
        self._at = self._end = 0

    def begin(self, at: int | None) -> None:
        """Go to a tray, or to none."""
        self._at = self._end = 0
        if at is not None:
            self._at, self._end = at, at + SIZE

    def room(self, shape: tuple[int, ...]) -> NDArray[np.uint8]:
        """Memory for the next picture, on the tray while there is place for it."""
        last = self._at + math.prod(shape)
        if last > self._end:
            return np.empty(shape, np.uint8)
        return self._bytes[self._at : last].reshape(shape)

    def put(self, picture: NDArray[np.uint8]) -> bool:
        """Put a picture beside the last one, unless the tray is full; then it stays full."""
        last = self._at + picture.nbytes
        if last > self._end:
            self._end = self._at
            return False
        place = self._bytes[self._at : last]
        if place.ctypes.data != picture.ctypes.data:  # it was not made in the room for it
            place[:] = picture.reshape(-1)
        self._at = last
        return True


def _mapped(descriptor: int) -> NDArray[np.uint8]:
    return np.frombuffer(mmap.mmap(descriptor, 0), np.uint8)
