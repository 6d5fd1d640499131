"""CRC-32 of many bytes: zlib's, by a kernel where one was compiled when the package was installed.

Nothing but the time depends on it; without a compiler at that time, or on another processor, zlib
does it alone.
"""

from __future__ import annotations

import ctypes
import zlib
from functools import cache

import numpy as np
from numpy.typing import NDArray

from deepcluster.images.compiled import compiled

ARGUMENTS = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_uint32, ctypes.c_char_p)
"""Of `fold` in `checksum.c`."""

_PAYS = 2**14
"""Bytes, below which zlib is as quick: calling the kernel takes some microseconds."""

_ONES = 0xFFFFFFFF


def crc32(data: NDArray[np.uint8], before: int = 0) -> int:
    """The checksum of bytes that follow others.

    Args:
        data: The bytes, without a gap.
        before: The checksum of all before them.
    """
    kernel = _kernel()
    if kernel is None or data.nbytes < _PAYS or not data.flags.c_contiguous:
        return zlib.crc32(data.data, before)
    return _crc32(kernel, data, before)


def _crc32(kernel: ctypes.CDLL, data: NDArray[np.uint8], before: int) -> int:
    folded = ctypes.create_string_buffer(16)
    # Inside, zlib has the complement of a checksum.
    done = kernel.fold(data.ctypes.data, data.nbytes, before ^ _ONES, folded)
    rest = data.reshape(-1)[done:].tobytes()
    return zlib.crc32(folded.raw + rest, _ONES)


@cache
def _kernel() -> ctypes.CDLL | None:
    return compiled("_checksum", _is_usable)


def _is_usable(kernel: ctypes.CDLL) -> bool:
    kernel.fold.argtypes, kernel.fold.restype = ARGUMENTS, ctypes.c_int64
    return bool(kernel.fold_works()) and _agrees(kernel)


def _agrees(kernel: ctypes.CDLL) -> bool:
    """Whether it says of a few texts what zlib says."""
    noise = np.random.default_rng(0).integers(0, 256, 300, dtype=np.uint8)
    texts = [noise[:size] for size in (64, 65, 127, 128, 208, 300)]
    return all(_crc32(kernel, text, 7) == zlib.crc32(text.data, 7) for text in texts)
