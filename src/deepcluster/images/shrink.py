"""The kernel that makes images smaller, where one was compiled when the package was installed.

It gives the bytes that torch and `kept.grey` give, so that nothing but the time depends on it.
Without a compiler at that time, or without AVX2 now, there is none.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

from deepcluster.images.compiled import compiled

Room = Callable[[tuple[int, ...]], NDArray[np.uint8]]
"""Gives memory for a picture of a shape."""

ARGUMENTS: tuple[type[ctypes.c_void_p | ctypes.c_int64], ...] = (
    ctypes.c_void_p,
    *(ctypes.c_int64,) * 3,
    *(ctypes.c_void_p,) * 4,
)
"""Of `shrink` in `shrink.c`."""


class _Axis(ctypes.Structure):
    """How the pixels of one axis are made of those there were; `shrink.c` has the same."""

    _fields_ = (
        ("size", ctypes.c_int64),
        ("taps", ctypes.c_int64),
        ("precision", ctypes.c_int64),
        ("starts", ctypes.c_void_p),
        ("counts", ctypes.c_void_p),
        ("weights", ctypes.c_void_p),
    )


def new_room(shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """New memory for a picture."""
    return np.empty(shape, dtype=np.uint8)


def shrunk(
    pixels: NDArray[np.uint8],
    height: int,
    width: int,
    shares: tuple[int, ...] | None,
    room: Room = new_room,
) -> NDArray[np.uint8]:
    """An image smaller in both axes; ask `is_there` before.

    Args:
        pixels: height x width x 3.
        height: How many pixels are to be left.
        width: The same across.
        shares: Of each channel in grey, in 65,536ths, below a half; None: the channels stay.
        room: The memory in which it is made.
    """
    kernel = _kernel()
    assert kernel is not None
    return _shrunk(kernel, pixels, height, width, shares, room)


def _shrunk(
    kernel: ctypes.CDLL,
    pixels: NDArray[np.uint8],
    height: int,
    width: int,
    shares: tuple[int, ...] | None,
    room: Room = new_room,
) -> NDArray[np.uint8]:
    if pixels.strides[1:] != (3, 1) or pixels.strides[0] < 0:
        pixels = np.ascontiguousarray(pixels)
    across, down = _axis(pixels.shape[1], width), _axis(pixels.shape[0], height)
    result = room((height, width, 1 if shares else 3))
    failed = kernel.shrink(
        pixels.ctypes.data,
        *pixels.shape[:2],
        pixels.strides[0],
        ctypes.byref(across[0]),
        ctypes.byref(down[0]),
        None if shares is None else (ctypes.c_int32 * 3)(*shares),
        result.ctypes.data,
    )
    if failed:
        raise MemoryError
    return result


def is_there() -> bool:
    """Whether there is a kernel, for this processor."""
    return _kernel() is not None


@cache
def _kernel() -> ctypes.CDLL | None:
    return compiled("_shrink", _is_usable)


def _is_usable(kernel: ctypes.CDLL) -> bool:
    kernel.shrink.argtypes = ARGUMENTS
    return bool(kernel.shrink_works()) and _agrees(kernel)


def _agrees(kernel: ctypes.CDLL) -> bool:
    """Whether it makes of a few pictures what they become step by step."""
    noise = np.random.default_rng(0).integers(0, 256, (53, 67, 3), dtype=np.uint8)
    shares = (20_000, 30_000, 15_536)
    for picture in (noise, noise // 128 * 255):
        for size in ((52, 66), (31, 40), (5, 60)):
            expected = by_numpy(picture, *size)
            grey = (expected @ np.array(shares) + 32_768) >> 16
            if not np.array_equal(_shrunk(kernel, picture, *size, None), expected):
                return False
            if not np.array_equal(_shrunk(kernel, picture, *size, shares)[..., 0], grey):
                return False
    return True


def by_numpy(pixels: NDArray[np.uint8], height: int, width: int) -> NDArray[np.uint8]:
    """What the kernel does, in words that are easier to read, and slow."""
    for axis, size in ((1, width), (0, height)):  # across first, as torch does it
        rule, (starts, _, weights) = _axis(pixels.shape[axis], size)
        weights = weights.astype(np.int64).reshape((size, -1, *(2 - axis) * (1,)))
        total = np.int64(0)
        for tap in range(rule.taps):
            inside = np.minimum(starts + tap, pixels.shape[axis] - 1)  # beyond, the weight is 0
            total = total + np.take(pixels, inside, axis) * weights[:, tap]
        rounded = (total + (1 << (rule.precision - 1))) >> rule.precision
        pixels = np.clip(rounded, 0, 255).astype(np.uint8)
    return pixels


@lru_cache(maxsize=1024)
def _axis(before: int, after: int) -> tuple[_Axis, tuple[NDArray, ...]]:
    """What the kernel needs to know, and the arrays to which it points."""
    starts, counts, weights = triangles(before, after)
    precision = _precision(weights.max())
    whole = np.zeros((after, -(-weights.shape[1] // 4) * 4), dtype=np.int16)
    whole[:, : weights.shape[1]] = np.floor(weights * 2**precision + 0.5)
    arrays = (starts.astype(np.int32), counts.astype(np.int32), whole)
    at = [array.ctypes.data for array in arrays]
    return _Axis(after, whole.shape[1], precision, *at), arrays


def triangles(before: int, after: int) -> tuple[NDArray, NDArray, NDArray]:
    """First pixel, number of pixels and weights of each pixel of a smaller axis.

    The weights fall linearly to nothing at the distance of one new pixel, and sum to one.
    """
    scale = before / after
    centres = scale * (np.arange(after) + 0.5)
    starts = np.maximum((centres - scale + 0.5).astype(np.int64), 0)
    counts = np.minimum((centres + scale + 0.5).astype(np.int64), before) - starts
    places = np.arange(counts.max())
    distances = (places + starts[:, None] - centres[:, None] + 0.5) * (1 / scale)
    weights = np.maximum(1 - np.abs(distances), 0) * (places < counts[:, None])
    total = np.zeros(after)
    for column in weights.T:  # in this order, since torch rounds in this order
        total += column
    return starts, counts, weights / total[:, None]


def _precision(largest: float) -> int:
    """Bits behind the point, so that the largest weight still fits into 16 with its sign."""
    return next((bits for bits in range(22) if int(0.5 + largest * 2 ** (bits + 1)) >= 2**15), 22)
