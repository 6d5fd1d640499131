"""What torchvision calls the weights of a network of ours."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from deepcluster.networks import VGG16, Backbone, Network


def torchvision_names(network: Network) -> dict[str, str]:
    """Our name of every weight in the trunk to torchvision's; empty where it has none."""
    convnet = network.trunk.convnet
    if isinstance(convnet, Backbone):
        return {f"convnet.model.{name}": name for name in convnet.model.state_dict()}
    return dict(_of_vgg16(convnet)) if isinstance(convnet, VGG16) else {}


def _of_vgg16(convnet: VGG16) -> Iterator[tuple[str, str]]:
    """Those of vgg16_bn: convolution, batch norm and ReLU in a row, pools between them."""
    place = 0
    for name, part in convnet.convolutions.named_children():
        if not isinstance(part, nn.Sequential):
            place += 1
            continue
        for offset in (0, 1):
            for kind in part[offset].state_dict():
                yield (
                    f"convnet.convolutions.{name}.{offset}.{kind}",
                    f"features.{place + offset}.{kind}",
                )
        place += len(part)
    for ours, theirs in (("fc6.0", 0), ("fc7.1", 3)):
        for kind in ("weight", "bias"):
            yield f"convnet.{ours}.{kind}", f"classifier.{theirs}.{kind}"
