"""A linear classifier on each frozen layer (paper, section 4.2; protocol of Zhang et al., 2017)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from deepcluster.evaluation.bench import Bench
from deepcluster.evaluation.candidates import LinearReadout
from deepcluster.evaluation.frozen_features import FrozenFeatures
from deepcluster.evaluation.labelled_images import LabelledImages
from deepcluster.evaluation.pooling import pooled
from deepcluster.evaluation.probe import Choices, Probe, probed
from deepcluster.evaluation.probe_result import ProbeResult
from deepcluster.networks import Network
from deepcluster.networks.plain import PlainConvnet
from deepcluster.runtime.errors import UsageError


@dataclass(frozen=True)
class LinearProbe(Probe):
    """Linear classifiers on frozen layers, all learnt together."""

    layers: tuple[str, ...] = ()
    """Which layers; if not given every convolution of alexnet and vgg16, all layers of others."""

    def __call__(
        self,
        network: Network,
        train: LabelledImages,
        test: LabelledImages,
        bench: Bench,
        choices: Choices | None = None,
    ) -> ProbeResult:
        """What a linear classifier on each layer reaches; the network stays as it is."""
        names = chosen_layers(network, self.layers)
        layers = "1 layer" if len(names) == 1 else f"{len(names)} layers"
        count = len(self.steps) * len(self.decays)
        bench.display.say(f"{layers}, {'1 candidate' if count == 1 else f'{count} candidates'}")

        def read(images: Tensor) -> dict[str, Tensor]:
            found = network.activations(images, names)
            return {name: pooled(maps) for name, maps in found.items()}

        def new_readout(candidates: int, widths: Sequence[int]) -> LinearReadout:
            dtype = bench.autocast or torch.float32
            return LinearReadout(candidates, len(train.names), widths, bench.world.device, dtype)

        features = FrozenFeatures(network, read, bench, self.scaling)
        return probed(self, features, new_readout, train, test, choices)


def chosen_layers(network: Network, asked: tuple[str, ...]) -> list[str]:
    """The layers asked for, or else all (of plain convnets all convolutions), in their order."""
    every = list(network.layers)
    unknown = [name for name in asked if name not in every]
    if unknown:
        raise UsageError(f"no layer is called {unknown[0]!r}; there are {', '.join(every)}")
    if asked:
        return [name for name in every if name in asked]
    if isinstance(network.trunk.convnet, PlainConvnet):
        return [name for name in every if name.startswith("conv")]
    return every  # torchvision calls some layers of a network conv and others not
