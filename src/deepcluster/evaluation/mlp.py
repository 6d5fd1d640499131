"""fc6 to fc8 learnt anew on frozen convolutions (paper, supplement: "MLP on ImageNet")."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from deepcluster.evaluation.bench import Bench
from deepcluster.evaluation.frozen_features import FrozenFeatures
from deepcluster.evaluation.labelled_images import LabelledImages
from deepcluster.evaluation.limits import refuse_beyond
from deepcluster.evaluation.probe import Probe, probed
from deepcluster.evaluation.probe_result import ProbeResult
from deepcluster.networks import Network
from deepcluster.networks.plain import PlainConvnet
from deepcluster.runtime.seeds import generator

_HIDDEN = 4096  # of networks that have no fc6 and fc7 of their own


@dataclass(frozen=True)
class MLPProbe(Probe):
    """Two hidden layers and a classifier on the frozen convolutions."""

    steps: tuple[float, ...] = (0.003, 0.01, 0.03, 0.1)
    """Candidate step sizes (learning rates)."""

    decays: tuple[float, ...] = (5e-4,)
    """Candidate weight decays."""

    dropout: float = 0.5
    """Share of the inputs of fc6 and fc7 that is dropped while learning."""

    hidden: int | None = None
    """Width of fc6 and fc7; the network's own if not given, 4096 where it has none."""

    def validate(self) -> None:
        """Refuse what cannot be carried out."""
        super().validate()
        refuse_beyond(
            ("--dropout", f"{self.dropout:g}", 0 <= self.dropout < 1, "0 to below 1"),
            ("--hidden", self.hidden, self.hidden is None or self.hidden >= 1, "at least 1"),
        )

    def __call__(
        self, network: Network, train: LabelledImages, test: LabelledImages, bench: Bench
    ) -> ProbeResult:
        """What the classifier reaches; the network stays as it is."""
        hidden = hidden_width(network, self.hidden)

        def new_readout(candidates: int, given: Sequence[int]) -> MLPReadout:
            widths = (given[0], hidden, len(train.names))
            device, are_unit = bench.world.device, self.scaling != "none"
            return MLPReadout(candidates, widths, self.dropout, self.seed, device, are_unit)

        features = FrozenFeatures(network, read_convolutions(network), bench, self.scaling)
        return probed(self, features, new_readout, train, test)


def hidden_width(network: Network, asked: int | None) -> int:
    """Of fc6 and fc7: as asked, else the network's own, else AlexNet's."""
    if asked is not None:
        return asked
    return network.width if isinstance(network.trunk.convnet, PlainConvnet) else _HIDDEN


def read_convolutions(network: Network) -> Callable[[Tensor], dict[str, Tensor]]:
    """What fc6 is given: the maps after the last pooling, or a torchvision network's feature."""
    convnet = network.trunk.convnet

    def read(images: Tensor) -> dict[str, Tensor]:
        if isinstance(convnet, PlainConvnet):
            return {"fc8": convnet.convolutions(network.front(images)).flatten(1)}
        return {"fc8": network.trunk(images)}

    return read


class MLPReadout:
    """fc6, fc7 and fc8 for each candidate, all of which begin with the same weights.

    They also drop the same numbers: a candidate learns what it would learn alone.
    """

    def __init__(
        self,
        candidates: int,
        widths: tuple[int, int, int],
        dropout: float,
        seed: int,
        device: torch.device,
        are_unit: bool = True,
    ) -> None:
        """Rows have a length of about 1 (`are_unit`), or that of what the network says."""
        self._are_unit = are_unit
        width, hidden, classes = widths
        self.shape, self.dropout = (1, candidates), dropout
        self.parameters: list[list[Tensor]] = [[]]
        shapes = {"fc6": (hidden, width), "fc7": (hidden, hidden), "fc8": (classes, hidden)}
        for name, shape in shapes.items():
            # He's scale for layers with a ReLU; the last one begins small, as every head does.
            scale = 0.01 if name == "fc8" else (2 / shape[1]) ** 0.5
            first = torch.randn(shape, generator=generator(seed, f"probe-{name}")) * scale
            weight = first.to(device).expand(candidates, *shape).clone()
            bias = torch.zeros(candidates, shape[0], device=device)
            self.parameters[0] += [weight.requires_grad_(), bias.requires_grad_()]

    def scores(self, features: Sequence[Tensor], dropout_seed: int | None = None) -> Tensor:
        """1 x B x candidates x classes, from B x width of the one layer there is."""
        ((w6, b6, w7, b7, w8, b8),), (rows,) = self.parameters, features
        randomness = None
        if dropout_seed is not None and self.dropout:
            randomness = torch.Generator(rows.device).manual_seed(dropout_seed)
        if self._are_unit:  # and the hidden layers expect numbers of about 1
            rows = rows * rows.shape[1] ** 0.5
        rows = rows * self._kept(rows, randomness)
        first = F.linear(rows, w6.flatten(0, 1), b6.flatten()).relu().unflatten(1, b6.shape)
        first = first * self._kept(first[:, :1], randomness)
        second = torch.baddbmm(b7[:, None], first.transpose(0, 1), w7.transpose(1, 2)).relu()
        return torch.baddbmm(b8[:, None], second, w8.transpose(1, 2)).transpose(0, 1)[None]

    def _kept(self, like: Tensor, randomness: torch.Generator | None) -> Tensor:
        """What to multiply by: zero where a number is dropped, else what makes up for it."""
        if randomness is None:
            return torch.ones((), dtype=like.dtype, device=like.device)
        drawn = torch.rand(like.shape, generator=randomness, device=like.device)
        return (drawn >= self.dropout).to(like.dtype) / (1 - self.dropout)
