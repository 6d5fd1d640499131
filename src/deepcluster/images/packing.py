"""Packing: every file read and decoded once, its verdict and its pixels written side by side.

After each block of files the pixels are synced and a line of progress says how far they reach, so
that a packing that was killed goes on where it stopped.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np

from deepcluster.images.checksum import crc32
from deepcluster.images.crew import judging
from deepcluster.images.decode import Unusable, size_in_header
from deepcluster.images.folder import Found, decoded
from deepcluster.images.index import Index
from deepcluster.images.judging import Judged, Wanted, without_copies, without_small
from deepcluster.images.kept import Colour, Pixels
from deepcluster.images.source import Source
from deepcluster.images.store import MANIFEST, Contents, Store
from deepcluster.runtime import faults
from deepcluster.runtime.errors import DataError, ResumeError
from deepcluster.runtime.progress_lines import on_disk, whole_lines
from deepcluster.runtime.run_folder import RunFolder, storage_errors_named

_PROGRESS = "progress.jsonl"
_BLOCK = 128  # files between two lines of progress


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
        how: Short side, shape, and whether copies are kept.
        workers: How many files are decoded at a time.
        progress: Called with the number of files done and of all files; what it raises ends the
            work, which can be continued.
    """
    target = Path(folder)
    how = replace(how, keep="store", colour=colour)
    if (existing := _fitting(target, source, how)) is not None:
        return existing
    found = source.find()
    with storage_errors_named(target):
        target.mkdir(parents=True, exist_ok=True)
        (target / MANIFEST).unlink(missing_ok=True)
        begun = (target / _PROGRESS).exists()
        settings = json.dumps([colour, asdict(how)])
        with closing(_Writer(target, settings, found)) as writer:
            left = found[writer.done :]
            wanted = Wanted(colour, how)
            with judging(source, left, wanted, workers, apart=begun) as results:
                files: Iterator[Judged] = without_small(results, how.min_side)
                if how.copies == "once":
                    files = without_copies(files, writer.contents())
                while block := list(islice(files, _BLOCK)):
                    writer.add(block)
                    if progress is not None:
                        progress(writer.done, len(found))
            writer.finish(how)
    return Store(target)


def expected_bytes(source: Source, colour: Colour, how: Pixels) -> int:
    """About how many bytes of pixels a store will have, judged by the headers of a few files."""
    found = [one for one in source.find() if one.reason is None]
    sizes = [_kept_bytes(source, one, colour, how) for one in found[:: max(1, len(found) // 50)]]
    return round(sum(sizes) / max(1, len(sizes)) * len(found))


def _kept_bytes(source: Source, found: Found, colour: Colour, how: Pixels) -> float:
    try:
        with source.open(found.path) as file:
            width, height = size_in_header(file, how.reading)
    except (OSError, Unusable):
        return 0.0
    short = min(width, height)
    area = short**2 if how.shape == "square" else width * height
    return area * min(1.0, how.short_side / short) ** 2 * (1 if colour == "grey" else 3)


def _fitting(target: Path, source: Source, how: Pixels) -> Store | None:
    """The store that is there already, if it is whole and holds these images in this manner."""
    try:
        store = Store(target)
        index = store.index
    except (DataError, ResumeError):
        return None
    if store.contents.how != how or any(index.changes(source)):
        return None
    return store


class _Writer:
    """The files of a store under way."""

    def __init__(self, folder: Path, settings: str, found: list[Found]) -> None:
        self.folder = folder
        self.done = 0
        self.ends: list[int] = []
        self.checksums: list[int] = []
        self._settings = settings
        self._take_up(found)
        self._pixels = self._opened("pixels.u8.partial", self.ends[-1] if self.ends else 0)
        self._progress = self._opened(_PROGRESS, self._progress_length)

    def add(self, block: list[Judged]) -> None:
        """Write the pixels, then the line that vouches for them."""
        start = end = self.ends[-1] if self.ends else 0
        checksum = 0
        layout: list[tuple[int, int, int]] = []
        for _, pixels in block:
            if pixels is not None:
                self._pixels.write(pixels.data)
                checksum = crc32(pixels, checksum)
                layout.append((end, pixels.shape[0], pixels.shape[1]))
                end += pixels.nbytes
        on_disk(self._pixels)
        faults.point("pack.block")
        line = {
            "settings": self._settings,
            "end": end,
            "checksum": checksum if end > start else 0,
            "layout": layout,
            "rows": [row for row, _ in block],
        }
        self._progress.write(json.dumps(line).encode() + b"\n")
        on_disk(self._progress)
        self._take(line)

    def close(self) -> None:
        """Let go of the files."""
        self._pixels.close()
        self._progress.close()

    def finish(self, how: Pixels) -> None:
        """Put everything in place, the manifest last."""
        self.close()
        (self.folder / "pixels.u8.partial").replace(self.folder / "pixels.u8")
        place = RunFolder(self.folder)
        faults.point("index.write")
        # From the file, line by line: what is written before is not kept in memory meanwhile.
        place.write("index.parquet", lambda path: Index.write(self._written("rows"), path))
        layout = np.fromiter(self._written("layout"), dtype=np.dtype((np.int64, 3)))
        place.write_array("layout.npy", layout)
        contents = Contents(
            how,
            images=len(layout),
            bytes=self.ends[-1] if self.ends else 0,
            block_ends=self.ends,
            checksums=self.checksums,
        )
        place.write(MANIFEST, contents.to_json())
        (self.folder / _PROGRESS).unlink()

    def contents(self) -> set[str]:
        """The hashes of the images that are written already."""
        return {row["hash"] for row in self._written("rows") if row["reason"] is None}

    def _written(self, what: str) -> Iterator[Any]:
        for line, _ in whole_lines(self.folder / _PROGRESS):
            yield from line[what]

    def _take(self, line: dict[str, Any]) -> None:
        self.done += len(line["rows"])
        self.ends.append(line["end"])
        self.checksums.append(line["checksum"])

    def _take_up(self, found: list[Found]) -> None:
        """Take what an earlier packing has finished, as long as it is of the same files."""
        self._progress_length = 0
        if (self.folder / "pixels.u8").exists():  # killed between two renames of `finish`
            (self.folder / "pixels.u8").replace(self.folder / "pixels.u8.partial")
        for line, length in whole_lines(self.folder / _PROGRESS):
            rows = line["rows"]
            there = [(decoded(row["path"]), row["size"], row["modified"]) for row in rows]
            same = there == [one[:3] for one in found[self.done : self.done + len(rows)]]
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
