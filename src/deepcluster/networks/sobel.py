"""Sobel: colours in, two maps of local contrast out; nothing here is learnt."""

from __future__ import annotations

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
        across = torch.tensor([[1.0, 0.0, -1.0], [2.0, 0.0, -2.0], [1.0, 0.0, -1.0]])
        down = torch.tensor([[1.0, 2.0, 1.0], [0.0, 0.0, 0.0], [-1.0, -2.0, -1.0]])
        # Not a parameter and not in the state dict: what is never learnt need not be saved.
        self.register_buffer("filters", torch.stack([across, down])[:, None], persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Both contrasts at every pixel, with zeros around the image.

        In float32 always: the difference of two bfloat16 neighbours is mostly rounding.
        """
        with torch.autocast(images.device.type, enabled=False):
            return F.conv2d(images.mean(dim=1, keepdim=True), self.filters, padding=1)
