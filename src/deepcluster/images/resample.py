"""Crops of many images of many sizes in one go, resized with a triangle filter (antialiased).

What Pillow computes for one image, on whatever device the pixels are. `resample` chooses: the
kernel where there is a GPU and Triton, else the plain version, which is the kernel's reference.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from deepcluster.runtime.errors import HealthWarning

_AT_ONCE = 8  # images; the plain version writes all taps out


class PlainCrops(HealthWarning):
    """The crop kernel cannot be used, and the slower plain version takes its place."""

    name = "plain-crops"


@dataclass(frozen=True)
class Crops:
    """What to cut out of which image: one row an output."""

    starts: Tensor  # b, int64: where the image begins in the pixels
    sides: Tensor  # b x 2, int64: width and height of the image
    boxes: Tensor  # b x 4, float32: left, top, right, bottom of the part
    limits: Tensor  # b x 4, int64: left, top, right, bottom that the filter may not leave
    flips: Tensor  # b, bool

    def to(self, device: torch.device) -> Crops:
        """The same on a device."""
        parts = (self.starts, self.sides, self.boxes, self.limits, self.flips)
        return Crops(*(part.to(device, non_blocking=True) for part in parts))

    def rows(self, which: slice) -> Crops:
        """Some of them."""
        parts = (self.starts, self.sides, self.boxes, self.limits, self.flips)
        return Crops(*(part[which] for part in parts))

    def starting_at(self, starts: Tensor) -> Crops:
        """The same of images that lie elsewhere."""
        return replace(self, starts=starts)

    def __len__(self) -> int:
        return len(self.starts)


def resample(pixels: Tensor, crops: Crops, size: int, channels: int) -> Tensor:
    """The crops (b x channels x size x size, uint8) of images in flat pixels (uint8).

    An image is height x width x channels, row after row.
    """
    if pixels.device.type == "cuda":
        try:
            from deepcluster.images.resample_kernel import resample_by_kernel
        except ImportError as error:
            warnings.warn(
                PlainCrops(f"no crop kernel ({error}); crops are made by the slower plain version"),
                stacklevel=2,
            )
        else:
            return resample_by_kernel(pixels, crops, size, channels)
    return resample_plainly(pixels, crops, size, channels)


def resample_plainly(pixels: Tensor, crops: Crops, size: int, channels: int) -> Tensor:
    """The same in plain torch, every tap written out."""
    parts = [
        _some(pixels, crops.rows(slice(first, first + _AT_ONCE)), size, channels)
        for first in range(0, len(crops), _AT_ONCE)
    ]
    empty = torch.empty(0, channels, size, size, dtype=torch.uint8, device=pixels.device)
    return torch.cat([empty, *parts])


def _some(pixels: Tensor, crops: Crops, size: int, channels: int) -> Tensor:
    across, weight_across = _taps(crops.boxes[:, 0::2], crops.limits[:, 0::2], size)
    down, weight_down = _taps(crops.boxes[:, 1::2], crops.limits[:, 1::2], size)
    flip = crops.flips[:, None, None]
    across = torch.where(flip, across.flip(1), across)  # b x size x taps
    weight_across = torch.where(flip, weight_across.flip(1), weight_across)
    width = crops.sides[:, 0]
    # b x size (down) x taps x size (across) x taps
    place = down[:, :, :, None, None] * width[:, None, None, None, None] + across[:, None, None]
    place = crops.starts[:, None, None, None, None] + place * channels
    result = []
    for channel in range(channels):
        values = pixels[place + channel].float()
        rows = _filtered(values, weight_across[:, None, None])
        result.append(_filtered(rows.transpose(2, 3), weight_down[:, :, None]))
    return torch.stack(result, dim=1).add_(0.5).clamp_(0, 255).to(torch.uint8)


def _filtered(values: Tensor, weights: Tensor) -> Tensor:
    """The weighted sum over the last axis, tap by tap: the same bits whatever the batch is."""
    total = values[..., 0] * weights[..., 0]
    for tap in range(1, values.shape[-1]):
        total = total + values[..., tap] * weights[..., tap]
    return total


def _taps(ends: Tensor, limits: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """The pixels that each output takes along one axis, and their weights (b x size x taps)."""
    low, high = ends[:, :1], ends[:, 1:]
    scale = (high - low) / size
    support = scale.clamp_min(1.0)
    output = torch.arange(size, device=ends.device)
    centre = low + (output + 0.5) * scale  # b x size
    first = (centre - support + 0.5).floor().long().maximum(limits[:, :1])
    last = (centre + support + 0.5).floor().long().minimum(limits[:, 1:])
    count = int((last - first).max())
    taps = first[..., None] + torch.arange(count, device=ends.device)
    weights = 1 - ((taps + 0.5 - centre[..., None]) / support[..., None]).abs()
    weights = weights.clamp_min(0.0) * (taps < last[..., None])
    weights = weights / weights.sum(dim=-1, keepdim=True)
    return taps.minimum(last[..., None] - 1), weights
