"""Where images come from. An image is known by its path within the source, wherever that is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol, runtime_checkable

from deepcluster.images.folder import Found, find_images


@runtime_checkable
class Source(Protocol):
    """A place with files that may be images, always the same ones in the same order."""

    @property
    def place(self) -> Path:
        """What the user named."""
        ...

    def find(self) -> list[Found]:
        """Every candidate once, in an order that does not depend on the file system."""
        ...

    def open(self, path: str) -> BinaryIO:
        """The bytes of one that was found; raises OSError."""
        ...


@dataclass(frozen=True)
class Folder:
    """A folder: flat, nested, or one sub-folder per class."""

    place: Path

    def find(self) -> list[Found]:
        """Every image file under the folder."""
        return find_images(self.place)

    def open(self, path: str) -> BinaryIO:
        """The bytes of one file."""
        return (self.place / path).open("rb")


def source_of(place: str | Path | Source) -> Source:
    """The source that the user means by a path."""
    if isinstance(place, str | Path):
        return Folder(Path(place))
    return place
