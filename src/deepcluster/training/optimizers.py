"""Two optimizers: one for the trunk, which stays, and one for the head, which does not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.optim import SGD

from deepcluster.networks import Network
from deepcluster.training.schedule import Schedule, step_factor


@dataclass(frozen=True)
class Optimization:
    """Stochastic gradient descent; the defaults are the paper's: constant step, a head an epoch."""

    step: float = 0.05
    """Step size (learning rate); with a schedule, its largest."""

    schedule: Schedule = "constant"
    """constant (the paper), or cosine: the step falls to zero over the epochs or minutes given. A \
    head that lives one epoch keeps its own, or it would learn nothing in the last ones."""

    fall: float = 1.0
    """Of cosine: the last share of the run, in which the step falls; until then it is constant."""

    warmup: float = 0.0
    """Epochs over which the step rises from zero, before all else."""

    momentum: float = 0.9
    """Momentum of the trunk's optimizer."""

    weight_decay: float = 1e-5
    """L2 penalty on the weights."""

    batch: int = 256
    """Images per step, over all processes together."""

    head_momentum: float = 0.0
    """Momentum of the head's optimizer; the head lives one epoch."""

    head_step: float = 1.0
    """Step of the head's optimizer, as a multiple of the trunk's."""

    head: Literal["fresh", "matched"] = "fresh"
    """What follows a clustering: a fresh head (the paper), or the last one, its rows and their \
    momentum moved to the clusters that hold most of the same images."""

    smoothing: float = 0.0
    """Share of the label that is spread over all clusters (label smoothing)."""

    def for_trunk(self, network: Network) -> SGD:
        """The optimizer of the trunk; it lives as long as the run."""
        return self._over(network.trunk, self.step, self.momentum)

    def for_head(self, network: Network) -> SGD:
        """The optimizer of the head; as fresh as the head itself."""
        return self._over(network.head, self.step * self.head_step, self.head_momentum)

    def _over(self, module: nn.Module, step: float, momentum: float) -> SGD:
        parameters = list(module.parameters())
        on_gpu, place = all(one.is_cuda for one in parameters), parameters[0].device
        return SGD(
            parameters,
            # On a GPU a number in its memory: there a recorded step finds what it has become.
            lr=torch.full((), step, dtype=torch.float32, device=place) if on_gpu else step,
            momentum=momentum,
            weight_decay=self.weight_decay,
            fused=True if on_gpu else None,  # of all numbers at once; the CPU keeps its own way
        )

    def set_step(
        self, trunk: SGD, head: SGD, epochs_done: float, share: float, *, head_stays: bool = True
    ) -> None:
        """Give both optimizers the step size of this moment of the run.

        Args:
            trunk: The optimizer of the trunk.
            head: The optimizer of the head.
            epochs_done: With the part of the one under way.
            share: How much of the schedule is behind, from 0 to 1.
            head_stays: Whether the head outlives its epoch. One that does not has all to learn in
                it, however late it is in the run, and its step does not fall.
        """

        def factor(schedule: Schedule) -> float:
            done = {"epochs_done": epochs_done, "share": share}
            return step_factor(schedule, self.warmup, fall=self.fall, **done)

        size = self.step * factor(self.schedule)
        of_head = self.step * self.head_step * factor(self.schedule if head_stays else "constant")
        for optimizer, its in ((trunk, size), (head, of_head)):
            group = optimizer.param_groups[0]
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(its)
            else:
                group["lr"] = its


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
        # In the parameter's own layout, without which a GPU's fused step refuses it.
        optimizer.state[parameter]["momentum_buffer"] = torch.empty_like(parameter).copy_(buffer)
