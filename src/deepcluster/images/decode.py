"""One file, one RGB image: how every kind of picture is brought to the same three bytes a pixel.

The policy. EXIF orientation is applied; EXIF that cannot be read is ignored. Grey, 1-bit and
palette images become RGB; what is transparent is laid on white, or what `Reading` says;
CMYK is converted. Grey of more
than 8 bits, or in floating point, is stretched so that its 0.5 and 99.5 percentiles become 0 and
255, and so are such colours, all three together. Of an animation the first frame counts. More than
80 million pixels, or what `Reading` says, are refused before they are decoded; a file that ends too
early is refused, but for a JPEG where `Reading` says so.

Pillow's own warnings about files are silenced from the first read on: each of them is either
harmless or ends in a reason here, and a million files would print a million lines.
"""

from __future__ import annotations

import io
import logging
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image, TiffImagePlugin, UnidentifiedImageError, features

from deepcluster.images import deep_colours, dicom, heif, quick_jpeg
from deepcluster.images.folder import HEAD, is_dicom, is_heif, starts_like_an_image
from deepcluster.images.reading import Reading
from deepcluster.images.source import Source
from deepcluster.images.unusable import TooLarge
from deepcluster.images.unusable import Unusable as Unusable

FIRST_FRAME = " (first of several frames)"
"""Stands behind the mode of an animation, or of a file of several pages."""
CUT_SHORT = " (cut short)"
"""Stands behind the mode of a file that ends too early and is used all the same."""
USUAL = Reading()
TOO_LITTLE_MEMORY = "too little memory to decode it"


def _built_in() -> Iterator[str]:
    """The formats that not every Pillow has: AVIF is in its wheels since 11.3."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an older one warns that it knows no such feature
        for name, feature in (("AVIF", "avif"), ("JPEG2000", "jpg_2000")):
            if features.check(feature):
                yield name


# No others: some of Pillow's formats run programs (EPS), or are documents rather than images.
_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM", *_built_in())
_ORIENTATION = 0x0112  # the tag's number in EXIF 2.3, section 4.6.4
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_UPRIGHT_ARRAY: dict[int, Callable[[NDArray[np.uint8]], NDArray[np.uint8]]] = {
    2: lambda pixels: pixels[:, ::-1],
    3: lambda pixels: pixels[::-1, ::-1],
    4: lambda pixels: pixels[::-1],
    5: lambda pixels: pixels.transpose(1, 0, 2),
    6: lambda pixels: pixels[::-1].transpose(1, 0, 2),
    7: lambda pixels: pixels[::-1, ::-1].transpose(1, 0, 2),
    8: lambda pixels: pixels[:, ::-1].transpose(1, 0, 2),
}
Result = TypeVar("Result")
logging.getLogger("PIL").addHandler(logging.NullHandler())
_PILLOW_WARNS = ("ignore", None, Warning, re.compile(r"PIL\."), 0)


def read(path: str | Path, source: Source | None = None, reading: Reading = USUAL) -> Image.Image:
    """The RGB image in a file, or in one of a source's, upright; raises `Unusable`."""
    try:
        with Path(path).open("rb") if source is None else source.open(str(path)) as file:
            return decode(file, reading)[0]
    except OSError as error:
        raise Unusable(unreadable(error)) from error


def unreadable(error: OSError) -> str:
    """The reason that stands for an error of the file system."""
    return f"unreadable: {(error.strerror or str(error)).lower()}"


def decode(file: BinaryIO, reading: Reading = USUAL) -> tuple[Image.Image, str]:
    """The RGB image in an open file, and the mode it is stored in; raises `Unusable`."""
    return _whole_or_not(file, lambda image: _by_pillow(image, reading), reading)


def opened(file: BinaryIO, reading: Reading = USUAL, frame: int = 0) -> Image.Image:
    """The image whose header was read, at its first frame (of a DICOM file at any); `Unusable`."""
    return _decoded(file, lambda image: image, reading, frame)


def still(image: Image.Image, reading: Reading = USUAL) -> Image.Image:
    """The RGB image, upright, of the frame at which an open one stands, which it can leave."""
    levels = deep_colours.levels_of(image)
    image.load()
    if levels is None:
        method, frame = _UPRIGHT.get(_orientation(image)), image.copy()
        rgb = _rgb(frame if method is None else frame.transpose(method), reading)
    else:
        rgb = _rgb(_deepened(image, levels), reading)
    rgb.info = {}
    return rgb


def size_in_header(file: BinaryIO, reading: Reading = USUAL) -> tuple[int, int]:
    """Width and height as an open file says, whether or not the rest is there; or `Unusable`."""
    return _decoded(file, lambda image: image.size, reading)


def is_turned_by_exif(file: BinaryIO) -> bool:
    """Whether `read` shows the image otherwise than its pixels are stored; or `Unusable`."""
    return _decoded(file, lambda image: _orientation(image) in _UPRIGHT)


def decode_pixels(data: bytes, reading: Reading = USUAL) -> tuple[NDArray[np.uint8], str]:
    """The same of a file in memory, as an array (height x width x 3).

    Ordinary JPEGs are decoded by a faster decoder, which changes neither a pixel nor a verdict.
    """

    def stored_or_by_pillow(image: Image.Image) -> tuple[NDArray[np.uint8], str]:
        stored = quick_jpeg.pixels(image, data)
        if stored is None:
            rgb, mode = _by_pillow(image, reading)
            return np.asarray(rgb), mode
        turn = _UPRIGHT_ARRAY.get(_orientation(image))
        return stored if turn is None else np.ascontiguousarray(turn(stored)), image.mode

    try:
        if (plain := quick_jpeg.plain(data, reading.max_pixels)) is not None:
            return plain
    except MemoryError as error:
        raise Unusable(TOO_LITTLE_MEMORY) from error
    return _whole_or_not(io.BytesIO(data), stored_or_by_pillow, reading)


def _whole_or_not(
    file: BinaryIO, finish: Callable[[Image.Image], tuple[Result, str]], reading: Reading
) -> tuple[Result, str]:
    """What `_decoded` gives, of a JPEG that is cut short too where that is asked for."""
    try:
        return _decoded(file, finish, reading)
    except Unusable as unusable:
        file.seek(0)
        if not reading.accept_truncated or unusable.reason != "truncated":
            raise
        data = file.read()
        if not data.startswith(b"\xff\xd8"):
            raise
        # With a mark of the end behind it libjpeg takes what is missing for grey. Pillow's own
        # switch holds for the whole process, and nobody would learn which files were cut.
        result, mode = _decoded(io.BytesIO(data + b"\xff\xd9"), finish, reading)
        return result, f"{mode}{CUT_SHORT}"


def _by_pillow(image: Image.Image, reading: Reading) -> tuple[Image.Image, str]:
    levels = deep_colours.levels_of(image)
    image.load()
    mode = image.mode
    rgb = _rgb(_upright(image) if levels is None else _deepened(image, levels), reading)
    if _has_frames(image):
        mode = f"{mode}{FIRST_FRAME}"
    rgb.info = {}  # where a picture was taken must not travel into what is written from it
    return rgb, mode


def _has_frames(image: Image.Image) -> bool:
    """Whether there are more than the first, which is already taken: a GIF looks for the next."""
    try:
        return bool(getattr(image, "is_animated", False))
    except Exception:  # the rest may be damaged in as many ways as the first
        return False


def _decoded(
    file: BinaryIO,
    finish: Callable[[Image.Image], Result],
    reading: Reading = USUAL,
    frame: int = 0,
) -> Result:
    """What `finish` makes of the image whose header was read, or the reason why nothing.

    Args:
        file: Open for reading.
        finish: What is wanted of the image.
        reading: What the user says.
        frame: Of a DICOM file, which is decoded when it is opened.
    """
    head = file.read(HEAD)
    file.seek(0)
    if not head:
        raise Unusable("empty file")
    if head.startswith(b"version https://git-lfs"):
        raise Unusable("git-lfs pointer: run git lfs pull")
    # Added once and never removed: catch_warnings would race between threads.
    if _PILLOW_WARNS not in warnings.filters:
        warnings.filterwarnings("ignore", module=r"PIL\.")
    most = reading.max_pixels
    # Pillow refuses twice this number by itself. Raised once and never put back, for threads too.
    if Image.MAX_IMAGE_PIXELS is not None and most > Image.MAX_IMAGE_PIXELS:
        Image.MAX_IMAGE_PIXELS = most
    try:
        image = dicom.picture(file, most, frame) if is_dicom(head) else _open(file, head, most)
        if image.width * image.height > most:
            raise TooLarge(image.width * image.height, most)
        return finish(image)
    except Image.DecompressionBombError as error:
        pixels = re.search(r"\((\d+) pixels\)", str(error))
        raise TooLarge(int(pixels[1]) if pixels else 2 * most, most) from error
    except MemoryError as error:
        raise Unusable(TOO_LITTLE_MEMORY) from error
    except UnidentifiedImageError as error:
        known = starts_like_an_image(head)
        bands = _tiff_bands(head, file)
        if bands > 4:
            raise Unusable(f"TIFF of {bands} bands: choose three with --bands") from error
        raise Unusable("damaged or unsupported" if known else "not an image") from error
    except Unusable:
        raise
    except Exception as error:  # Pillow's decoders raise nearly everything
        if isinstance(error, OSError) and error.errno is not None:
            raise Unusable(unreadable(error)) from error
        cut = "truncated" in str(error).lower() or (is_heif(head) and heif.is_cut(error))
        raise Unusable("truncated" if cut else "damaged or unsupported") from error


def _open(file: BinaryIO, head: bytes, most: int) -> Image.Image:
    if is_heif(head):
        return heif.opened(file)
    try:
        return Image.open(file, formats=_FORMATS)
    except UnidentifiedImageError:
        levels = deep_colours.unknown_to_pillow(file, most)
        if levels is None:
            raise
        return _in_colours(levels)


def _deepened(image: Image.Image, levels: NDArray) -> Image.Image:
    """The image of these numbers, turned as the other one, which has only their upper bits, is."""
    deep = _in_colours(levels)
    method = _UPRIGHT.get(_orientation(image))
    return deep if method is None else deep.transpose(method)


def _in_colours(levels: NDArray) -> Image.Image:
    """RGB, or RGBA, of 8 bits: one window for the three, so that colours stay what they are."""
    colours = windowed(levels[..., :3])
    if levels.shape[2] == 3:
        return Image.fromarray(colours)
    most = np.iinfo(levels.dtype).max if levels.dtype.kind in "ui" else 1.0
    opaque = np.rint(np.clip(levels[..., 3:] / most, 0, 1) * 255).astype(np.uint8)
    return Image.fromarray(np.concatenate([colours, opaque], axis=2))


def _tiff_bands(head: bytes, file: BinaryIO) -> int:
    """How many numbers a pixel has, where that can be read; else 0."""
    try:
        directory = TiffImagePlugin.ImageFileDirectory_v2(head[:8])
        file.seek(directory.next)
        directory.load(file)
        return int(directory.get(TiffImagePlugin.SAMPLESPERPIXEL, 0))
    except Exception:  # not a TIFF, or one broken in any of many ways
        return 0


def _upright(image: Image.Image) -> Image.Image:
    method = _UPRIGHT.get(_orientation(image))
    return image if method is None else image.transpose(method)


def _orientation(image: Image.Image) -> int:
    """How the image is to be turned, or 1, which is not at all."""
    try:
        orientation = image.getexif().get(_ORIENTATION)
    except Exception:  # broken EXIF fails in as many ways as broken images do
        return 1
    return orientation if isinstance(orientation, int) else 1


def _rgb(image: Image.Image, reading: Reading) -> Image.Image:
    if image.mode == "F" or image.mode.startswith("I"):
        return Image.fromarray(windowed(np.asarray(image))).convert("RGB")
    if image.has_transparency_data:
        colour = image.convert("RGBA")
        paper = Image.new("RGBA", colour.size, reading.background)
        return Image.alpha_composite(paper, colour).convert("RGB")
    return image if image.mode == "RGB" else image.convert("RGB")


def windowed(values: NDArray) -> NDArray[np.uint8]:
    """The values stretched to 8 bits; one that is not a number is black."""
    return stretched(values, window_of(values))


def window_of(values: NDArray) -> tuple[float, float]:
    """What becomes black and what becomes white; equal where there is but one value."""
    finite = values[np.isfinite(values)]
    if not finite.size:
        raise Unusable("no pixel is a number")
    low, high = (float(at) for at in np.percentile(finite, (0.5, 99.5)))
    if low == high:  # a few bright points on a flat ground are still a picture
        low, high = float(finite.min()), float(finite.max())
    return low, high


def stretched(values: NDArray, window: tuple[float, float]) -> NDArray[np.uint8]:
    """The values in a window as 8 bits."""
    low, high = window
    if low == high:
        return np.full(values.shape, 128, dtype=np.uint8)
    levels = (values.astype(np.float64) - low) * (255 / (high - low))
    return np.rint(np.clip(np.nan_to_num(levels, nan=0.0), 0, 255)).astype(np.uint8)
