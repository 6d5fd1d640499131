"""A convolution of wide steps over few channels, as one of single steps over many.

Matrix units take channels in eights and sixteens; the first layer of a convnet has two or three.
"""

from __future__ import annotations

from torch import Tensor, get_autocast_dtype, is_autocast_enabled, nn
from torch.nn import functional as F


class FoldedConv2d(nn.Conv2d):
    """nn.Conv2d, folded where that is quicker: in half precision on a GPU."""

    def forward(self, input: Tensor) -> Tensor:
        """As nn.Conv2d."""
        if input.is_cuda and is_autocast_enabled("cuda"):
            half = input.to(get_autocast_dtype("cuda"))
            return folded(half, self.weight, self.bias, self.stride[0], int(self.padding[0]))
        return super().forward(input)


def folded(images: Tensor, weight: Tensor, bias: Tensor | None, step: int, padding: int) -> Tensor:
    """`F.conv2d` of square filters with this step and padding.

    Squares of step x step pixels become channels of one place, of the images as of the filters,
    whose sides are first filled up with zeros to a multiple of the step.
    """
    count, (filters, channels, side, _) = len(images), weight.shape
    across = -(-side // step)  # places that a filter covers
    places = [(extent + 2 * padding - side) // step + across for extent in images.shape[2:]]
    below, right = (
        step * covered - extent - padding
        for covered, extent in zip(places, images.shape[2:], strict=True)
    )
    high, wide = places
    # Channels come last in memory, so that one copy is enough.
    pixels = F.pad(images.permute(0, 2, 3, 1), (0, 0, padding, right, padding, below))
    pixels = pixels.reshape(count, high, step, wide, step, channels).permute(0, 1, 3, 2, 4, 5)
    squares = pixels.reshape(count, high, wide, step * step * channels).permute(0, 3, 1, 2)
    more = step * across - side
    kernel = F.pad(weight, (0, more, 0, more))
    kernel = kernel.reshape(filters, channels, across, step, across, step)
    kernel = kernel.permute(0, 3, 5, 1, 2, 4).reshape(filters, -1, across, across)
    return F.conv2d(squares, kernel, bias)
