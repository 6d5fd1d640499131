"""A network as one of its layers sees it: an activation, small enough to be clustered."""

from __future__ import annotations

import math

from torch import Tensor, nn
from torch.nn import functional as F

from deepcluster.networks.many_views import ManyViews
from deepcluster.networks.network import Network
from deepcluster.runtime.errors import UsageError

MOST = 4096
"""How many numbers of an image are clustered at most: as many as fc7 has."""


class LayerView(nn.Module):
    """B x at most 4,096: the activation of a layer; maps are averaged over a grid of squares."""

    def __init__(self, network: Network, layer: str) -> None:
        super().__init__()
        if layer not in network.layers:
            raise UsageError(
                f"--network.clustered {layer}: no layer is called so; there are top, "
                f"{', '.join(network.layers)}"
            )
        self.network = network
        self.layer = layer
        self.train(network.training)

    def forward(self, images: Tensor) -> Tensor:
        """One vector an image."""
        activation = self.network.activations(images, [self.layer])[self.layer]
        if activation.ndim == 4:
            activation = grid_averaged(activation)
        elif activation.ndim != 2:
            raise UsageError(
                f"--network.clustered {self.layer}: this layer gives no maps; choose another"
            )
        return activation.flatten(1)


def grid_averaged(maps: Tensor) -> Tensor:
    """B x C x h x w: maps averaged over squares, as many as make at most `MOST` numbers."""
    side = max(1, math.isqrt(MOST // maps.shape[1]))
    down, across = (min(side, extent) for extent in maps.shape[2:])
    return F.adaptive_avg_pool2d(maps, (down, across))


def looked_at(network: Network, layer: str, views: int = 1) -> nn.Module:
    """The module whose output is clustered.

    Args:
        network: All of it.
        layer: `top` for what the trunk gives, or one of its layers.
        views: Of an image, over which that is averaged.
    """
    seen = network.trunk if layer == "top" else LayerView(network, layer)
    return seen if views == 1 else ManyViews(seen, views)
