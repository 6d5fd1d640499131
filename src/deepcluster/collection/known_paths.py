"""Which image of a run a path means: as the run has it, or the file itself."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path

from deepcluster.images.folder import decoded, encoded
from deepcluster.images.list_file import SUFFIXES
from deepcluster.runtime.spreadsheet import as_it_was


class KnownPaths:
    """The paths of a run's images, to be found again however they are written.

    Also as a CSV file of ours has them, where one that a spreadsheet would take for a formula
    begins with an apostrophe.

    Args:
        names: Every image's path, as the run has it.
        place: What the run was made of: a folder, or a list of paths.
    """

    def __init__(self, names: list[str], place: Path) -> None:
        self._numbers = {name: number for number, name in enumerate(names)}
        listed = place.suffix.lower() in SUFFIXES and not place.is_dir()
        self._root = str((place.parent if listed else place).resolve())
        self._found = place.is_dir()  # so that its names are as short as they can be

    def number(self, given: str) -> int | None:
        """The image that is meant; None where it is none of the run."""
        for path in dict.fromkeys((given, as_it_was(given))):
            for name in (path, encoded(path)):
                if name in self._numbers:
                    return self._numbers[name]
            for whole in (os.path.normpath(Path(path).absolute()), str(Path(path).resolve())):
                number = self._numbers.get(encoded(os.path.relpath(whole, self._root)))
                if number is not None:
                    return number
                if not self._found and whole in self._files:
                    return self._files[whole]
        return None

    @cached_property
    def _files(self) -> dict[str, int]:
        """The images by the whole path of their file, however a list writes it."""
        return {
            os.path.normpath(os.path.join(self._root, decoded(name))): number  # noqa: PTH118 - fast
            for name, number in self._numbers.items()
        }
