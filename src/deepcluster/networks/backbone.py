"""Any classification network of torchvision, without its classifier."""

from __future__ import annotations

from itertools import takewhile
from typing import Any

import torch
from torch import Tensor, nn

from deepcluster.runtime.errors import UsageError

# Modules that only hold the blocks of a network: they are opened when its layers are named.
_DRAWERS = ("features", "layers", "blocks", "trunk_output", "encoder", "encoder.layers")


class Backbone(nn.Module):
    """B x width: what the network hands to the first linear layer of its classifier.

    Only torchvision's first weights are drawn, none are downloaded. Its own dropout stays.
    """

    def __init__(
        self, name: str, channels: int, input_size: int, *, generator: torch.Generator
    ) -> None:
        super().__init__()
        from torchvision.models import get_model  # half a second, and few runs need it

        seed = int(torch.randint(2**62, (), generator=generator, device="cpu"))
        try:
            # torchvision draws from the global state, which is lent to it and put back.
            # Only the CPU's: torch.manual_seed would reseed every GPU as well.
            with torch.device("cpu"), torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(seed)
                self.model: nn.Module = get_model(
                    name, weights=None, **torchvision_arguments(name, input_size)
                )
            _cut_classifier(self.model)
            _keep_channels(self.model, channels)
            self.width = self._found_width(channels, input_size)
        except (AssertionError, RuntimeError, ValueError) as error:
            raise UsageError(
                f"{name} does not take images of {input_size} x {input_size} pixels: {error}"
            ) from error

    def forward(self, images: Tensor) -> Tensor:
        """One feature vector an image."""
        return self.model(images)

    @property
    def layers(self) -> dict[str, nn.Module]:
        """The network's top-level blocks under torchvision's names, and "pooled", the feature.

        A layer is a module that has parts, or a ReLU, and stands directly in the network or in a
        module that merely holds all its blocks (`features`, `layers`, `blocks`, `trunk_output`,
        `encoder.layers`): relu, layer1 ... layer4 of a ResNet, features.0 ... of an EfficientNet.
        Its activation has the shape the network gives it (a transformer's is not B x C x H x W).
        """
        *_, classifier = dict(self.model.named_children())
        blocks = {
            name: module
            for name, module in self.model.named_modules()
            if name.rpartition(".")[0] in ("", *_DRAWERS)
            and name not in ("", *_DRAWERS, classifier)
            and (isinstance(module, nn.ReLU) or len(list(module.children())) > 0)
        }
        return {**blocks, "pooled": self}

    @torch.no_grad()
    def _found_width(self, channels: int, input_size: int) -> int:
        self.eval()
        width = self(torch.zeros(1, channels, input_size, input_size, device="cpu")).shape[1]
        self.train()
        return int(width)


def backbone_names() -> list[str]:
    """Every name a Backbone can have."""
    from torchvision import models

    return list(models.list_models(module=models))


def torchvision_arguments(name: str, input_size: int) -> dict[str, Any]:
    """What some networks must be told when they are built."""
    if name in ("googlenet", "inception_v3"):
        return {"aux_logits": False, "init_weights": False}
    if name.startswith("vit_"):
        return {"image_size": input_size}
    if name.startswith("maxvit_"):
        return {"input_size": (input_size, input_size)}
    return {}


def _cut_classifier(model: nn.Module) -> None:
    """Drops the first linear layer of the classifier, the model's last child, and what follows."""
    name, classifier = list(model.named_children())[-1]
    parts = [classifier] if isinstance(classifier, nn.Linear) else list(classifier.children())
    kept = list(takewhile(lambda part: not isinstance(part, nn.Linear | nn.Conv2d), parts))
    if isinstance(parts[len(kept)], nn.Conv2d):
        # SqueezeNet classifies every place and averages after; without that, average here.
        kept.append(nn.AdaptiveAvgPool2d(1))
    setattr(model, name, nn.Sequential(*kept))


def _keep_channels(model: nn.Module, channels: int) -> None:
    """Narrows the first convolution to `channels`; its weights stay as torchvision drew them."""
    first = next(module for module in model.modules() if isinstance(module, nn.Conv2d))
    first.weight = nn.Parameter(first.weight.detach()[:, :channels].clone())
    first.in_channels = channels
