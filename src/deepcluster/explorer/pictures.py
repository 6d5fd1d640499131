"""Pictures of a run's images by number: small ones for walls, larger ones to look at.

Only images of the index are ever shown, and only while their file has the content that was indexed:
whatever has been put in its place since, by a link or otherwise, is not.
"""

from __future__ import annotations

import io
from collections import OrderedDict
from contextlib import suppress
from html import escape
from threading import Lock

from PIL import Image

from deepcluster.images.album import Album
from deepcluster.runtime.errors import DeepClusterError
from deepcluster.runtime.run_folder import RunFolder
from deepcluster.visuals.thumbnails import small_jpeg

_REMEMBERED = 4_000  # small pictures, of a few kilobytes each
_LARGE = 720  # pixels on the longer side


class Pictures:
    """Picture i is image i. Threads may ask at once."""

    def __init__(self, folder: RunFolder) -> None:
        self._thumbnails = folder.path / "thumbnails"
        self._images = Album.of_run(folder)
        self._lock = Lock()
        self._known: OrderedDict[int, bytes] = OrderedDict()

    def prepare(self) -> None:
        """What the first picture would wait for."""
        with suppress(DeepClusterError):  # which is said of the pictures
            self._images.prepare()

    def small(self, image: int) -> bytes | None:
        """A thumbnail as JPEG, kept by the run or made now; None where the image has vanished."""
        try:
            return (self._thumbnails / f"{image}.jpg").read_bytes()
        except OSError:
            pass
        with self._lock:
            if image in self._known:
                self._known.move_to_end(image)
                return self._known[image]
        picture = self._picture(image)
        if picture is None:
            return None
        content = small_jpeg(picture)
        with self._lock:
            self._known[image] = content
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return content

    def large(self, image: int) -> bytes | None:
        """The whole picture as JPEG, no larger than a screen wants it."""
        picture = self._picture(image)
        if picture is None:
            return self.small(image)
        content = io.BytesIO()
        picture.thumbnail((_LARGE, _LARGE))
        picture.save(content, "JPEG", quality=88)
        return content.getvalue()

    def _picture(self, image: int) -> Image.Image | None:
        """From its file if that is still the one that was indexed, else from the run's store."""
        try:
            self._images.prepare()
            return self._images.unchanged(image) or self._images.stored(image)
        except DeepClusterError:
            return None


def grey_tile(name: str) -> bytes:
    """A grey square with the name of an image that has vanished, as SVG."""
    shown = name if len(name) <= 48 else "…" + name[-47:]
    lines = [shown[start : start + 12] for start in range(0, len(shown), 12)]
    words = "".join(
        f'<text x="8" y="{20 + 18 * number}">{escape(line)}</text>'
        for number, line in enumerate(lines)
    )
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 96 96" width="96" height="96">'
        '<rect width="96" height="96" fill="#9a9da3"/>'
        f'<g font-family="sans-serif" font-size="11" fill="#1d2129">{words}</g></svg>'
    ).encode()
