"""DICOM files as pictures, by pydicom, where the extra [dicom] is installed.

Numbers become what they measure (rescale slope and intercept), then 8 bits: by the first window
that the file names, as a viewer shows it, or stretched by percentiles as any image of 16 bits is.
MONOCHROME1, whose small numbers are bright, is turned over.
"""

from __future__ import annotations

import logging
import re
import warnings
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from deepcluster.images.folder import READS_DICOM
from deepcluster.images.unusable import TooLarge, Unusable

if TYPE_CHECKING:
    from pydicom import Dataset

_PYDICOM_WARNS = ("ignore", None, Warning, re.compile(r"pydicom\."), 0)

logging.getLogger("pydicom").addHandler(logging.NullHandler())


def frames(file: BinaryIO) -> int:
    """How many frames an open file says it has; raises nearly everything."""
    return int(_read(file).get("NumberOfFrames", None) or 1)


def picture(file: BinaryIO, most: int, frame: int = 0) -> Image.Image:
    """A frame of an open file, grey (8 bits, or floats that still want a window) or RGB.

    Raises `Unusable`, where it has more pixels too, and nearly everything where it is damaged.
    """
    data = _read(file)
    if "PixelData" not in data:
        raise Unusable("DICOM without pixels")
    if (pixels := int(data.Rows) * int(data.Columns)) > most:
        raise TooLarge(pixels, most)
    kind = str(data.PhotometricInterpretation)
    levels = _levels(data, frame)
    if levels.ndim == 3:
        image = Image.fromarray(levels[..., :3])
    elif kind == "PALETTE COLOR":
        image = Image.fromarray(_coloured(levels, data))
    else:
        image = Image.fromarray(_grey(levels, data, turned=kind == "MONOCHROME1"))
    image.is_animated = int(data.get("NumberOfFrames", None) or 1) > 1  # type: ignore[attr-defined]
    return image


def _read(file: BinaryIO) -> Dataset:
    if not READS_DICOM:
        raise Unusable("DICOM: pip install 'deepcluster[dicom]' reads it")
    import pydicom

    # Of values that the standard does not allow; added once, as the filter for Pillow is.
    if _PYDICOM_WARNS not in warnings.filters:
        warnings.filterwarnings("ignore", module=r"pydicom\.")
    try:
        return pydicom.dcmread(file)
    except EOFError as error:
        raise Unusable("truncated") from error


def _levels(data: Dataset, frame: int) -> NDArray[Any]:
    """The numbers of a frame, colours as RGB of 8 bits."""
    from pydicom.pixels.utils import pixel_array

    try:
        levels: NDArray[Any] = pixel_array(data, index=frame)
    except ValueError as error:
        raise Unusable("truncated" if "less than" in str(error) else "damaged") from error
    except (RuntimeError, NotImplementedError) as error:  # no decoder for this compression
        syntax = data.file_meta.TransferSyntaxUID.name
        raise Unusable(f"DICOM that cannot be decompressed: {syntax}") from error
    if levels.ndim == 3 and levels.dtype != np.uint8:
        return (levels >> (int(data.BitsStored) - 8)).astype(np.uint8)
    return levels


def _coloured(levels: NDArray[Any], data: Dataset) -> NDArray[np.uint8]:
    from pydicom.pixels.processing import apply_color_lut

    colours = apply_color_lut(levels, data)[..., :3]
    if colours.dtype == np.uint8:
        return np.ascontiguousarray(colours)
    return np.ascontiguousarray(colours >> 8).astype(np.uint8)


def _grey(levels: NDArray[Any], data: Dataset, *, turned: bool) -> NDArray[Any]:
    from pydicom.pixels.processing import apply_modality_lut

    values = np.asarray(apply_modality_lut(levels, data), dtype=np.float32)
    shown = _windowed(values, data)
    if shown is None:
        return -values if turned else values
    return 255 - shown if turned else shown


def _windowed(values: NDArray[np.float32], data: Dataset) -> NDArray[np.uint8] | None:
    """The values in the file's first window; None where it names none, or one that shows nothing.

    The standard's linear function (PS3.3, C.11.2.1.2.1).
    """
    centre, width = (_first(data.get(name)) for name in ("WindowCenter", "WindowWidth"))
    if centre is None or width is None or width < 1 or data.get("VOILUTFunction") == "SIGMOID":
        return None
    share = (values - (centre - 0.5)) / max(width - 1, 1e-6) + 0.5
    shown = np.rint(share.clip(0, 1) * 255).astype(np.uint8)
    return None if shown.min() == shown.max() else shown


def _first(value: Any) -> float | None:
    """The number, or the first of several."""
    if value is None or value == "":
        return None
    return float(value if not hasattr(value, "__len__") else value[0]) if value != [] else None
