"""Many classifiers trained at once: one for each candidate step size and weight decay.

Every tensor has the candidates along its first axis, so that all of them are one product, and
losses are added up, so that no candidate's gradient sees another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from deepcluster.runtime.world import World

Schedule = Literal["cosine", "steps", "constant"]


class Candidate(NamedTuple):
    """One choice of the hyper-parameters."""

    step: float
    decay: float


def grid(steps: Sequence[float], decays: Sequence[float]) -> list[Candidate]:
    """Every step with every weight decay."""
    return [Candidate(step, decay) for step, decay in product(steps, decays)]


class Readout(Protocol):
    """Classifiers of the same features, one for each candidate."""

    @property
    def parameters(self) -> list[Tensor]:
        """What is learnt, candidates along the first axis; of two axes are the biases."""
        ...

    def scores(self, features: Tensor, dropout_seed: int | None = None) -> Tensor:
        """B x candidates x classes; where a seed is given, with dropout, if there is any."""
        ...


class LinearReadout:
    """A weight for each number and class, and a bias for each class; all zero at first."""

    def __init__(self, candidates: int, classes: int, width: int, device: torch.device) -> None:
        self.weight = torch.zeros(candidates, classes, width, device=device, requires_grad=True)
        self.bias = torch.zeros(candidates, classes, device=device, requires_grad=True)

    @property
    def parameters(self) -> list[Tensor]:
        """Weights and biases."""
        return [self.weight, self.bias]

    def scores(self, features: Tensor, dropout_seed: int | None = None) -> Tensor:
        """B x candidates x classes, in one product for all candidates."""
        every = F.linear(features, self.weight.flatten(0, 1), self.bias.flatten())
        return every.unflatten(1, self.bias.shape)


class StackedSGD:
    """Stochastic gradient descent with momentum, each candidate with its own step and decay."""

    def __init__(
        self, parameters: list[Tensor], candidates: Sequence[Candidate], momentum: float
    ) -> None:
        self.parameters, self.momentum = parameters, momentum
        device = parameters[0].device
        self._steps = torch.tensor([candidate.step for candidate in candidates], device=device)
        self._decays = torch.tensor([candidate.decay for candidate in candidates], device=device)
        self._velocities = [torch.zeros_like(parameter) for parameter in parameters]

    @torch.no_grad()
    def step(self, factor: float, world: World) -> None:
        """Move every candidate by its gradient, summed over all processes, and forget it."""
        for parameter, velocity in zip(self.parameters, self._velocities, strict=True):
            assert parameter.grad is not None
            gradient = world.sum(parameter.grad)
            along_first = (-1, *[1] * (parameter.ndim - 1))
            if parameter.ndim > 2:  # biases are not decayed
                gradient.addcmul_(parameter, self._decays.view(along_first))
            velocity.mul_(self.momentum).add_(gradient)
            parameter.addcmul_(velocity, (self._steps * factor).view(along_first), value=-1)
            parameter.grad = None


def loss_of(scores: Tensor, classes: Tensor, total: int) -> Tensor:
    """The cross-entropy of each candidate over `total` images, added up over the candidates."""
    labels = classes[:, None].expand(scores.shape[:2])
    return F.cross_entropy(scores.flatten(0, 1).float(), labels.flatten(), reduction="sum") / total


def step_factor(schedule: Schedule, progress: float) -> float:
    """What the step size is multiplied by when this share of training, from 0 to 1, is done."""
    match schedule:
        case "cosine":
            return (1 + math.cos(math.pi * progress)) / 2
        case "steps":
            return 0.1 ** math.floor(3 * progress)
        case "constant":
            return 1.0
