"""A layer's maps averaged to about 9,000 numbers, as probes of convnets have them since 2016."""

from __future__ import annotations

from math import isqrt

import torch
from torch import Tensor
from torch.nn import functional as F

NUMBERS = 9600
"""At most so many numbers are left of a layer's maps."""


def pooled(activation: Tensor) -> Tensor:
    """B x width: of maps (B x C x H x W) a grid of means as fine as `NUMBERS` allow.

    The grid has floor(sqrt(9600 / C)) fields a side, never more than the maps have. AlexNet at 224
    pixels: 10 x 10 x 96 = 9600, 6 x 6 x 256 = 9216, 5 x 5 x 384 = 9600 twice, 6 x 6 x 256 = 9216.
    What has no maps stays as it is; tokens (B x T x C) are averaged.
    """
    if activation.ndim == 3:
        return activation.mean(dim=1)
    if activation.ndim == 2:
        return activation
    _, channels, height, width = activation.shape
    side = max(1, isqrt(NUMBERS // channels))
    grid = (min(side, height), min(side, width))
    if grid != (height, width):
        activation = F.adaptive_avg_pool2d(activation, grid)
    # Channel after channel, whatever the layout in memory.
    return activation.contiguous(memory_format=torch.contiguous_format).flatten(1)
