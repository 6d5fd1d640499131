"""CRC-32 by the kernel beside zlib's."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepcluster.images import checksum

SOURCE = Path(checksum.__file__).with_name("checksum.c")


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The kernel of this source, wherever the package comes from."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no compiler")
    library = tmp_path_factory.mktemp("kernel") / "_checksum.so"
    words = [compiler, "-O2", "-Wall", "-Werror", "-shared", "-fPIC", str(SOURCE), "-o"]
    subprocess.run([*words, str(library)], check=True, timeout=120)
    kernel = ctypes.CDLL(str(library))
    kernel.fold.argtypes, kernel.fold.restype = checksum.ARGUMENTS, ctypes.c_int64
    if not kernel.fold_works():
        pytest.skip("this processor does not multiply without carry")
    return kernel


@given(st.binary(min_size=64, max_size=700), st.integers(0, 2**32 - 1))
def test_the_kernel_says_what_zlib_says(compiled: ctypes.CDLL, text: bytes, before: int) -> None:
    data = np.frombuffer(text, np.uint8)
    assert checksum._crc32(compiled, data, before) == zlib.crc32(text, before)


def test_every_length_and_place(compiled: ctypes.CDLL) -> None:
    noise = np.random.default_rng(0).integers(0, 256, 400, dtype=np.uint8)
    for first in (0, 1, 15):
        for size in range(64, 380):
            data = noise[first : first + size]
            assert checksum._crc32(compiled, data, 5) == zlib.crc32(data.tobytes(), 5)


@pytest.mark.parametrize("there", [True, False])
def test_parts_one_after_another_are_the_whole(
    compiled: ctypes.CDLL, there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checksum, "_kernel", lambda: compiled if there else None)
    pixels = np.random.default_rng(1).integers(0, 256, (210, 200, 3), dtype=np.uint8)
    whole = zlib.crc32(pixels.tobytes())
    assert checksum.crc32(pixels) == whole
    assert checksum.crc32(pixels[31:], checksum.crc32(pixels[:31])) == whole
    assert checksum.crc32(pixels[:0], whole) == whole
    with pytest.raises((BufferError, ValueError)):
        checksum.crc32(pixels[:, ::2])


def test_a_kernel_that_says_something_else_is_not_used(
    compiled: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert checksum._agrees(compiled)
    right = checksum._crc32
    monkeypatch.setattr(checksum, "_crc32", lambda *asked: right(*asked) ^ 1)
    assert not checksum._agrees(compiled)
