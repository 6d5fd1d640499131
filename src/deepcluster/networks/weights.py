"""First weights: a function of the generator alone, never of torch's global random state."""

from __future__ import annotations

import torch
from torch import nn


def draw_weights(module: nn.Module, generator: torch.Generator) -> None:
    """Gives a module built on the meta device its memory and its first weights.

    Convolutions are He-normal by fan-out, linear layers N(0, 0.01), biases zero, batch norms the
    identity. Built on the meta device because modules otherwise draw from the global state.
    """
    # A caller who only counts parameters asks for the meta device and pays for no memory.
    counting = torch.get_default_device().type == "meta"
    module.to_empty(device="meta" if counting else "cpu")
    for part in module.modules():
        if isinstance(part, nn.Conv2d):
            nn.init.kaiming_normal_(
                part.weight, mode="fan_out", nonlinearity="relu", generator=generator
            )
        elif isinstance(part, nn.Linear):
            nn.init.normal_(part.weight, std=0.01, generator=generator)
        elif isinstance(part, nn.BatchNorm2d):
            part.reset_parameters()
        if isinstance(part, nn.Conv2d | nn.Linear) and part.bias is not None:
            nn.init.zeros_(part.bias)
