"""The feature of an image as the mean over several views of it."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

MOST_VIEWS = 6
"""The view itself, its mirror image, and four corners of it."""

_CORNER = 0.75  # of the side
_CORNERS = ((0, 0, False), (1, 1, False), (0, 1, True), (1, 0, True))
"""Down, across, and whether left and right are exchanged."""


class ManyViews(nn.Module):
    """B x d: what a module says to the first so many views of an image, averaged.

    What only one view of an image says is noise to a grouping: the same image, a little closer or
    mirrored, would go elsewhere. The mean keeps what the views agree on.
    """

    def __init__(self, module: nn.Module, count: int) -> None:
        super().__init__()
        self.module, self.count = module, count
        self.train(module.training)

    def forward(self, images: Tensor) -> Tensor:
        """One vector an image, float32."""
        views = views_of(images, self.count)
        total = self.module(next(views)).float()
        for view in views:
            total = total + self.module(view).float()
        return total / self.count


def views_of(images: Tensor, count: int) -> Iterator[Tensor]:
    """The images, mirrored images, and their corners, enlarged again: `count` of them."""
    size = images.shape[-1]
    side = round(_CORNER * size)
    yield images
    if count > 1:
        yield images.flip(-1)
    for down, across, mirrored in _CORNERS[: max(0, count - 2)]:
        top, left = down * (size - side), across * (size - side)
        part = images[..., top : top + side, left : left + side]
        with torch.autocast(images.device.type, enabled=False):
            part = F.interpolate(part, size=(size, size), mode="bilinear", align_corners=False)
        yield part.flip(-1) if mirrored else part
