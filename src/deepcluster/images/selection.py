"""Which frames and bands of a file are images: the first frame and its colours, or what is asked.

A frame, or three bands, are handed on as a file of their own (a PPM in memory), so that they take
the same way as every other image. All other files are handed on as they are.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from deepcluster.images.decode import windowed
from deepcluster.images.folder import HEAD, Extent, Found, Seen, unseen
from deepcluster.images.found_once import FoundOnce
from deepcluster.images.kept import Frames, Pixels
from deepcluster.images.reading import Reading
from deepcluster.images.reel import Reel
from deepcluster.images.source import Folder, Source
from deepcluster.images.tiff import TiffPage, is_tiff
from deepcluster.images.unusable import TooLarge, Unusable
from deepcluster.runtime import interruption
from deepcluster.runtime.errors import UsageError

MOST_FRAMES = 10_000


def selected(source: Source, how: Pixels) -> Source:
    """The source with the links, frames and bands of its files that are asked for."""
    if isinstance(source, Folder):
        source = replace(source, follow_links=how.follow_links)
    chosen = None if how.bands is None else band_numbers(how.bands)
    if how.frames == "first" and chosen is None:
        return source
    return Selection(source, how.frames, chosen, how.reading)


def band_numbers(text: str) -> tuple[int, ...]:
    """The bands that `--bands` names: three of them, or one; counted from 1."""
    words = text.split(",")
    if len(words) not in (1, 3) or not all(word.strip().isdecimal() for word in words):
        raise UsageError(f"--bands {text}: give three numbers such as 4,3,2 (or one, for grey)")
    numbers = tuple(int(word) for word in words)
    if min(numbers) < 1:
        raise UsageError(f"--bands {text}: bands are counted from 1")
    return numbers


class _Opened(NamedTuple):
    path: str
    data: bytes
    reel: Reel


class _Last(threading.local):
    """The file of which a thread took a frame, since it will ask for the next one."""

    file: _Opened | None = None


@dataclass(frozen=True, eq=False)
class Selection:
    """A source some of whose files are read in another way.

    With all frames, frame 7 of `a.gif` has the path `a.gif/07`: no file can lie under a file.
    """

    source: Source
    frames: Frames
    bands: tuple[int, ...] | None
    """Of TIFFs of more than three bands, counted from 1; None: as they are."""
    reading: Reading
    _last: _Last = field(default_factory=_Last, init=False, repr=False)

    @property
    def place(self) -> Path:
        """What the user named."""
        return self.source.place

    def find(self, seen: Seen = unseen) -> list[Found]:
        """Every file, and every frame of those that have several."""
        self._files.find(seen)
        return self._found

    @cached_property
    def _files(self) -> FoundOnce:
        return FoundOnce(self.source)

    @cached_property
    def _found(self) -> list[Found]:
        files = self._files.find()
        if self.frames == "first":
            return files
        return [frame for file in files for frame in self._frames_of(file)]

    @cached_property
    def _parents(self) -> dict[str, tuple[str, int]]:
        """The file and the number, from 0, of every frame that is an image of its own."""
        found = self._found if self.frames == "all" else []
        files = {file.path for file in self._files.find()} if found else set()
        parted = ((one.path, *one.path.rpartition("/")[::2]) for one in found)
        return {
            path: (file, int(number) - 1)
            for path, file, number in parted
            if path not in files and file in files
        }

    def file_of(self, path: str) -> str:
        """The file in which the image of this path is."""
        return self._parents.get(path, (path, 0))[0]

    def open(self, path: str) -> BinaryIO:
        """The bytes of a file, or of a picture that was taken out of one; `Unusable` if none is."""
        if path in self._parents:
            return self._frame(*self._parents[path])
        with self.source.open(path) as file:
            data = file.read()
        return self._of_bands(data, 0) or io.BytesIO(data)

    def extent(self, path: str) -> Extent | None:
        """The file, where it is handed on as it is."""
        if path in self._parents:
            return None
        where = self.source.extent(path)
        if where is None or self.bands is None:
            return where
        try:
            return None if is_tiff(where._replace(size=4).read()) else where
        except OSError:
            return where  # which fails once more, and is then a verdict

    def refuse_without_images(self) -> None:
        """Raise, in one sentence, where there is no candidate."""
        self.source.refuse_without_images()

    def _frames_of(self, file: Found) -> Iterator[Found]:
        interruption.raise_if_asked()
        try:
            count = 1 if file.reason is not None else self._count(file.path)
        except (OSError, Unusable):
            count = 1  # why is said where it is decoded
        if count > MOST_FRAMES:
            yield file._replace(reason=f"more than {MOST_FRAMES:,} frames")
        elif count == 1:
            yield file
        else:
            digits = len(str(count))
            for number in range(1, count + 1):
                yield file._replace(path=f"{file.path}/{number:0{digits}d}")

    def _count(self, path: str) -> int:
        with self.source.open(path) as file:
            if not Reel.is_likely(file.read(HEAD)):
                return 1
            file.seek(0)
            return Reel(file, self.reading).count

    def _frame(self, path: str, number: int) -> BinaryIO:
        last = self._last.file
        if last is None or last.path != path:
            with self.source.open(path) as file:
                data = file.read()
            last = self._last.file = _Opened(path, data, Reel(io.BytesIO(data), self.reading))
        return self._of_bands(last.data, number) or _ppm(np.asarray(last.reel.frame(number)))

    def _of_bands(self, data: bytes, page: int) -> BinaryIO | None:
        """The bands that were chosen; None where the file is no TIFF of several bands."""
        if self.bands is None or not is_tiff(data):
            return None
        tiff = TiffPage(io.BytesIO(data), page)
        if tiff.bands <= 3:
            return None
        return _ppm(bands_of(tiff, self.bands, self.reading.max_pixels))


def bands_of(tiff: TiffPage, bands: tuple[int, ...], most: int) -> NDArray[np.uint8]:
    """Some bands (counted from 1) as grey or RGB: one window for all, so that colours stay."""
    if tiff.width * tiff.height > most:
        raise TooLarge(tiff.width * tiff.height, most)
    levels = tiff.region(0, 0, tiff.width, tiff.height, chosen_of(tiff, bands))
    return levels if levels.dtype == np.uint8 else windowed(levels)


def chosen_of(tiff: TiffPage, bands: tuple[int, ...]) -> tuple[int, ...]:
    """The bands counted from 0; raises `Unusable` where there are not so many."""
    if max(bands) > tiff.bands:
        raise Unusable(f"TIFF of {tiff.bands} bands: --bands asks for number {max(bands)}")
    return tuple(band - 1 for band in bands)


def _ppm(pixels: NDArray[np.uint8]) -> BinaryIO:
    """The pixels (height x width x 1 or 3) as a file: the same bytes on every machine."""
    file = io.BytesIO()
    Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels).save(file, "PPM")
    file.seek(0)
    return file
