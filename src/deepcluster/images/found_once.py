"""A source that is looked through once, however often it is asked what it has."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from deepcluster.images.folder import Extent, Found, Seen, unseen
from deepcluster.images.source import Source


@dataclass(eq=False)
class FoundOnce:
    """A source as it was when it was looked through first; of millions, that takes a while."""

    source: Source
    _found: list[Found] | None = field(default=None, init=False, repr=False)
    _others: Counter[str] = field(default_factory=Counter, init=False, repr=False)

    @property
    def place(self) -> Path:
        """What the user named."""
        return self.source.place

    def find(self, seen: Seen = unseen) -> list[Found]:
        """Every candidate; only the first time, something is told of each."""
        if self._found is None:
            others: Counter[str] = Counter()

            def noted(kind: str | None) -> None:
                if kind is not None:
                    others[kind] += 1
                seen(kind)

            self._found, self._others = self.source.find(noted), others
        return self._found

    @property
    def others(self) -> Counter[str]:
        """How many files are no candidates, by kind."""
        self.find()
        return self._others

    def open(self, path: str) -> BinaryIO:
        """The bytes of one that was found."""
        return self.source.open(path)

    def extent(self, path: str) -> Extent | None:
        """Where the bytes of one lie."""
        return self.source.extent(path)

    def refuse_without_images(self) -> None:
        """Raise, in one sentence, where there is no candidate."""
        self.source.refuse_without_images()
