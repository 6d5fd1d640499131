"""First weights: a function of the generator alone, never of torch's global random state."""

from __future__ import annotations

import torch
from torch import nn


def draw_weights(module: nn.Module, generator: torch.Generator) -> None:
    """Gives a module built on the meta device its memory and its first weights.

    Convolutions are He-normal by fan-out, linear layers N(0, 0.01), biases zero, batch norms the
    identity. Built on the meta device because modules otherwise draw from the global state.
    """
    if torch.get_default_device().type == "meta":
        return  # to a caller who only counts parameters, who pays for no memory
    for part in module.modules():
        # As module.to_empty does it, without half of torch's compiler, which that loads.
        for name, weight in part.named_parameters(recurse=False):
            setattr(
                part,
                name,
                nn.Parameter(torch.empty(weight.shape, dtype=weight.dtype, device="cpu")),
            )
        for name, figure in part.named_buffers(recurse=False):
            setattr(part, name, torch.empty(figure.shape, dtype=figure.dtype, device="cpu"))
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
