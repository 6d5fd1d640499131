"""Two optimizers: one for the trunk, which stays, and one for the head, which does not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor
from torch.optim import SGD

from deepcluster.networks import Network


@dataclass(frozen=True)
class Optimization:
    """Stochastic gradient descent as in the paper: constant step, momentum, weight decay."""

    step: float = 0.05
    """Step size (learning rate), constant."""

    momentum: float = 0.9
    """Momentum of the trunk's optimizer."""

    weight_decay: float = 1e-5
    """L2 penalty on the weights."""

    batch: int = 256
    """Images per step, over all processes together."""

    head_momentum: float = 0.0
    """Momentum of the head's optimizer; the head lives one epoch."""

    def for_trunk(self, network: Network) -> SGD:
        """The optimizer of the trunk; it lives as long as the run."""
        return SGD(
            network.trunk.parameters(),
            lr=self.step,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
        )

    def for_head(self, network: Network) -> SGD:
        """The optimizer of the head; as fresh as the head itself."""
        return SGD(
            network.head.parameters(),
            lr=self.step,
            momentum=self.head_momentum,
            weight_decay=self.weight_decay,
        )


def momenta(optimizer: SGD) -> dict[str, Tensor]:
    """The momentum of each parameter, by the parameter's place; empty before the first step."""
    parameters = optimizer.param_groups[0]["params"]
    found = {str(i): optimizer.state[p].get("momentum_buffer") for i, p in enumerate(parameters)}
    return {place: buffer for place, buffer in found.items() if buffer is not None}


def restore_momenta(optimizer: SGD, kept: Mapping[str, Tensor]) -> None:
    """Put back what `momenta` gave."""
    parameters = optimizer.param_groups[0]["params"]
    for place, buffer in kept.items():
        parameter = parameters[int(place)]
        optimizer.state[parameter]["momentum_buffer"] = buffer.to(parameter.device).clone()
