"""What others offer to decode a photograph and make it smaller, for benchmarks to stand beside."""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import torch
import torchvision
from PIL import Image
from torchvision.transforms import v2

CORES = os.cpu_count() or 1


def by_pillow(path: str) -> int:
    image = Image.open(path).convert("RGB")
    scale = 256 / min(image.size)
    size = (round(image.width * scale), round(image.height * scale))
    return np.asarray(image.resize(size, Image.Resampling.BILINEAR)).shape[0]


def by_torchvision(path: str) -> int:
    torch.set_num_threads(1)
    pixels = torchvision.io.decode_image(path, mode=torchvision.io.ImageReadMode.RGB)
    return v2.functional.resize(pixels, 256, antialias=True).shape[0]


def by_torchcodec(path: str) -> int:
    import torchcodec

    torch.set_num_threads(1)
    pixels = torchcodec.decoders.decode_image(path)
    return v2.functional.resize(pixels, 256, antialias=True).shape[0]


def by_opencv(path: str) -> int:
    import cv2

    cv2.setNumThreads(1)
    image = cv2.imread(path)
    scale = 256 / min(image.shape[:2])
    size = (round(image.shape[1] * scale), round(image.shape[0] * scale))
    return int(cv2.resize(image, size, interpolation=cv2.INTER_AREA).shape[0])


PEERS = {
    "Pillow": by_pillow,
    "torchvision": by_torchvision,
    "torchcodec": by_torchcodec,
    "OpenCV, INTER_AREA": by_opencv,
}


def started(paths: list[str]) -> tuple[dict[str, ProcessPoolExecutor], list[str]]:
    """The processes of each peer that is installed, and lines on those that are not."""
    pools: dict[str, ProcessPoolExecutor] = {}
    lines = []
    for name, decode in PEERS.items():
        try:
            decode(paths[0])
        except Exception as error:
            lines.append(f"| packing, {name} instead | | not measured: {type(error).__name__} | |")
            continue
        pools[name] = ProcessPoolExecutor(CORES)
        list(pools[name].map(decode, paths[: 8 * CORES]))  # start the workers
    return pools, lines
