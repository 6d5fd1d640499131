"""The kernels of the first layer, as in figure 3 of the paper."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from deepcluster.networks import Network, Sobel
from deepcluster.runtime.errors import UsageError


def first_kernels(network: Network) -> Tensor:
    """What the first layer's filters look for in an image (filters x 1 or 3 x side x side).

    Behind Sobel a filter has two channels, one for each direction of contrast. What it sees of the
    grey image is both, each convolved with Sobel's own kernel, in one: two linear maps are one.
    """
    first = next((m for m in network.trunk.convnet.modules() if isinstance(m, nn.Conv2d)), None)
    if first is None:
        raise UsageError("the network has no convolution, and so no filters to show")
    weight = first.weight.detach().float().cpu()
    if not isinstance(network.front, Sobel):
        return weight
    kernels = network.front.filters.float().cpu()  # 2 x 1 x 3 x 3
    # A correlation after a correlation correlates with the convolution of both kernels.
    parts = [
        F.conv2d(weight[:, c : c + 1], kernels[c : c + 1].flip(2, 3), padding=2) for c in (0, 1)
    ]
    return parts[0] + parts[1]


def grid(kernels: Tensor, scale: int = 4, gap: int = 1) -> NDArray[np.uint8]:
    """The kernels side by side, each stretched to its own darkest and lightest (H x W x 3)."""
    count, channels, height, width = kernels.shape
    low = kernels.amin(dim=(1, 2, 3), keepdim=True)
    high = kernels.amax(dim=(1, 2, 3), keepdim=True)
    shown = (kernels - low) / (high - low).clamp_min(1e-12)
    if channels != 3:
        shown = shown.mean(dim=1, keepdim=True).expand(-1, 3, -1, -1)
    across = int(np.ceil(np.sqrt(count * 1.5)))
    down = -(-count // across)
    page = torch.ones(3, down * (height + gap) + gap, across * (width + gap) + gap)
    for number, kernel in enumerate(shown):
        top = gap + number // across * (height + gap)
        left = gap + number % across * (width + gap)
        page[:, top : top + height, left : left + width] = kernel
    pixels = (255 * page).round().to(torch.uint8).permute(1, 2, 0).numpy()
    return pixels.repeat(scale, axis=0).repeat(scale, axis=1)
