"""Many classifiers trained at once: one for each candidate step size and weight decay.

Every parameter has candidates along its first axis, so that many are one product, and losses are
added up, so that no classifier's gradient sees another.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
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
    """Classifiers of the same classes: one for each layer and candidate."""

    @property
    def shape(self) -> tuple[int, int]:
        """Layers and candidates."""
        ...

    @property
    def parameters(self) -> list[list[Tensor]]:
        """What is learnt, in parts of equally many layers: their candidates x ..., layer by layer.

        Of two axes are the biases.
        """
        ...

    def scores(self, features: Sequence[Tensor], dropout_seed: int | None = None) -> Tensor:
        """Layers x B x candidates x classes, from B x width of each layer.

        Where a seed is given, with dropout, if there is any.
        """
        ...


class LinearReadout:
    """A weight for each number and class, and a bias for each class; all zero at first.

    All layers are one product where starting one takes longer than computing it: on a GPU. They are
    filled up to the widest there.
    """

    def __init__(
        self,
        candidates: int,
        classes: int,
        widths: Sequence[int],
        device: torch.device,
        dtype: torch.dtype = torch.float32,
        in_one: bool | None = None,
    ) -> None:
        """The widths are those of the layers."""
        self.shape, self._classes = (len(widths), candidates), classes
        self._in_one = device.type == "cuda" if in_one is None else in_one
        self._widest = max(widths)
        parts = [self._widest] if self._in_one else widths
        each = len(widths) // len(parts) * candidates

        def zeros(*shape: int) -> Tensor:
            return torch.zeros(shape, device=device, dtype=dtype, requires_grad=True)

        self.parameters = [[zeros(each, classes, width), zeros(each, classes)] for width in parts]

    def scores(self, features: Sequence[Tensor], dropout_seed: int | None = None) -> Tensor:
        """Layers x B x candidates x classes."""
        candidates = self.shape[1]
        rows = [one.to(self.parameters[0][0].dtype) for one in features]
        if self._in_one:
            rows = [F.pad(one, (0, self._widest - one.shape[1])) for one in rows]
            rows = [torch.stack(rows)]
        # The weights first, so that their gradient comes in their own layout.
        every = [
            torch.baddbmm(
                bias.view(-1, candidates * self._classes, 1),
                weight.view(-1, candidates * self._classes, weight.shape[2]),
                part.view(-1, *part.shape[-2:]).transpose(1, 2),
            )
            for (weight, bias), part in zip(self.parameters, rows, strict=True)
        ]
        both = torch.cat(every).unflatten(1, (candidates, self._classes))
        return both.permute(0, 3, 1, 2)


class StackedSGD:
    """Stochastic gradient descent with momentum; every candidate has its own step and decay.

    Parameters of lower precision are copies of weights that are kept here in float32.
    """

    def __init__(
        self,
        parameters: Sequence[Sequence[Tensor]],
        candidates: Sequence[Sequence[Candidate]],
        momentum: float,
    ) -> None:
        """The parameters of a readout; of each layer its candidates, equally many of all."""
        self.momentum = momentum
        self._parts = [
            [(one, one.detach().float(), torch.zeros_like(one, dtype=torch.float32)) for one in own]
            for own in parameters
        ]
        device = parameters[0][0].device
        every = torch.tensor(candidates, device=device).reshape(len(parameters), -1, 2)
        self._steps, self._decays = every.movedim(2, 0).contiguous()
        self._move = chosen_move(device)

    @torch.no_grad()
    def step(self, factor: float, world: World) -> None:
        """Move every candidate by its gradient, summed over all processes, and forget it."""
        nothing = torch.zeros_like(self._decays[0])
        every = zip(self._parts, self._steps * factor, self._decays, strict=True)
        for part, steps, decays in every:
            for parameter, weight, velocity in part:
                assert parameter.grad is not None
                gradient = world.sum(parameter.grad)
                own = decays if parameter.ndim > 2 else nothing  # biases are not decayed
                self._move(weight, velocity, gradient, steps, own, self.momentum, parameter)
                parameter.grad = None


Move = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, float, Tensor], None]


def chosen_move(device: torch.device) -> Move:
    """The kernel where there is a GPU with Triton (else the crops have said so), or `move`."""
    if device.type == "cuda":
        with suppress(ImportError):
            from deepcluster.evaluation.sgd_kernel import move_by_kernel

            return move_by_kernel
    return move


def move(
    weight: Tensor,
    velocity: Tensor,
    gradient: Tensor,
    steps: Tensor,
    decays: Tensor,
    momentum: float,
    copy: Tensor,
) -> None:
    """One step of torch's SGD in place, with a step and a decay for each candidate.

    `copy` gets the new weights, where it is not the weights themselves.
    """
    along_first = (-1, *[1] * (weight.ndim - 1))
    torch.add(gradient, velocity, alpha=momentum, out=velocity)
    velocity.addcmul_(weight, decays.view(along_first))
    weight.addcmul_(velocity, steps.view(along_first), value=-1)
    if copy.data_ptr() != weight.data_ptr():
        copy.copy_(weight)


def loss_of(scores: Tensor, classes: Tensor, total: int) -> Tensor:
    """The cross-entropy over `total` images, added up over layers and candidates."""
    labels = classes[:, None].expand(scores.shape[:3])
    return F.cross_entropy(scores.flatten(0, 2).float(), labels.flatten(), reduction="sum") / total


def step_factor(schedule: Schedule, progress: float) -> float:
    """What the step size is multiplied by when this share of training, from 0 to 1, is done."""
    match schedule:
        case "cosine":
            return (1 + math.cos(math.pi * progress)) / 2
        case "steps":
            return 0.1 ** math.floor(3 * progress)
        case "constant":
            return 1.0
