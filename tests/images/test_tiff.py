"""TIFFs piece by piece beside the arrays they were written from, by tifffile and by Pillow."""

from __future__ import annotations

import io
import struct
from typing import Any

import numpy as np
import pytest
import tifffile
from PIL import Image, TiffImagePlugin

from deepcluster.images.tiff import TiffPage
from deepcluster.images.unusable import Unusable

LAYOUTS: list[dict[str, Any]] = [
    {},
    {"tile": (64, 80)},
    {"planarconfig": "separate"},
    {"planarconfig": "separate", "tile": (64, 64)},
    {"rowsperstrip": 17, "bigtiff": True},
    {"byteorder": ">", "compression": "zlib", "predictor": 2},
    {"compression": "zlib", "predictor": 2, "tile": (64, 64)},
]


def written(levels: np.ndarray, **options: Any) -> io.BytesIO:
    file = io.BytesIO()
    whole = {name: options.pop(name) for name in ("byteorder", "bigtiff") if name in options}
    options = {"planarconfig": "contig", **options} if levels.ndim == 3 else options
    if options.get("planarconfig") == "separate":
        levels = np.moveaxis(levels, -1, 0)
    with tifffile.TiffWriter(file, **whole) as writer:
        writer.write(levels, photometric="minisblack", **options)
    return file


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("kind", ["uint8", "uint16", "int16", "float32"])
@pytest.mark.parametrize("bands", [2, 13])
def test_every_layout_gives_its_numbers(layout: dict[str, Any], kind: str, bands: int) -> None:
    if kind == "float32" and "predictor" in layout:
        pytest.skip("predictor 2 is for whole numbers")
    levels = (np.random.default_rng(0).random((143, 201, bands)) * 200).astype(kind)
    page = TiffPage(written(levels, **layout))
    assert (page.width, page.height, page.bands) == (201, 143, bands)
    assert np.array_equal(page.region(0, 0, 201, 143), levels)
    assert np.array_equal(page.region(10, 20, 190, 130, (1, 0)), levels[20:130, 10:190, [1, 0]])
    assert np.array_equal(page.region(200, 142, 201, 143), levels[142:, 200:])


@pytest.mark.parametrize("how", ["tiff_lzw", "packbits", "tiff_adobe_deflate", "jpeg", "lzma"])
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_every_compression_gives_what_pillow_reads(how: str, mode: str) -> None:
    rough = np.random.default_rng(0).integers(0, 256, (9, 12, 3), dtype=np.uint8)
    image = Image.fromarray(rough).resize((120, 90), Image.Resampling.BICUBIC).convert(mode)
    file = io.BytesIO()
    image.save(file, "TIFF", compression=how)
    expected = np.atleast_3d(np.asarray(Image.open(file)))
    assert np.array_equal(TiffPage(file).region(3, 5, 110, 80), expected[5:80, 3:110])


def tiled_by_hand(pieces: list[bytes]) -> io.BytesIO:
    """128 x 128 pixels in four tiles of YCbCr, each a JPEG."""
    tags = TiffImagePlugin.ImageFileDirectory_v2(b"II*\0\0\0\0\0")
    tags[256] = tags[257] = 128
    tags[258], tags[259], tags[262], tags[277] = (8, 8, 8), 7, 6, 3
    tags[322] = tags[323] = 64
    begins = [8 + sum(map(len, pieces[:number])) for number in range(4)]
    tags[324], tags[325], tags[530] = tuple(begins), tuple(map(len, pieces)), (2, 2)
    for tag in (324, 325):
        tags.tagtype[tag] = 4
    end = 8 + sum(map(len, pieces))
    return io.BytesIO(struct.pack("<2sHI", b"II", 42, end) + b"".join(pieces) + tags.tobytes(end))


def test_tiles_that_are_jpegs_with_common_colours() -> None:
    # As scanners of slides write them: YCbCr, tile by tile.
    smooth = np.random.default_rng(0).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    whole = Image.fromarray(smooth).resize((128, 128), Image.Resampling.BICUBIC)
    pieces = []
    for top in (0, 64):
        for left in (0, 64):
            piece = io.BytesIO()
            whole.crop((left, top, left + 64, top + 64)).save(piece, "JPEG", quality=95)
            pieces.append(piece.getvalue())
    file = tiled_by_hand(pieces)
    pillows = np.asarray(Image.open(file).convert("RGB")).astype(int)
    assert np.abs(TiffPage(file).region(0, 0, 128, 128) - pillows).max() <= 2
    read = TiffPage(file).region(10, 10, 120, 120).astype(int)
    assert np.abs(read - np.asarray(whole)[10:120, 10:120]).mean() < 3


def test_what_is_cut_or_of_another_kind_is_unusable() -> None:
    levels = np.random.default_rng(0).integers(0, 256, (90, 100, 5), dtype=np.uint8)
    for options in ({}, {"compression": "zlib"}):
        whole = written(levels, **options).getvalue()
        page = TiffPage(io.BytesIO(whole))
        page._file = io.BytesIO(whole[: len(whole) // 2])
        with pytest.raises(Unusable, match="truncated"):
            page.region(0, 0, 100, 90)
    with pytest.raises(Unusable, match="damaged"):
        TiffPage(io.BytesIO(b"II*\0" + bytes(100)))
    with pytest.raises(Unusable, match="bits"):
        TiffPage(written(np.zeros((9, 9), np.complex64)))
