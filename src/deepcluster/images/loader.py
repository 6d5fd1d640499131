"""The images of an index as batches of pixels, decoded by threads while the network computes."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from deepcluster.images.crops import CENTRE, PAPER, CropRange, Place, RandomView, look, resized
from deepcluster.images.decode import Unusable, read
from deepcluster.images.folder import encoded
from deepcluster.images.index import Index
from deepcluster.images.reading import Reading
from deepcluster.images.source import Source, source_of
from deepcluster.images.threads import in_order
from deepcluster.runtime.errors import DataError
from deepcluster.runtime.seeds import uniforms

_PIECE = 16
"""Images that one thread decodes at a time: small, so that the first batch is there soon."""

_Crops = Callable[[int, Image.Image], Tensor]
"""The crop of an image, given its row in the batch."""


class _Piece(NamedTuple):
    batch: Tensor
    """The whole batch, of which this piece fills the rows from `first` on."""
    first: int
    ids: Sequence[int]
    crops: _Crops
    is_last: bool


class Images:
    """The usable images under a root; image i is row i of the index."""

    def __init__(
        self,
        source: str | Path | Source,
        index: Index,
        size: int,
        crops: CropRange = PAPER,
        reading: Reading = Reading(),  # noqa: B008 - it is frozen
    ) -> None:
        self.source, self.reading = source_of(source), reading
        self.size = size
        self.crops = crops
        self.channels = 3
        self.labels = index.labels
        self._paths = index.paths

    def __len__(self) -> int:
        return len(self._paths)

    @property
    def names(self) -> list[str]:
        """Every image's path relative to the root, as text that any file can hold."""
        return [encoded(path) for path in self._paths]

    def seen(
        self,
        ids: Sequence[int],
        batch: int,
        workers: int,
        start: int = 0,
        place: Place = CENTRE,
    ) -> Iterator[Tensor]:
        """The centre crops of the images, uint8, in the order of the ids.

        Args:
            ids: Which images.
            batch: How many at a time; the last batch may be smaller.
            workers: How many threads decode, at least one.
            start: How many of the ids to leave out because they were seen before.
            place: Where the crop lies, if not in the centre.
        """
        left = ids[start:]
        parts = (left[first : first + batch] for first in range(0, len(left), batch))

        def crop(_row: int, image: Image.Image) -> Tensor:
            return look(image, self.size, place)

        return self._cropped(((part, crop) for part in parts), batch, workers)

    def drawn(
        self,
        batches: Sequence[NDArray[np.int64]],
        image_of_draw: NDArray[np.int64],
        seed: int,
        epoch: int,
        workers: int,
        view: RandomView | None = None,
    ) -> Iterator[tuple[Tensor, NDArray[np.int64]]]:
        """The random crops, uint8, of each batch of draws, and the draws.

        A crop is a function of (seed, epoch, draw): batch, rank and workers do not matter, and an
        image drawn twice gets two crops.

        Args:
            batches: The numbers of the draws that make up each batch.
            image_of_draw: The image that draw d shows.
            seed: The run's.
            epoch: The run's.
            workers: How many threads decode, at least one.
            view: The kind of crop; without one, what the network learns from.
        """
        view = view or resized(self.crops)

        def crops_of(draws: NDArray[np.int64]) -> _Crops:
            numbers = uniforms(seed, view.purpose, epoch, draws, view.numbers)
            return lambda row, image: view.cut(image, self.size, numbers[row].tolist())

        wanted = ((image_of_draw[draws].tolist(), crops_of(draws)) for draws in batches)
        largest = max(map(len, batches), default=0)
        with closing(self._cropped(wanted, largest, workers)) as crops:
            yield from zip(crops, batches, strict=True)

    def _cropped(
        self, batches: Iterable[tuple[Sequence[int], _Crops]], largest: int, workers: int
    ) -> Generator[Tensor, None, None]:
        """The crops of each batch."""
        ahead = 2 * -(-largest // _PIECE) + 2 * workers
        with closing(in_order(self._fill, self._pieces(batches), workers, ahead)) as pieces:
            for piece in pieces:
                if piece.is_last:  # pieces come in order: the others of its batch are filled
                    yield piece.batch

    def picture(self, number: int) -> Image.Image:
        """Image `number`, whole, to be cropped."""
        path = self._paths[number]
        try:
            return read(path, self.source, self.reading)
        except Unusable as unusable:
            where = encoded(str(self.source.place / path))
            raise DataError(
                f"{where}: {unusable.reason}, though it was fine when the images were indexed; "
                "put it back, or start again with --fresh"
            ) from unusable

    def _fill(self, piece: _Piece) -> _Piece:
        # numpy writes in this thread alone; torch would start a team of threads for each copy.
        rows = piece.batch.numpy()
        for row, one in enumerate(piece.ids, piece.first):
            rows[row] = piece.crops(row, self.picture(one)).numpy()
        return piece

    def _pieces(self, batches: Iterable[tuple[Sequence[int], _Crops]]) -> Iterator[_Piece]:
        for ids, crops in batches:
            shape = (len(ids), self.channels, self.size, self.size)
            batch = torch.empty(shape, dtype=torch.uint8)
            for first in range(0, max(1, len(ids)), _PIECE):  # an empty batch has one empty piece
                last = first + _PIECE
                yield _Piece(batch, first, ids[first:last], crops, last >= len(ids))
