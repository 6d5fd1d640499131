"""Small copies of images: a bounded number of them, JPEG, named by the image's number."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from contextlib import closing

from PIL import Image

from deepcluster.images.loader import Images
from deepcluster.images.threads import in_order
from deepcluster.runtime.errors import DeepClusterError
from deepcluster.runtime.run_folder import RunFolder, storage_errors_named

SIDE = 96
_QUALITY = 80


def write_thumbnails(
    folder: RunFolder,
    images: Images,
    ids: Sequence[int],
    workers: int,
    in_colours: Callable[[int], Image.Image | None] = lambda number: None,
    advance: Callable[[int], None] = lambda count: None,
) -> int:
    """Keep thumbnails of these images and of no others; gives how many were made.

    Args:
        folder: The run's; they are kept under thumbnails/.
        images: The run's images.
        ids: Which of them.
        workers: How many threads make them.
        in_colours: Asked first, where the images themselves are grey.
        advance: Told of every image that is done.
    """
    target = folder.path / "thumbnails"
    with storage_errors_named(target):
        target.mkdir(parents=True, exist_ok=True)
        wanted = {f"{number}.jpg": number for number in ids}
        for file in target.glob("*.jpg"):
            if wanted.pop(file.name, None) is None:
                file.unlink()
    advance(len(ids) - len(wanted))

    def made(number: int) -> tuple[int, bytes | None]:
        picture = in_colours(number) if images.channels == 1 else None
        try:
            return number, small_jpeg(picture or images.picture(number))
        except DeepClusterError:  # the file has vanished since: a grey tile on the page
            return number, None

    count = 0
    with (
        storage_errors_named(target),
        closing(in_order(made, wanted.values(), workers)) as thumbnails,
    ):
        for number, content in thumbnails:
            if content is not None:
                aside = target / f".{number}.writing"
                aside.write_bytes(content)
                aside.replace(target / f"{number}.jpg")
                count += 1
            advance(1)
    return count


def small_jpeg(picture: Image.Image) -> bytes:
    """The centred square of a picture, small; smaller pictures are not enlarged."""
    square = centred_square(picture, SIDE)
    content = io.BytesIO()
    square.save(content, "JPEG", quality=_QUALITY, optimize=True)
    return content.getvalue()


def png_of(picture: Image.Image) -> bytes:
    """The picture as a file."""
    content = io.BytesIO()
    picture.save(content, "PNG")
    return content.getvalue()


def centred_square(picture: Image.Image, side: int) -> Image.Image:
    """The largest square in the middle, at most `side` pixels wide; cut before it is resized."""
    width, height = picture.size
    short = min(width, height)
    left, top = (width - short) // 2, (height - short) // 2
    box = (left, top, left + short, top + short)
    if picture.mode not in ("L", "RGB"):
        picture = picture.convert("RGB")
    if short <= side:
        return picture.crop(box)
    return picture.resize((side, side), Image.Resampling.BOX, box=box, reducing_gap=3.0)
