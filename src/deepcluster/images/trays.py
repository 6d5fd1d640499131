"""Memory shared with the processes that decode: pictures lie there instead of going through pipes.

Through a pipe each byte is copied once more, in small pieces for which two processes wait: in
colours a tenth of what packing an image takes.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Sequence
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

    def __init__(self, descriptor: int) -> None:
        self._bytes = _mapped(descriptor)

    def put(self, at: int, pictures: Sequence[NDArray[np.uint8]]) -> bool:
        """Put pictures side by side, unless they are too large together."""
        if sum(one.nbytes for one in pictures) > SIZE:
            return False
        for one in pictures:
            self._bytes[at : at + one.nbytes] = one.reshape(-1)
            at += one.nbytes
        return True


def _mapped(descriptor: int) -> NDArray[np.uint8]:
    return np.frombuffer(mmap.mmap(descriptor, 0), np.uint8)
