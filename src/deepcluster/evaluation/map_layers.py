"""Which layers of a network have maps of images of any size, and the maps."""

from __future__ import annotations

import torch
from torch import Tensor

from deepcluster.evaluation.bench import Bench, frozen
from deepcluster.evaluation.linear_probe import chosen_layers
from deepcluster.evaluation.whole_images import LEAST
from deepcluster.images.crops import normalize
from deepcluster.networks import Network
from deepcluster.runtime.errors import UsageError


def map_layer(network: Network, asked: str | None, bench: Bench) -> str:
    """The layer asked for, or the last one that has maps."""
    if asked is not None:
        chosen_layers(network, (asked,))
        channels_of(network, asked, bench)
        return asked
    for name in reversed(list(network.layers)):
        try:
            channels_of(network, name, bench)
        except UsageError:
            continue
        return name
    raise UsageError("no layer of this network has maps, which R-MAC needs")


def channels_of(network: Network, layer: str, bench: Bench) -> int:
    """How many maps a layer has."""
    side = 2 * LEAST  # images of other sizes must do, or the layer has no use here
    blank = torch.zeros(1, 3, side, side, dtype=torch.uint8)
    try:
        with frozen(network), torch.no_grad():
            maps = maps_of(network, layer, blank, bench)
    except (RuntimeError, AssertionError) as error:
        raise UsageError(
            f"--layer {layer}: this layer takes images of one size only; choose one before it"
        ) from error
    if maps.ndim != 4:
        raise UsageError(f"--layer {layer}: this layer has no maps, which R-MAC needs")
    return maps.shape[1]


def maps_of(network: Network, layer: str, pixels: Tensor, bench: Bench) -> Tensor:
    """B x C x h x w: what a layer says of images, B x 3 x height x width, uint8."""
    device, autocast = bench.world.device, bench.autocast
    inputs = normalize(pixels.to(device, non_blocking=True))
    if device.type == "cuda":
        inputs = inputs.contiguous(memory_format=torch.channels_last)
    with torch.autocast(device.type, autocast, enabled=autocast is not None):
        return network.activations(inputs, [layer])[layer]
