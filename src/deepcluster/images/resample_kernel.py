"""The crops of `resample` in one kernel: each output reads its taps and is written once."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from deepcluster.images.resample import Crops

_DOWN, _ACROSS = 8, 64


def resample_by_kernel(pixels: Tensor, crops: Crops, size: int, channels: int) -> Tensor:
    """The crops (b x channels x size x size, uint8) of images in flat pixels (uint8)."""
    shape = (len(crops), channels, size, size)
    result = torch.empty(shape, dtype=torch.uint8, device=pixels.device)
    if len(crops):
        tiles = (triton.cdiv(size, _DOWN), triton.cdiv(size, _ACROSS))
        _resample[(len(crops) * channels, *tiles)](
            pixels,
            result,
            crops.starts.contiguous(),
            crops.sides.contiguous(),
            crops.boxes.contiguous(),
            crops.limits.contiguous(),
            crops.flips.to(torch.uint8).contiguous(),
            size,
            CHANNELS=channels,
            DOWN=_DOWN,
            ACROSS=_ACROSS,
        )
    return result


@triton.jit
def _resample(
    pixels,
    result,
    starts,
    sides,
    boxes,
    limits,
    flips,
    size,
    CHANNELS: tl.constexpr,  # noqa: N803 - Triton's custom for what is known when it compiles
    DOWN: tl.constexpr,  # noqa: N803
    ACROSS: tl.constexpr,  # noqa: N803
):
    """One tile of one channel of one crop."""
    image = tl.program_id(0) // CHANNELS
    channel = tl.program_id(0) % CHANNELS
    y = tl.program_id(1) * DOWN + tl.arange(0, DOWN)
    x = tl.program_id(2) * ACROSS + tl.arange(0, ACROSS)
    flipped = tl.load(flips + image)
    seen_x = tl.where(flipped > 0, size - 1 - x, x)

    left, top = tl.load(boxes + image * 4), tl.load(boxes + image * 4 + 1)
    right, bottom = tl.load(boxes + image * 4 + 2), tl.load(boxes + image * 4 + 3)
    least_x, least_y = tl.load(limits + image * 4), tl.load(limits + image * 4 + 1)
    most_x, most_y = tl.load(limits + image * 4 + 2), tl.load(limits + image * 4 + 3)
    width = tl.load(sides + image * 2)
    scale_x, scale_y = (right - left) / size, (bottom - top) / size
    support_x, support_y = tl.maximum(scale_x, 1.0), tl.maximum(scale_y, 1.0)

    centre_x = left + (seen_x + 0.5) * scale_x
    centre_y = top + (y + 0.5) * scale_y
    first_x = tl.maximum(tl.floor(centre_x - support_x + 0.5).to(tl.int64), least_x)
    last_x = tl.minimum(tl.floor(centre_x + support_x + 0.5).to(tl.int64), most_x)
    first_y = tl.maximum(tl.floor(centre_y - support_y + 0.5).to(tl.int64), least_y)
    last_y = tl.minimum(tl.floor(centre_y + support_y + 0.5).to(tl.int64), most_y)
    taps_x = (2 * support_x + 2).to(tl.int32)
    taps_y = (2 * support_y + 2).to(tl.int32)

    base = pixels + tl.load(starts + image) + channel
    total = tl.zeros((DOWN, ACROSS), dtype=tl.float32)
    weight_y = tl.zeros((DOWN,), dtype=tl.float32)
    weight_x = tl.zeros((ACROSS,), dtype=tl.float32)
    for v in range(0, taps_x):
        at_x = first_x + v
        wx = 1.0 - tl.abs((at_x + 0.5 - centre_x) / support_x)
        weight_x += tl.where((at_x < last_x) & (wx > 0), wx, 0.0)
    for u in range(0, taps_y):
        at_y = first_y + u
        wy = 1.0 - tl.abs((at_y + 0.5 - centre_y) / support_y)
        wy = tl.where((at_y < last_y) & (wy > 0), wy, 0.0)
        weight_y += wy
        for v in range(0, taps_x):
            at_x = first_x + v
            wx = 1.0 - tl.abs((at_x + 0.5 - centre_x) / support_x)
            wx = tl.where((at_x < last_x) & (wx > 0), wx, 0.0)
            weight = wy[:, None] * wx[None, :]
            inside = (weight > 0) & (y < size)[:, None] & (x < size)[None, :]
            place = (at_y[:, None] * width + at_x[None, :]) * CHANNELS
            total += weight * tl.load(base + place, mask=inside, other=0).to(tl.float32)
    total = total / tl.maximum(weight_y[:, None] * weight_x[None, :], 1e-20) + 0.5
    total = tl.minimum(tl.maximum(total, 0.0), 255.0)
    target = result + tl.program_id(0).to(tl.int64) * size * size + y[:, None] * size + x[None, :]
    tl.store(target, total.to(tl.uint8), mask=(y < size)[:, None] & (x < size)[None, :])
