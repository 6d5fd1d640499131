"""Images as a detector sees them: whole, at one scale, decoded once and kept on the device."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from deepcluster.evaluation.voc import VocImage
from deepcluster.images.threads import in_order


@dataclass(frozen=True)
class Scale:
    """How large images are made: the short side as given, unless the long one would exceed its."""

    short_side: int
    long_side: int

    def size(self, width: int, height: int) -> tuple[int, int]:
        """Width and height of an image in the end."""
        factor = min(self.short_side / min(width, height), self.long_side / max(width, height))
        return max(1, round(width * factor)), max(1, round(height * factor))

    def factors(self, image: VocImage) -> tuple[float, float]:
        """What the numbers across and down are multiplied by."""
        width, height = self.size(image.width, image.height)
        return width / image.width, height / image.height

    def __call__(self, pixels: Tensor) -> Tensor:
        """The image, 3 x height x width, with levels from 0 to 255 in float32."""
        width, height = self.size(pixels.shape[2], pixels.shape[1])
        return F.interpolate(
            pixels[None].float(), (height, width), mode="bilinear", antialias=True
        )[0]


def decoded(images: Sequence[VocImage], device: torch.device, workers: int) -> Iterator[Tensor]:
    """The images in order, uint8 on the device, decoded ahead by threads."""

    def pixels(image: VocImage) -> Tensor:
        return torch.from_numpy(np.array(image.picture()).transpose(2, 0, 1).copy())

    for tensor in in_order(pixels, images, workers):
        yield tensor.to(device, non_blocking=True)


@dataclass
class KeptMaps:
    """The maps of frozen convolutions, computed when first asked for and kept while they fit."""

    compute: Callable[[int, bool], Tensor]
    """From the image's place, and whether it is flipped."""
    room: int
    """Bytes."""
    _kept: dict[tuple[int, bool], Tensor] = field(default_factory=dict)

    def __call__(self, place: int, flipped: bool) -> Tensor:
        """The maps of an image."""
        if (place, flipped) in self._kept:
            return self._kept[place, flipped]
        maps = self.compute(place, flipped)
        if (size := maps.numel() * maps.element_size()) <= self.room:
            self.room -= size
            self._kept[place, flipped] = maps
        return maps


def room_on(device: torch.device) -> int:
    """Half of the memory that is free there, in bytes; of the host's no more than 4 GiB.

    What the host calls free may be more than a container is allowed.
    """
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0]) // 2
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(free // 2, 4 * 2**30)
