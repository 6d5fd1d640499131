"""One step of many candidates in one Triton kernel: each number is read and written once."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 2048


def move_by_kernel(
    weight: Tensor,
    velocity: Tensor,
    gradient: Tensor,
    steps: Tensor,
    decays: Tensor,
    momentum: float,
    copy: Tensor,
) -> None:
    """What `move` does, in place.

    Args:
        weight: Candidates x ..., float32, contiguous, as all of these.
        velocity: The same shape, float32.
        gradient: The same shape, of any type.
        steps: One for each candidate, float32.
        decays: The same.
        momentum: Of all candidates.
        copy: The same shape, of any type; gets the new weights.
    """
    candidates = steps.numel()
    size = weight.numel() // candidates
    _moved[(triton.cdiv(size, _BLOCK), candidates)](
        weight,
        velocity,
        gradient.contiguous(),
        copy,
        steps.contiguous(),
        decays.contiguous(),
        momentum,
        size,
        IS_COPIED=copy.data_ptr() != weight.data_ptr(),
        BLOCK=_BLOCK,
    )


@triton.jit
def _moved(
    weight,
    velocity,
    gradient,
    copy,
    steps,
    decays,
    momentum,
    size,
    IS_COPIED: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
):
    candidate = tl.program_id(1)
    inside = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = inside < size
    at = candidate.to(tl.int64) * size + inside
    old = tl.load(weight + at, mask=mask, other=0.0)
    slope = tl.load(gradient + at, mask=mask, other=0.0).to(tl.float32)
    speed = tl.load(velocity + at, mask=mask, other=0.0) * momentum
    speed += slope + tl.load(decays + candidate) * old
    new = old - tl.load(steps + candidate) * speed
    tl.store(velocity + at, speed, mask=mask)
    tl.store(weight + at, new, mask=mask)
    if IS_COPIED:
        tl.store(copy + at, new.to(copy.dtype.element_ty), mask=mask)
