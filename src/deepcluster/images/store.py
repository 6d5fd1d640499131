"""A packed store: every usable image decoded once, its pixels in one memory-mapped file.

A folder with `store.json` (what it holds, and the checksum of every block; written last, so that
a store without it is none), `index.parquet` (the verdict on every file), `layout.npy` (where each
image lies and how large it is) and `pixels.u8` (the images one after another, as Pillow has them).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepcluster.images.checksum import crc32
from deepcluster.images.index import Index
from deepcluster.images.kept import Pixels
from deepcluster.runtime.errors import DataError

FORMAT = 1
MANIFEST = "store.json"


@dataclass(frozen=True)
class Contents:
    """What a store holds, as its manifest says."""

    how: Pixels
    """The manner in which it was packed."""
    images: int
    bytes: int
    block_ends: list[int]
    """Where each block of pixels ends, in bytes."""
    checksums: list[int]
    """CRC-32 of each block."""

    def to_json(self) -> str:
        """The manifest's text: flat, without what is the same of every store."""
        found = asdict(self)
        how = found.pop("how")
        del how["keep"]
        return json.dumps({"format": FORMAT, **how, **found}, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Contents:
        """What `to_json` wrote; what an earlier version did not know is at its default."""
        found: dict[str, Any] = json.loads(text)
        if found.pop("format") != FORMAT:
            raise ValueError("written by another version")
        own = {entry.name: found.pop(entry.name) for entry in fields(cls) if entry.name in found}
        return cls(how=Pixels(keep="store", colour=found.pop("colour"), **found), **own)


class Store:
    """An open store; image i is image i of its index."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        try:
            self.contents = Contents.from_json((self.folder / MANIFEST).read_text())
            layout = np.load(self.folder / "layout.npy", allow_pickle=False)
            size = (self.folder / "pixels.u8").stat().st_size
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"{folder} is no whole store ({error}); delete it and pack it again"
            ) from error
        if size != self.contents.bytes or len(layout) != self.contents.images:
            raise DataError(f"{folder} is cut or damaged; delete it and pack it again")
        self.offsets: NDArray[np.int64] = layout[:, 0]
        self.heights: NDArray[np.int64] = layout[:, 1]
        self.widths: NDArray[np.int64] = layout[:, 2]

    def __len__(self) -> int:
        return self.contents.images

    @property
    def channels(self) -> int:
        """One where the store is grey, else three."""
        return 1 if self.contents.how.colour == "grey" else 3

    @cached_property
    def index(self) -> Index:
        """The verdict on every file that was packed or left out."""
        return Index.load(self.folder / "index.parquet")

    @cached_property
    def pixels(self) -> NDArray[np.uint8]:
        """All bytes, memory-mapped."""
        if not self.contents.bytes:
            return np.zeros(0, dtype=np.uint8)
        return np.memmap(self.folder / "pixels.u8", dtype=np.uint8, mode="r")

    def image(self, number: int) -> NDArray[np.uint8]:
        """One image (height x width x channels); a view, nothing is copied."""
        shape = (int(self.heights[number]), int(self.widths[number]), self.channels)
        start = int(self.offsets[number])
        return self.pixels[start : start + shape[0] * shape[1] * shape[2]].reshape(shape)

    def verify(
        self, blocks: range | None = None, progress: Callable[[int, int], None] | None = None
    ) -> None:
        """Raise if a byte, of all blocks or of some, differs from what was packed.

        Args:
            blocks: Those to be read; all if not given.
            progress: Called with the number of blocks done and of all to be read.
        """
        ends = [0, *self.contents.block_ends]
        blocks = range(len(ends) - 1) if blocks is None else blocks
        for done, number in enumerate(blocks, 1):
            start, end, expected = ends[number], ends[number + 1], self.contents.checksums[number]
            if crc32(self.pixels[start:end]) != expected:
                raise DataError(
                    f"{self.folder}/pixels.u8 is damaged in block {number} (bytes {start:,} to "
                    f"{end:,}); delete {self.folder}, and the command that packed it makes it again"
                )
            if progress is not None:
                progress(done, len(blocks))
