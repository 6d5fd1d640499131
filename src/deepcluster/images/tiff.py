"""A page of a TIFF in pieces: any number of bands, and no more of it in memory than is asked for.

Pillow reads up to four bands, and a compressed page only as a whole. Here tifffile finds the
pieces (strips or tiles), and each one is decompressed alone: by zlib, or by handing Pillow's
libtiff a small TIFF that holds just this piece.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections import OrderedDict
from typing import Any, BinaryIO

import numpy as np
import tifffile
from numpy.typing import NDArray
from PIL import Image

from deepcluster.images.unusable import Unusable

_LARGEST_PIECE = 2**30  # bytes, decompressed
_KEPT = 256 * 2**20  # bytes of pieces that are kept, since neighbours ask for them again
_RAW, _JPEG, _DEFLATE = 1, 7, (8, 32946)
_OTHERS = (5, 32773, 34925, 50000)  # LZW, PackBits, LZMA, Zstandard: streams of bytes
_JPEG_2000 = (33003, 33005, 34712)
_RGB, _YCBCR = 2, 6


def is_tiff(head: bytes) -> bool:
    """Whether a file that begins so is a TIFF, with offsets of 32 bits or of 64."""
    return head[:4] in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")


class TiffPage:
    """One page; raises `Unusable` where it is of a kind that is not read, or damaged."""

    def __init__(self, file: BinaryIO, page: int = 0) -> None:
        self._file = file
        file.seek(0)
        try:
            pages = tifffile.TiffFile(file).pages
            found = pages[page]
        except Exception as error:  # tifffile raises nearly everything
            raise Unusable("damaged or unsupported") from error
        assert isinstance(found, tifffile.TiffPage)
        self._page: Any = found  # whose enumerations are not typed
        self.width, self.height = int(found.imagewidth), int(found.imagelength)
        self.bands = int(found.samplesperpixel)
        self._is_planar = self.bands > 1 and int(found.planarconfig or 1) == 2
        self._kept: OrderedDict[int, NDArray[Any]] = OrderedDict()
        self._refuse_unknown()

    @property
    def photometric(self) -> int:
        """What the numbers mean, as the tag says: 0 and 1 are grey, 2 is RGB."""
        return int(self._page.photometric)

    @property
    def turned(self) -> bool:
        """Whether the first row is not the top, or the first column not the left."""
        return int(self._page.tags.valueof(274, 1)) != 1

    @property
    def is_transparent(self) -> bool:
        """Whether a band beyond the colours says how opaque a pixel is."""
        return bool({int(kind) for kind in self._page.extrasamples} & {1, 2})

    @property
    def colours(self) -> NDArray[np.uint8]:
        """Of a palette: RGB by number."""
        return np.ascontiguousarray((np.asarray(self._page.colormap).T >> 8).astype(np.uint8))

    def region(
        self, left: int, top: int, right: int, bottom: int, bands: tuple[int, ...] | None = None
    ) -> NDArray[Any]:
        """The numbers of a part (height x width x bands), of all bands or of some (from 0)."""
        chosen = tuple(range(self.bands)) if bands is None else bands
        wide, high = self._piece
        across = -(-self.width // wide)
        out = np.empty((bottom - top, right - left, len(chosen)), self._type.newbyteorder("="))
        for row in range(top // high, -(-bottom // high)):
            for column in range(left // wide, -(-right // wide)):
                number = row * across + column
                y, x = row * high, column * wide
                down = slice(max(top, y) - y, min(bottom, y + high) - y)
                over = slice(max(left, x) - x, min(right, x + wide) - x)
                to = out[
                    max(top, y) - top : min(bottom, y + high) - top,
                    max(left, x) - left : min(right, x + wide) - left,
                ]
                for at, band in enumerate(chosen):
                    if self._is_planar:
                        rows = -(-self.height // high)
                        to[..., at] = self._pixels(band * rows * across + number)[down, over, 0]
                    else:
                        to[..., at] = self._pixels(number)[down, over, band]
        return out

    @property
    def _piece(self) -> tuple[int, int]:
        """Width and height of the pieces; the last strip may be shorter, a tile never is."""
        if self._page.is_tiled:
            return int(self._page.tilewidth), int(self._page.tilelength)
        return self.width, min(self.height, int(self._page.rowsperstrip or self.height))

    @property
    def _type(self) -> np.dtype[Any]:
        return np.dtype(self._page.parent.byteorder + self._page.dtype.char)

    def _refuse_unknown(self) -> None:
        page = self._page
        kind = page.dtype
        if kind is None or kind.kind not in "uif" or page.bitspersample != 8 * kind.itemsize:
            raise Unusable(f"TIFF of {page.bitspersample} bits")
        codes = (_RAW, _JPEG, *_DEFLATE, *_OTHERS, *_JPEG_2000)
        if int(page.compression) not in codes or int(page.predictor) not in (1, 2):
            raise Unusable(f"TIFF compressed by {page.compression!r}"[:80])
        wide, high = self._piece
        if wide * high * self.bands * kind.itemsize > _LARGEST_PIECE:
            raise Unusable("TIFF in pieces of more than 1 GiB")

    def _pixels(self, number: int) -> NDArray[Any]:
        """A piece (height x width x its bands), kept for a while."""
        if number not in self._kept:
            self._kept[number] = self._decoded(number)
            while sum(one.nbytes for one in self._kept.values()) > _KEPT and len(self._kept) > 1:
                self._kept.popitem(last=False)
        self._kept.move_to_end(number)
        return self._kept[number]

    def _decoded(self, number: int) -> NDArray[Any]:
        page = self._page
        wide, high = self._piece
        bands = 1 if self._is_planar else self.bands
        if not page.is_tiled:
            rows = -(-self.height // high)
            high = min(high, self.height - (number % rows) * high)
        try:
            self._file.seek(page.dataoffsets[number])
            data = self._file.read(page.databytecounts[number])
            if not data:  # a piece that was never written is blank
                return np.zeros((high, wide, bands), self._type.newbyteorder("="))
            compression = int(page.compression)
            if compression == _JPEG or compression in _JPEG_2000:
                return self._picture(data, compression, wide, high)
            size = high * wide * bands * self._type.itemsize
            raw = _unpacked(data, compression, size)
            if len(raw) < size:
                raise Unusable("truncated")
        except (OSError, ValueError, IndexError, SyntaxError, zlib.error) as error:
            raise Unusable("truncated or damaged") from error
        values = np.frombuffer(raw, self._type, high * wide * bands).reshape(high, wide, bands)
        values = values.astype(self._type.newbyteorder("="))
        if int(page.predictor) == 2:
            np.cumsum(values, axis=1, dtype=values.dtype, out=values)
        return values

    def _picture(self, data: bytes, compression: int, wide: int, high: int) -> NDArray[Any]:
        """A piece that is a picture of its own."""
        if compression == _JPEG:
            bands = 1 if self._is_planar else self.bands
            tables = self._page.jpegtables or b""
            data = _small_tiff(
                data, wide, high, _JPEG, bands, self.photometric, tables, self._subsampling
            )
        image: Image.Image = Image.open(io.BytesIO(data), formats=("TIFF", "JPEG2000"))
        if self.photometric == _YCBCR and image.mode == "YCbCr":
            image = image.convert("RGB")
        pixels = np.atleast_3d(np.asarray(image))
        if pixels.shape[0] < high or pixels.shape[1] < wide:
            raise Unusable("truncated or damaged")
        return pixels

    @property
    def _subsampling(self) -> tuple[int, int]:
        value = self._page.tags.valueof(530, (2, 2))
        return int(value[0]), int(value[1])


def _unpacked(data: bytes, compression: int, size: int) -> bytes:
    """The bytes of a piece, at most `size` of them."""
    if compression == _RAW:
        return data[:size]
    if compression in _DEFLATE:
        return zlib.decompressobj().decompress(data, size)
    # As one row of grey pixels: to these compressions a piece is nothing but bytes.
    small = _small_tiff(data, size, 1, compression, 1, 1)
    return Image.open(io.BytesIO(small), formats=("TIFF",)).tobytes()


def _small_tiff(
    data: bytes,
    width: int,
    height: int,
    compression: int,
    bands: int,
    photometric: int,
    tables: bytes = b"",
    subsampling: tuple[int, int] = (2, 2),
) -> bytes:
    """A TIFF of one strip of 8-bit numbers, that is `data` as it is."""
    entries: list[tuple[int, str, tuple[int, ...] | bytes]] = [
        (256, "I", (width,)),
        (257, "I", (height,)),
        (258, "H", (8,) * bands),
        (259, "H", (compression,)),
        (262, "H", (photometric if bands > 1 else 1,)),
        (273, "I", (8,)),
        (277, "H", (bands,)),
        (278, "I", (height,)),
        (279, "I", (len(data),)),
    ]
    if tables:
        entries.append((347, "B", tables))
    if photometric == _YCBCR and bands == 3:
        entries.append((530, "H", subsampling))
    behind = 8 + len(data) + len(data) % 2
    extra = b""
    start = behind + 2 + 12 * len(entries) + 4
    directory = struct.pack("<H", len(entries))
    for tag, kind, values in entries:
        packed = bytes(values) if kind == "B" else struct.pack(f"<{len(values)}{kind}", *values)
        code = {"B": 7, "H": 3, "I": 4}[kind]
        if len(packed) > 4:
            place = struct.pack("<I", start + len(extra))
            extra += packed + bytes(len(packed) % 2)
        else:
            place = packed.ljust(4, b"\0")
        directory += struct.pack("<HHI", tag, code, len(values)) + place
    head = struct.pack("<2sHI", b"II", 42, behind)
    return head + data + bytes(len(data) % 2) + directory + bytes(4) + extra
