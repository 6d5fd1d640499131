"""Who makes regions from pixels: opencv-contrib's selective search, or our own grouping.

Imports no torch: the processes that make regions begin with this file.
"""

from __future__ import annotations

import signal
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from deepcluster.evaluation import region_grouping

Maker = Literal["opencv", "grouping"]

_SMALLEST = 0.03  # of the short side: no object of VOC is smaller, nearly


def opencv_is_there() -> bool:
    """Whether opencv is installed with its contributed modules."""
    if find_spec("cv2") is None:
        return False
    return hasattr(getattr(import_module("cv2"), "ximgproc", None), "segmentation")


def edition(maker: Maker) -> str:
    """The maker and its version: another edition may find other regions."""
    if maker == "grouping":
        return f"grouping-{region_grouping.VERSION}"
    for package in ("opencv-contrib-python-headless", "opencv-contrib-python"):
        try:
            return f"opencv-{version(package)}"
        except PackageNotFoundError:
            continue
    return "opencv"


def made_regions(maker: Maker, most: int, pixels: NDArray[np.uint8]) -> NDArray[np.int16]:
    """At most so many boxes of an image (height x width x 3), none twice."""
    smallest = max(2, round(_SMALLEST * min(pixels.shape[:2])))
    if maker == "grouping":
        return region_grouping.proposed(pixels, most, smallest)
    boxes = _searched(pixels)
    boxes = boxes[(boxes[:, 2:] - boxes[:, :2]).min(axis=1) >= smallest]
    return boxes[:most].astype(np.int16)


def leave_interrupts() -> None:
    """Begin a process that finds regions: Ctrl-C is for the one that waits for it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _searched(pixels: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Selective search's fast mode: two colours, two scales, two likenesses.

    It draws the order of the regions from a generator that nobody can set. So they are put in order
    and mixed again here, and regions are a function of the image alone, whatever is cut off.
    """
    cv2 = import_module("cv2")
    cv2.setNumThreads(1)  # as many images at a time as there are cores
    search = cv2.ximgproc.segmentation.createSelectiveSearchSegmentation()
    search.setBaseImage(np.ascontiguousarray(pixels[..., ::-1]))
    search.switchToSelectiveSearchFast()
    found = np.asarray(search.process(), dtype=np.int64).reshape(-1, 4)
    boxes = np.unique(np.concatenate([found[:, :2], found[:, :2] + found[:, 2:]], axis=1), axis=0)
    return np.random.default_rng(0).permutation(boxes)
