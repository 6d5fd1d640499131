"""Sobel: colours in, two maps of local contrast out; nothing here is learnt."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Sobel(nn.Module):
    """B x 2 x H x W: how fast the grey image changes from left to right, and from top to bottom.

    Grey is a third of each normalised channel; an image of one channel is grey already.
    """

    filters: Tensor

    def __init__(self) -> None:
        super().__init__()
        across = [[1.0, 0.0, -1.0], [2.0, 0.0, -2.0], [1.0, 0.0, -1.0]]
        down = [[1.0, 2.0, 1.0], [0.0, 0.0, 0.0], [-1.0, -2.0, -1.0]]
        # Not a parameter and not in the state dict: what is never learnt need not be saved.
        self.register_buffer("filters", torch.tensor([[across], [down]]), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Both contrasts at every pixel, with zeros around the image.

        In float32 always: the difference of two bfloat16 neighbours is mostly rounding.
        """
        with torch.autocast(images.device.type, enabled=False):
            grey = images if images.shape[1] == 1 else images.mean(dim=1, keepdim=True)
            quick = grey.is_cuda and not grey.requires_grad and grey.dtype == torch.float32
            if quick and (by_kernel := _kernel(grey.device)) is not None:
                return by_kernel(grey)
            return F.conv2d(grey, self.filters, padding=1)


@cache
def _kernel(device: torch.device) -> Callable[[Tensor], Tensor] | None:
    """What reads and writes every pixel once, where it can be compiled and says the same."""
    try:
        from deepcluster.networks.sobel_kernel import sobel_by_kernel

        noise = torch.rand(2, 1, 37, 41, device=device)
        expected = F.conv2d(noise.double(), Sobel().filters.to(noise).double(), padding=1)
        agrees = bool((sobel_by_kernel(noise) - expected).abs().max() < 1e-5)
    except Exception as error:  # a compiler that is missing has many ways to say so
        warnings.warn(f"no kernel for Sobel ({error}): it is slower", stacklevel=2)
        return None
    return sobel_by_kernel if agrees else None
