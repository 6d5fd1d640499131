"""A file of several frames: an animation, a TIFF of several pages, a DICOM series in one file."""

from __future__ import annotations

from typing import BinaryIO

from PIL import Image

from deepcluster.images import dicom
from deepcluster.images.decode import opened, still
from deepcluster.images.folder import HEAD, is_dicom, starts_like_an_image
from deepcluster.images.reading import Reading
from deepcluster.images.unusable import TooLarge, Unusable


class Reel:
    """An open file, of which each frame can be had; raises `Unusable`.

    It stays at the frame that was asked for last: a GIF reaches one only by way of those before.
    """

    def __init__(self, file: BinaryIO, reading: Reading) -> None:
        self._file, self._reading = file, reading
        self._is_dicom = is_dicom(file.read(HEAD))
        self._begin()

    def _begin(self) -> None:
        self._file.seek(0)
        self._image, self._at = opened(self._file, self._reading), 0

    @staticmethod
    def is_likely(head: bytes) -> bool:
        """Whether files that begin so can have frames: a JPEG's second picture is for machines."""
        return starts_like_an_image(head) and head[:2] != b"\xff\xd8"

    @property
    def count(self) -> int:
        """How many frames there are, at least one: where they cannot be counted, only the first."""
        try:
            if self._is_dicom:
                self._file.seek(0)
                return dicom.frames(self._file)
            return max(1, int(getattr(self._image, "n_frames", 1)))
        except Exception:  # damage behind the first frame has as many kinds as any
            return 1

    def frame(self, number: int) -> Image.Image:
        """The RGB image of a frame, counted from 0, upright."""
        if self._is_dicom:
            self._file.seek(0)
            return still(opened(self._file, self._reading, number), self._reading)
        if number < self._at:  # Pillow loses its way in a PNG that is wound back
            self._begin()
        self._at = number
        try:
            self._image.seek(number)
            if (pixels := self._image.width * self._image.height) > self._reading.max_pixels:
                raise TooLarge(pixels, self._reading.max_pixels)
            return still(self._image, self._reading)
        except Unusable:
            raise
        except Exception as error:  # Pillow's decoders raise nearly everything
            raise Unusable("damaged or unsupported") from error
