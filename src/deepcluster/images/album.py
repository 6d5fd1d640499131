"""Images to be looked at by people and by networks, wherever they are now."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from threading import Lock

from PIL import Image

from deepcluster.images.decode import Unusable, decode, read
from deepcluster.images.folder import encoded
from deepcluster.images.index import Index
from deepcluster.images.judging import content_hash
from deepcluster.images.kept import Pixels
from deepcluster.images.loader import Images
from deepcluster.images.selection import Selection, selected
from deepcluster.images.shards import Shards, is_shards
from deepcluster.images.source import Source, is_store, quick_check, source_of
from deepcluster.images.store import Store
from deepcluster.images.stored import StoredImages
from deepcluster.runtime.errors import DataError, DeepClusterError
from deepcluster.runtime.run_folder import RunFolder

_MOST_IN_SHARDS = 200_000  # of more, to find one means to read the headers of all


class Album:
    """Image i is image i of the index: of a run, mostly.

    Args:
        place: Where the images came from.
        index: What is known of them.
        stores: Where their decoded pixels may be.
        size: Side of the square that a network sees.
        how: How files are read.
    """

    def __init__(
        self,
        place: Path,
        index: Index,
        stores: Sequence[Path],
        size: int,
        how: Pixels = Pixels(),  # noqa: B008 - it is frozen
    ) -> None:
        self.place, self.index, self.size = place, index, size
        self._stores = stores
        self._how = how
        self._preparing = Lock()

    @staticmethod
    def of_run(folder: RunFolder, size: int = 64) -> Album:
        """What the run was made of, as far as it is still to be had."""
        place = Path(folder.settings["images"])
        index = Index.load(folder.verified("index.parquet"))
        return Album(place, index, (folder.store, place), size, selection_of(folder))

    @staticmethod
    def of_images(
        place: Path,
        size: int,
        workers: int,
        progress: Callable[[int, int], None] | None = None,
        how: Pixels = Pixels(),  # noqa: B008 - it is frozen
    ) -> Album:
        """Any images: a folder, a list, shards or a packed store."""
        quick_check(place)
        if is_store(place):
            return Album(place, Store(place).index, (place,), size)
        source = selected(source_of(place), how)
        return Album(place, Index.build(source, workers, progress, how), (), size, how)

    def __len__(self) -> int:
        return len(self.index)

    @cached_property
    def names(self) -> list[str]:
        """Every image's path, as clusters.parquet has it."""
        return [encoded(path) for path in self.index.paths]

    @cached_property
    def images(self) -> Images:
        """For a network: batches of pixels."""
        if self._stored is not None:
            return self._stored
        if self._source is None:
            raise DataError(
                f"the images are no longer at {encoded(str(self.place))}; put them back, or say "
                "where they are now: images in the run's settings.json"
            )
        return Images(self._source, self.index, self.size, reading=self._how.reading)

    def prepare(self) -> None:
        """Have ready what every picture needs; of threads that ask at once, one does it."""
        with self._preparing:
            _ = self.index.paths, self._source, self._stored

    def picture(self, number: int) -> Image.Image | None:
        """For people, quickly: in colours where that can be; None where it has vanished."""
        grey = self._stored is not None and self._stored.channels == 1
        try:
            return self.original(number) if grey else self.small(number)
        except DeepClusterError:
            return None

    def original(self, number: int) -> Image.Image:
        """The picture as it was given, else as a store has it."""
        return self._in_colours(number) or self.small(number)

    def unchanged(self, number: int) -> Image.Image | None:
        """The picture in its file, if that still has the content that was indexed; else None."""
        size, content = (self.index.usable[name][number].as_py() for name in ("size", "hash"))
        path = self.index.paths[number]
        try:
            if self._source is None or not self._is_file(path):
                return None
            taken = isinstance(self._source, Selection)  # whose pictures are not files
            with self._source.open(path) as file:
                data = file.read(-1 if taken else size + 1)
            same = (taken or len(data) == size) and content_hash(data) == content
            return decode(io.BytesIO(data), self._how.reading)[0] if same else None
        except (OSError, Unusable, DeepClusterError):
            return None

    def stored(self, number: int) -> Image.Image | None:
        """The picture as a store has it, perhaps grey; None where there is no store."""
        return None if self._stored is None else self._stored.picture(number)

    def small(self, number: int) -> Image.Image:
        """The picture as a store has it (perhaps grey), else as it was given."""
        if self._stored is not None:
            return self._stored.picture(number)
        where = encoded(str(self.place / self.index.paths[number]))
        try:
            if self._source is not None:
                return read(self.index.paths[number], self._source, self._how.reading)
            reason = "not there"
        except Unusable as unusable:
            reason = unusable.reason
        missing = f", and {self._stores[0]} is not there either" if self._stores else ""
        raise DataError(
            f"{where}: {reason}{missing}; put one of them back, or say where the images are now: "
            "images in the run's settings.json"
        )

    def _is_file(self, path: str) -> bool:
        """Whether it may be opened: a pipe in its place would wait for its writer."""
        source = self._source
        if isinstance(source, Selection):
            path, source = source.file_of(path), source.source
        if isinstance(source, Shards):
            return True
        folder = self.place if self.place.is_dir() else self.place.parent
        return (folder / path).is_file()

    @cached_property
    def _in_colours(self) -> Callable[[int], Image.Image | None]:
        return colours_of(self.place, self.index, self._how)

    @cached_property
    def _source(self) -> Source | None:
        there = is_shards(self.place) or self.place.exists()
        return _opened(self.place, self._how) if there else None

    @cached_property
    def _stored(self) -> StoredImages | None:
        for place in self._stores:
            if is_store(place):
                store = Store(place)
                if store.index.fingerprint == self.index.fingerprint:
                    return StoredImages(store, self.size)
        return None


def selection_of(folder: RunFolder) -> Pixels:
    """How the files of a run were read."""
    return Pixels.of(folder.settings["effective"])


def _opened(place: Path, how: Pixels) -> Source | None:
    return None if is_store(place) else selected(source_of(place), how)


def colours_of(place: Path, index: Index, how: Pixels) -> Callable[[int], Image.Image | None]:
    """The function that gives an image in colours from its file, or None where it cannot.

    A grey store is enough to learn from Sobel's edges, and not enough for a person.
    """
    source = _opened(place, how)
    if source is None or (isinstance(source, Shards) and len(index) > _MOST_IN_SHARDS):
        return lambda number: None
    paths = index.paths

    def picture(number: int) -> Image.Image | None:
        try:
            return read(paths[number], source, how.reading)
        except (Unusable, DeepClusterError):
            return None

    return picture
