"""Where images come from. An image is known by its path within the source, wherever that is.

Nothing here imports torch: a mistyped path is answered at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol, runtime_checkable

from deepcluster.images import folder
from deepcluster.images.folder import Extent, Found, Seen, find_images, unseen
from deepcluster.images.list_file import SUFFIXES, ListFile
from deepcluster.images.shards import Shards, is_shards
from deepcluster.runtime.errors import DataError


@runtime_checkable
class Source(Protocol):
    """A place with files that may be images, always the same ones in the same order."""

    @property
    def place(self) -> Path:
        """What the user named."""
        ...

    def find(self, seen: Seen = unseen) -> list[Found]:
        """Every candidate once, in an order that does not depend on the file system."""
        ...

    def open(self, path: str) -> BinaryIO:
        """The bytes of one that was found; threads may call it at once.

        Raises OSError, or `Unusable` where a part of a file was meant that is not there.
        """
        ...

    def extent(self, path: str) -> Extent | None:
        """Where the bytes of one lie, for another process to read; None if nowhere on the disk."""
        ...

    def refuse_without_images(self) -> None:
        """Raise, in one sentence, where there is no candidate; returns at the first one."""
        ...


@dataclass(frozen=True)
class Folder:
    """A folder: flat, nested, or one sub-folder per class."""

    place: Path
    follow_links: bool = False
    """Also out of the folder; a link within it is followed in any case."""

    def find(self, seen: Seen = unseen) -> list[Found]:
        """Every image file under the folder."""
        return find_images(self.place, self.follow_links, seen)

    def open(self, path: str) -> BinaryIO:
        """The bytes of one file."""
        return (self.place / path).open("rb")

    def extent(self, path: str) -> Extent:
        """The file."""
        return Extent(str(self.place / path))

    def refuse_without_images(self) -> None:
        """Raise, in one sentence, where the folder has no image; returns at the first one."""
        folder.refuse_without_images(self.place)


class OneFile(ListFile):
    """One image file, as if it were listed."""

    def _rows(self) -> Iterator[tuple[str, str | None]]:
        yield self.place.name, None


def source_of(place: str | Path | Source) -> Source:
    """The source that the user means by a path.

    A packed store is none, since its images are no files any more: ask `is_store` before.
    """
    if not isinstance(place, str | Path):
        return place
    path = Path(place)
    if path.is_dir():
        return Folder(path)
    if is_shards(path):
        return Shards(path)
    return ListFile(path) if path.suffix.lower() in SUFFIXES else Folder(path)


def is_store(place: str | Path) -> bool:
    """Whether this is a folder of images that were packed."""
    return (Path(place) / "store.json").is_file()


def is_half_a_store(place: str | Path) -> bool:
    """Whether this is a folder in which a packing was begun and not ended."""
    return (Path(place) / "progress.jsonl").is_file() and not is_store(place)


def is_picture(place: str | Path) -> bool:
    """Whether this is one image file, by its name."""
    return Path(place).is_file() and folder.extension_of(Path(place).name) in folder.EXTENSIONS


def quick_check(place: str | Path) -> None:
    """Raise, in one sentence, where work on these images cannot even begin."""
    if is_half_a_store(place):
        raise DataError(
            f"{folder.encoded(str(place))} is a store whose packing was interrupted; the same "
            "deepcluster pack IMAGES STORE again completes it"
        )
    if not is_store(place):
        source_of(place).refuse_without_images()
