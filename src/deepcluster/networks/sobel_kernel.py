"""Sobel in one kernel: each pixel is read with its neighbours, and both contrasts written."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 1024  # pixels


def sobel_by_kernel(grey: Tensor) -> Tensor:
    """B x 2 x H x W, channels last: the contrasts of grey images (B x 1 x H x W, float32)."""
    count, _, height, width = grey.shape
    result = torch.empty(
        (count, 2, height, width), device=grey.device, memory_format=torch.channels_last
    )
    if result.numel():
        blocks = (count, triton.cdiv(height * width, _BLOCK))
        _sobel[blocks](grey.contiguous(), result, height, width, BLOCK=_BLOCK)
    return result


@triton.jit
def _sobel(
    grey,
    result,
    height,
    width,
    BLOCK: tl.constexpr,  # noqa: N803 - Triton's custom for what is known when it compiles
):
    """Some pixels of one image."""
    first = tl.program_id(0).to(tl.int64) * height * width
    pixel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = pixel < height * width
    y, x = pixel // width, pixel % width
    above, below = inside & (y > 0), inside & (y < height - 1)
    left, right = x > 0, x < width - 1

    at = grey + first + pixel
    above_left = tl.load(at - width - 1, mask=above & left, other=0.0)
    above_here = tl.load(at - width, mask=above, other=0.0)
    above_right = tl.load(at - width + 1, mask=above & right, other=0.0)
    here_left = tl.load(at - 1, mask=inside & left, other=0.0)
    here_right = tl.load(at + 1, mask=inside & right, other=0.0)
    below_left = tl.load(at + width - 1, mask=below & left, other=0.0)
    below_here = tl.load(at + width, mask=below, other=0.0)
    below_right = tl.load(at + width + 1, mask=below & right, other=0.0)

    across = above_left + 2 * here_left + below_left - above_right - 2 * here_right - below_right
    down = above_left + 2 * above_here + above_right - below_left - 2 * below_here - below_right
    to = result + 2 * (first + pixel)
    tl.store(to, across, mask=inside)
    tl.store(to + 1, down, mask=inside)
