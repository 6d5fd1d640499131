"""Networks brought to one scale before they learn a task, the untrained as the trained.

The numbers of an untrained network shrink from layer to layer. Judged by them it would be judged by
its scale and not by what it shows, and no grid of steps would suit it and a trained network.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

SETTLED = 64
"""Training images that an untrained network's batch norms get their statistics from."""


@contextmanager
def settling(layers: nn.Module) -> Iterator[bool]:
    """While open, batch norms that never saw an image take the statistics of those they see.

    Gives whether there are any: a trained network stays as it is, and need not see anything. In the
    end they have the mean over all batches, and are fixed.
    """
    norms = [part for part in layers.modules() if isinstance(part, _BatchNorm)]
    if not norms or any(_saw_images(norm) for norm in norms):
        yield False
        return
    before = [norm.momentum for norm in norms]
    for norm in norms:
        norm.train()
        norm.momentum = None  # the mean over the batches
    with torch.no_grad():
        yield True
    for norm, momentum in zip(norms, before, strict=True):
        norm.eval()
        norm.momentum = momentum


def mean_squares(batches: Iterable[dict[str, Tensor]]) -> dict[str, float]:
    """The root of the mean square of each thing over all batches; 1 where all of it is zero."""
    squares: dict[str, Tensor] = {}
    counts: dict[str, int] = {}
    for batch in batches:
        for name, numbers in batch.items():
            total = numbers.double().square().sum()
            squares[name] = squares[name] + total if name in squares else total
            counts[name] = counts.get(name, 0) + numbers.numel()
    return {name: math.sqrt(float(squares[name]) / counts[name]) or 1.0 for name in squares}


@torch.no_grad()
def rescale(layer: nn.Linear | nn.Conv2d, before: float, after: float) -> None:
    """Let a layer take what was divided by one number, and give what it gave over another."""
    layer.weight *= before / after
    if layer.bias is not None:
        layer.bias /= after


def _saw_images(norm: _BatchNorm) -> bool:
    assert norm.running_mean is not None
    assert norm.running_var is not None
    return bool((norm.running_mean != 0).any() or (norm.running_var != 1).any())
