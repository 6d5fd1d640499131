"""VGG-16 with batch norm."""

from __future__ import annotations

import torch
from torch import nn

from deepcluster.networks.plain import PlainConvnet, convolution
from deepcluster.networks.weights import draw_weights

# Filters of each convolution; after each row the image is halved.
_STAGES = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))


class VGG16(PlainConvnet):
    """Thirteen 3 x 3 convolutions in five stages, fc6 and fc7; B x width comes out."""

    def __init__(
        self,
        channels: int,
        input_size: int,
        *,
        dropout: float = 0.5,
        width: int = 4096,
        generator: torch.Generator,
    ) -> None:
        with torch.device("meta"):
            super().__init__(_convolutions(channels))
            self.fc6 = nn.Sequential(
                nn.Linear(self.flat_width(input_size), width), nn.ReLU(inplace=True)
            )
            self.fc7 = nn.Sequential(nn.Dropout(dropout), nn.Linear(width, width))
        self.width = width
        draw_weights(self, generator)


def _convolutions(channels: int) -> dict[str, nn.Module]:
    """conv1 to conv13, and a pool after the last convolution of each stage, numbered like it."""
    chain: dict[str, nn.Module] = {}
    number = 0
    for stage in _STAGES:
        for filters in stage:
            number += 1
            chain[f"conv{number}"] = convolution(channels, filters, 3, padding=1)
            channels = filters
        chain[f"pool{number}"] = nn.MaxPool2d(2, stride=2)
    return chain
