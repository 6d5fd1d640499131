"""The network that is trained: a front, a convnet up to the feature, a head that comes and goes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from difflib import get_close_matches
from typing import Any, Literal

import torch
from torch import Tensor, nn

from deepcluster.networks.alexnet import AlexNet
from deepcluster.networks.backbone import Backbone, backbone_names
from deepcluster.networks.plain import PlainConvnet
from deepcluster.networks.sobel import Sobel
from deepcluster.networks.vgg16 import VGG16
from deepcluster.networks.weights import draw_weights
from deepcluster.runtime.errors import UsageError

Front = Literal["sobel", "rgb"]


class Trunk(nn.Module):
    """B x width: the features of normalised images, B x 3 x H x W (or B x 1 before a Sobel)."""

    def __init__(self, front: nn.Module, convnet: PlainConvnet | Backbone) -> None:
        super().__init__()
        self.front = front
        self.convnet = convnet

    def forward(self, images: Tensor) -> Tensor:
        """One feature vector an image."""
        return self.convnet(self.front(images))


class Network(nn.Module):
    """B x k scores from images; without a head (nn.Identity) what the head would be given.

    `activation` stands between feature and head. The paper's networks are trained through the
    ReLU of fc7 but clustered without it, so it belongs to neither the trunk nor the head.
    """

    def __init__(
        self, front: nn.Module, convnet: PlainConvnet | Backbone, activation: nn.Module
    ) -> None:
        super().__init__()
        self.trunk = Trunk(front, convnet)
        self.activation = activation
        self.head: nn.Module = nn.Identity()
        self.width = convnet.width

    def forward(self, images: Tensor) -> Tensor:
        """One score an image and cluster."""
        return self.head(self.activation(self.trunk(images)))

    @property
    def front(self) -> nn.Module:
        """The fixed transformation before the convnet: Sobel, or nothing."""
        return self.trunk.front

    @property
    def layers(self) -> dict[str, nn.Module]:
        """The layers by name, from the image on; the output of each is its activation."""
        return self.trunk.convnet.layers

    def activations(self, images: Tensor, names: Sequence[str]) -> dict[str, Tensor]:
        """The activation of each named layer; nothing deeper than the last of them is computed.

        Convolutions may therefore be asked about images of any size.
        """
        layers = self.layers
        unknown = [name for name in names if name not in layers]
        if unknown:
            raise UsageError(f"no layer is called {unknown[0]!r}; there are {', '.join(layers)}")
        found: dict[str, Tensor] = {}

        def keeps(name: str) -> Callable[[nn.Module, Any, Tensor], None]:
            def keep(_module: nn.Module, _inputs: Any, output: Tensor) -> None:
                found[name] = output
                if len(found) == len(set(names)):
                    raise _AllFound

            return keep

        hooks = [layers[name].register_forward_hook(keeps(name)) for name in set(names)]
        try:
            with suppress(_AllFound):
                self.trunk(images)
        finally:
            for hook in hooks:
                hook.remove()
        return {name: found[name] for name in names}


class _AllFound(BaseException):
    """Ends a forward pass; no failure, so that `except Exception` in a module lets it through."""


def fresh_head(width: int, count: int, generator: torch.Generator) -> nn.Linear:
    """A linear layer from features to `count` clusters: weights N(0, 0.01), biases zero."""
    head = nn.Linear(width, count, device="meta")
    draw_weights(head, generator)
    return head


def build_network(
    arch: str,
    front: Front,
    input_size: int,
    dropout: float = 0.5,
    width: int = 4096,
    *,
    generator: torch.Generator,
) -> Network:
    """A network with first weights and no head yet, on the CPU.

    Args:
        arch: "alexnet" and "vgg16" are the paper's; any other name of `backbone_names()` is
            torchvision's, and so are "torchvision/alexnet" and "torchvision/vgg16".
        front: "sobel" gives the convnet two maps of contrast, "rgb" the three colours.
        input_size: side of the square images.
        dropout: of the paper's networks; a torchvision network keeps its own.
        width: of fc6 and fc7 of the paper's networks; that of a torchvision network is its own.
        generator: all the randomness there is.
    """
    before, channels = {"sobel": (Sobel(), 2), "rgb": (nn.Identity(), 3)}[front]
    if arch == "alexnet" or arch == "vgg16":
        kind = AlexNet if arch == "alexnet" else VGG16
        convnet = kind(channels, input_size, dropout=dropout, width=width, generator=generator)
        return Network(before, convnet, activation=nn.ReLU())
    name = arch.removeprefix("torchvision/")
    if name not in backbone_names():
        close = get_close_matches(name.lower(), backbone_names())
        hint = (
            f"did you mean {' or '.join(close)}?" if close else "see torchvision's list of models"
        )
        raise UsageError(f"no network is called {arch!r}; {hint}")
    backbone = Backbone(name, channels, input_size, generator=generator)
    return Network(before, backbone, activation=nn.Identity())
