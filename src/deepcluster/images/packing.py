"""Packing: every file read and decoded once, its verdict and its pixels written side by side.

After each block of files the pixels are synced and a line of progress says how far they reach, so
that a packing that was killed goes on where it stopped.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from deepcluster.images.crops import DEVIATION
from deepcluster.images.folder import Found, decoded
from deepcluster.images.index import Index, judged
from deepcluster.images.source import Source
from deepcluster.images.store import MANIFEST, Colour, Contents, Pixels, Store
from deepcluster.images.threads import in_order
from deepcluster.runtime import faults
from deepcluster.runtime.errors import DataError, ResumeError
from deepcluster.runtime.run_folder import RunFolder, storage_errors_named

_BLOCK = 128  # files between two lines of progress

# Sobel begins with the mean of the normalised channels, (x_c - mean_c) / deviation_c: the channels
# weighted by the inverse deviation, then one scale and one offset, which `normalize` applies.
GREY = tuple(1 / d / sum(1 / e for e in DEVIATION) for d in DEVIATION)


class _Packed(NamedTuple):
    row: dict[str, Any]
    pixels: NDArray[np.uint8] | None
    """height x width x channels; None where the file is unusable."""


def pack(
    source: Source,
    folder: str | Path,
    colour: Colour,
    how: Pixels,
    workers: int,
    progress: Callable[[int, int], None] | None = None,
) -> Store:
    """The store of a source's images in a folder, made or completed.

    Args:
        source: Where the files are.
        folder: Where the store is to be; one of the same images in the same manner is opened as
            it is, and another one, or a damaged one, is made anew.
        colour: grey is enough for a network that begins with Sobel.
        how: Short side and shape.
        workers: How many threads decode.
        progress: Called with the number of files done and of all files; what it raises ends the
            work, which can be continued.
    """
    target = Path(folder)
    if (existing := _fitting(target, source, colour, how)) is not None:
        return existing
    found = source.find()
    with storage_errors_named(target):
        target.mkdir(parents=True, exist_ok=True)
        (target / MANIFEST).unlink(missing_ok=True)
        settings = json.dumps([colour, how.short_side, how.shape])
        work = partial(_packed, source, colour, how)
        with closing(_Writer(target, settings, found)) as writer:
            left = found[writer.done :]
            with closing(in_order(work, left, workers, 16 * max(1, workers))) as results:
                while block := list(islice(results, _BLOCK)):
                    writer.add(block)
                    if progress is not None:
                        progress(writer.done, len(found))
            writer.finish(colour, how)
    return Store(target)


def _fitting(target: Path, source: Source, colour: Colour, how: Pixels) -> Store | None:
    """The store that is there already, if it is whole and holds these images in this manner."""
    try:
        store = Store(target)
        index = store.index
    except (DataError, ResumeError):
        return None
    contents = store.contents
    same = (contents.colour, contents.short_side, contents.shape)
    if same != (colour, how.short_side, how.shape) or any(index.changes(source)):
        return None
    return store


def kept(image: Image.Image, colour: Colour, how: Pixels) -> NDArray[np.uint8]:
    """The image as the store keeps it (height x width x channels)."""
    if colour == "grey":
        image = image.convert("L", (*GREY, 0.0))
    short = min(image.size)
    side = min(short, how.short_side)
    if how.shape == "square":
        left, top = (image.width - short) // 2, (image.height - short) // 2
        box = (left, top, left + short, top + short)
        image = image.resize((side, side), Image.Resampling.BILINEAR, box=box)
    elif side < short:
        width, height = (max(1, round(side * each / short)) for each in image.size)
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    pixels = np.asarray(image)
    return pixels.reshape(*pixels.shape[:2], -1)


def _packed(source: Source, colour: Colour, how: Pixels, found: Found) -> _Packed:
    row, image = judged(source, found)
    return _Packed(row, None if image is None else kept(image, colour, how))


class _Writer:
    """The files of a store under way."""

    def __init__(self, folder: Path, settings: str, found: list[Found]) -> None:
        self.folder = folder
        self.rows: list[dict[str, Any]] = []
        self.layout: list[tuple[int, int, int]] = []
        self.ends: list[int] = []
        self.checksums: list[int] = []
        self._settings = settings
        self._take_up(found)
        self._pixels = self._opened("pixels.u8.partial", self.ends[-1] if self.ends else 0)
        self._progress = self._opened("progress.jsonl", self._progress_length)

    @property
    def done(self) -> int:
        return len(self.rows)

    def add(self, block: list[_Packed]) -> None:
        """Write the pixels, then the line that vouches for them."""
        start = end = self.ends[-1] if self.ends else 0
        checksum = 0
        layout: list[tuple[int, int, int]] = []
        for _, pixels in block:
            if pixels is not None:
                self._pixels.write(pixels.data)
                checksum = zlib.crc32(pixels.data, checksum)
                layout.append((end, pixels.shape[0], pixels.shape[1]))
                end += pixels.nbytes
        _sync(self._pixels)
        faults.point("pack.block")
        line = {
            "settings": self._settings,
            "end": end,
            "checksum": checksum if end > start else 0,
            "layout": layout,
            "rows": [row for row, _ in block],
        }
        self._progress.write(json.dumps(line).encode() + b"\n")
        _sync(self._progress)
        self._take(line)

    def close(self) -> None:
        """Let go of the files."""
        self._pixels.close()
        self._progress.close()

    def finish(self, colour: Colour, how: Pixels) -> None:
        """Put everything in place, the manifest last."""
        self.close()
        (self.folder / "pixels.u8.partial").replace(self.folder / "pixels.u8")
        index = Index.from_rows(self.rows)
        index.save(self.folder / "index.parquet")
        place = RunFolder(self.folder)
        place.write_array("layout.npy", np.array(self.layout, dtype=np.int64).reshape(-1, 3))
        contents = Contents(
            colour,
            how.short_side,
            how.shape,
            images=len(index),
            bytes=self.ends[-1] if self.ends else 0,
            block_ends=self.ends,
            checksums=self.checksums,
        )
        place.write(MANIFEST, contents.to_json())
        (self.folder / "progress.jsonl").unlink()

    def _take(self, line: dict[str, Any]) -> None:
        self.rows += line["rows"]
        self.layout += [tuple(place) for place in line["layout"]]
        self.ends.append(line["end"])
        self.checksums.append(line["checksum"])

    def _take_up(self, found: list[Found]) -> None:
        """Take what an earlier packing has finished, as long as it is of the same files."""
        self._progress_length = 0
        names = {one.path: one for one in found}
        if (self.folder / "pixels.u8").exists():  # killed between two renames of `finish`
            (self.folder / "pixels.u8").replace(self.folder / "pixels.u8.partial")
        for line, length in _whole_lines(self.folder / "progress.jsonl"):
            rows = line["rows"]
            expected = found[self.done : self.done + len(rows)]
            same = [decoded(row["path"]) for row in rows] == [one.path for one in expected]
            same = same and all(
                (row["size"], row["modified"])
                == (names[decoded(row["path"])].size, names[decoded(row["path"])].modified)
                for row in rows
            )
            written = self.folder / "pixels.u8.partial"
            if not same or line["settings"] != self._settings:
                return
            if not written.exists() or written.stat().st_size < line["end"]:
                return
            self._take(line)
            self._progress_length = length

    def _opened(self, name: str, length: int) -> IO[bytes]:
        """The file, cut to the length that is known to be whole, for writing on."""
        path = self.folder / name
        path.touch()
        os.truncate(path, length)
        return path.open("ab")


def _whole_lines(path: Path) -> Iterator[tuple[dict[str, Any], int]]:
    """The lines of progress that were written to the end, and where each ends."""
    if not path.exists():
        return
    length = 0
    with path.open("rb") as file:
        for text in file:
            length += len(text)
            if not text.endswith(b"\n"):
                return
            try:
                yield json.loads(text), length
            except ValueError:
                return


def _sync(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())
