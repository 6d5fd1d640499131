"""Any images as the network of a run sees them: each file read once, in order, by threads."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from deepcluster.images.crops import look
from deepcluster.images.folder import Found, encoded
from deepcluster.images.judging import Wanted as Manner
from deepcluster.images.judging import examined, judged
from deepcluster.images.kept import Colour, Pixels
from deepcluster.images.on_device import DeviceImages
from deepcluster.images.selection import selected
from deepcluster.images.source import Source
from deepcluster.images.store import Store
from deepcluster.images.stored import StoredImages
from deepcluster.images.threads import in_order
from deepcluster.runtime.errors import DataError, UsageError


@dataclass(frozen=True)
class Preprocessing:
    """From a picture to the pixels that the network of a run takes."""

    size: int
    colour: Colour
    pixels: Pixels

    @classmethod
    def of(cls, effective: dict[str, Any]) -> Preprocessing:
        """That of a run with these settings, by dotted name."""
        pixels = replace(
            Pixels.of(effective),
            keep=effective["pixels.keep"],  # these every version has recorded
            short_side=effective["pixels.short_side"],
            shape=effective["pixels.shape"],
        )
        colour = effective.get("pixels.colour", "auto")  # earlier runs did not say
        if colour == "auto":
            colour = "grey" if effective["network.front"] == "sobel" else "rgb"
        return cls(
            effective["network.input_size"], colour if pixels.keep == "store" else "rgb", pixels
        )

    @property
    def manner(self) -> Manner:
        """What is kept of a picture before it is cut: as in a store, where the run read one."""
        if self.pixels.keep == "store":
            return Manner(self.colour, self.pixels)
        return Manner("rgb", replace(self.pixels, short_side=2**31, shape="aspect"))

    def cut(self, kept: NDArray[np.uint8]) -> Tensor:
        """The centre of what was kept, uint8, channels x size x size."""
        return look(Image.fromarray(kept[..., 0] if self.colour == "grey" else kept), self.size)


class Block(NamedTuple):
    """Some files in order, and the pixels of those that are images."""

    rows: list[dict[str, Any]]
    """Path (printable), size, modified, hash and, where it cannot be used, the reason."""
    crops: Tensor
    """uint8; row j is the j-th of the rows without a reason."""


class Sight(Protocol):
    """Images in a fixed order, to be seen in blocks."""

    def __len__(self) -> int:
        """How many files there are, whether or not they can be used."""
        ...

    def mark(self, number: int) -> list[Any]:
        """What tells a file from another one in its place."""
        ...

    def blocks(self, batch: int, workers: int, start: int = 0) -> Generator[Block, None, None]:
        """All files from `start` on."""
        ...


class FileSight:
    """The files of a source."""

    def __init__(self, source: Source, preprocessing: Preprocessing) -> None:
        self.source = selected(source, preprocessing.pixels)
        self.preprocessing = preprocessing

    @cached_property
    def _found(self) -> list[Found]:
        return self.source.find()

    def __len__(self) -> int:
        return len(self._found)

    def mark(self, number: int) -> list[Any]:
        """Path, size and time of a file."""
        found = self._found[number]
        return [encoded(found.path), found.size, found.modified]

    def blocks(self, batch: int, workers: int, start: int = 0) -> Generator[Block, None, None]:
        """All files from `start` on, each decoded once."""
        seen = in_order(self._seen, islice(self._found, start, None), workers, 2 * batch)
        shape = (0, 1 if self.preprocessing.colour == "grey" else 3, *2 * [self.preprocessing.size])
        with closing(seen):
            while some := list(islice(seen, batch)):
                crops = [crop for _, crop in some if crop is not None]
                pixels = torch.stack(crops) if crops else torch.empty(shape, dtype=torch.uint8)
                yield Block([row for row, _ in some], pixels)

    def _seen(self, found: Found) -> tuple[dict[str, Any], Tensor | None]:
        row, kept = judged(self.source.open, partial(examined, self.preprocessing.manner), found)
        return row, None if kept is None else self.preprocessing.cut(kept)


class StoreSight:
    """The images of a packed store, cropped where the network is."""

    def __init__(self, store: Store, preprocessing: Preprocessing, device: torch.device) -> None:
        if store.channels == 1 and preprocessing.colour == "rgb":
            raise UsageError(
                f"{store.folder} is a grey store and the run's network takes colours; pack the "
                "images again with --colour rgb"
            )
        store.verify()
        size = preprocessing.size
        on_gpu = device.type == "cuda"
        self.images = DeviceImages(store, size, device) if on_gpu else StoredImages(store, size)
        self._table = store.index.table
        self._paths: list[str] = self._table["path"].to_pylist()

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def mark(self, number: int) -> list[Any]:
        """The path of an image."""
        return [self._paths[number]]

    def blocks(self, batch: int, workers: int, start: int = 0) -> Generator[Block, None, None]:
        """All images from `start` on; what was unusable when they were packed is told of too."""
        usable: NDArray[np.int64] = np.flatnonzero(self._table["reason"].is_null().to_numpy())
        before = int(np.searchsorted(usable, start))
        first = start
        with closing(self.images.seen(range(len(usable)), batch, workers, before)) as crops:  # type: ignore[type-var]
            for pixels in crops:
                before += len(pixels)
                end = int(usable[before]) if before < len(usable) else len(self)
                yield Block(self._table.slice(first, end - first).to_pylist(), pixels)
                first = end
        if first < len(self):  # a store of nothing usable, or all of it done
            blank = torch.empty(0, self.images.channels, *2 * [self.images.size], dtype=torch.uint8)
            yield Block(self._table.slice(first).to_pylist(), blank)


def sight_of(
    images: Source | Store, preprocessing: Preprocessing, device: torch.device
) -> FileSight | StoreSight:
    """The images as a network on this device sees them."""
    if isinstance(images, Store):
        return StoreSight(images, preprocessing, device)
    return FileSight(images, preprocessing)


def refuse_any_unusable(blocks: Generator[Block, None, None]) -> Iterator[Tensor]:
    """The pixels of every file; raises at the first that is no image, naming it."""
    with closing(blocks) as all_blocks:
        for block in all_blocks:
            for row in block.rows:
                if row["reason"] is not None:
                    raise DataError(
                        f"{row['path']}: {row['reason']}; leave it out (the verb embed goes on "
                        "without such files and lists them)"
                    )
            yield block.crops
