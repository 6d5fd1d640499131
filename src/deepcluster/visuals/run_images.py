"""The images of a run, wherever they are now: to be looked at by networks and by people."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from deepcluster.images.index import Index
from deepcluster.images.loader import Images
from deepcluster.images.source import is_store, source_of
from deepcluster.images.store import Store
from deepcluster.images.stored import StoredImages
from deepcluster.runtime.errors import DataError, DeepClusterError
from deepcluster.runtime.run_folder import RunFolder
from deepcluster.visuals.thumbnails import colours_of


@dataclass(frozen=True)
class RunImages:
    """Image i is image i of the run."""

    images: Images
    in_colours: Callable[[int], Image.Image | None]

    @staticmethod
    def of(folder: RunFolder, size: int) -> RunImages:
        """From the run's store, from the store it was trained on, or from the files."""
        place = Path(folder.settings["images"])
        if folder.finished:
            folder.verified("index.parquet")  # an imported network has none, and that is said
        index = Index.load(folder.index)
        if is_store(folder.store):
            images: Images = StoredImages(Store(folder.store), size)
        elif is_store(place):
            images = StoredImages(Store(place), size)
        elif place.exists() or place.parent.exists():
            images = Images(source_of(place), index, size)
        else:
            raise DataError(f"the images of {folder.path} are no longer at {place}; put them back")
        if len(images) != len(index):
            raise DataError(f"the images at {place} are not those of {folder.path} any more")
        return RunImages(images, colours_of(place, index))

    @property
    def names(self) -> list[str]:
        """As the run's tables have them."""
        return self.images.names

    def picture(self, number: int) -> Image.Image | None:
        """One image for people, in colours where that can be; None where it has vanished."""
        try:
            grey = self.images.channels == 1
            return (self.in_colours(number) if grey else None) or self.images.picture(number)
        except DeepClusterError:
            return None
