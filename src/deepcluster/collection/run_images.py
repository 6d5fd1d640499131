"""The images that a run was made of, as far as they are still to be had."""

from __future__ import annotations

import io
from functools import cached_property
from pathlib import Path

from PIL import Image

from deepcluster.images.decode import Unusable, decode, read
from deepcluster.images.folder import encoded
from deepcluster.images.index import Index
from deepcluster.images.judging import content_hash
from deepcluster.images.shards import Shards
from deepcluster.images.source import Source, is_store, source_of
from deepcluster.images.store import Store
from deepcluster.images.stored import StoredImages
from deepcluster.runtime.errors import DataError, DeepClusterError
from deepcluster.runtime.run_folder import RunFolder


class RunImages:
    """Image i is image i of the run."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self.index = Index.load(folder.verified("index.parquet"))
        self.place = Path(folder.settings["images"])

    def __len__(self) -> int:
        return len(self.index)

    @cached_property
    def names(self) -> list[str]:
        """Every image's path, as clusters.parquet has it."""
        return [encoded(path) for path in self.index.paths]

    def original(self, number: int) -> Image.Image:
        """The picture as it was given, else as the run's store has it."""
        try:
            if self._source is not None:
                return read(self.index.paths[number], self._source)
        except (Unusable, DeepClusterError):
            pass  # moved since, or no longer whole
        return self.small(number)

    def unchanged(self, number: int) -> Image.Image | None:
        """The picture in its file, if that still has the content that was indexed; else None."""
        size, content = (self.index.usable[name][number].as_py() for name in ("size", "hash"))
        path = self.index.paths[number]
        try:
            if self._source is None or not self._is_file(path):
                return None
            with self._source.open(path) as file:
                data = file.read(size + 1)
            same = len(data) == size and content_hash(data) == content
            return decode(io.BytesIO(data))[0] if same else None
        except (OSError, Unusable, DeepClusterError):
            return None

    def stored(self, number: int) -> Image.Image | None:
        """The picture as a store has it, perhaps grey; None where there is no store."""
        return None if self._stored is None else self._stored.picture(number)

    def small(self, number: int) -> Image.Image:
        """The picture as the run's store has it (perhaps grey), else as it was given."""
        if self._stored is not None:
            return self._stored.picture(number)
        where = encoded(str(self.place / self.index.paths[number]))
        try:
            if self._source is not None:
                return read(self.index.paths[number], self._source)
            reason = "not there"
        except Unusable as unusable:
            reason = unusable.reason
        raise DataError(
            f"{where}: {reason}, and {self.folder.store} is not there either; put one of them back"
        )

    def _is_file(self, path: str) -> bool:
        """Whether it may be opened: a pipe in its place would wait for its writer."""
        if isinstance(self._source, Shards):
            return True
        folder = self.place if self.place.is_dir() else self.place.parent
        return (folder / path).is_file()

    @cached_property
    def _source(self) -> Source | None:
        return source_of(self.place) if self.place.exists() and not is_store(self.place) else None

    @cached_property
    def _stored(self) -> StoredImages | None:
        for place in (self.folder.store, self.place):
            if is_store(place):
                store = Store(place)
                if store.index.fingerprint == self.index.fingerprint:
                    return StoredImages(store, 64)
        return None
