"""What an evaluation works with: the device, threads, arithmetic, and who watches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import nn

from deepcluster.runtime.display import Display
from deepcluster.runtime.world import World


@dataclass(frozen=True)
class Bench:
    """How an evaluation is carried out.

    Only what says so changes what is computed, beyond rounding.
    """

    world: World = field(default_factory=World)
    workers: int = 2
    """Threads that crop images."""
    autocast: torch.dtype | None = None
    """The type that products are computed in; weights stay in float32."""
    display: Display = field(default_factory=lambda: Display(speaks=False))
    look_batch: int = 512
    """Images per step where nothing is learnt."""
    follow_links: bool = False
    """Whether what lies elsewhere, behind links in a folder of images, is judged on too."""


@contextmanager
def frozen(network: nn.Module) -> Iterator[None]:
    """While open, the network computes and does not learn: batch norm keeps its statistics."""
    modes = {module: module.training for module in network.modules()}
    network.eval()
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training
