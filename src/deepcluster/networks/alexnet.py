"""AlexNet as the paper has it: batch norm in place of local response normalisation."""

from __future__ import annotations

import torch
from torch import nn

from deepcluster.networks.plain import PlainConvnet, convolution
from deepcluster.networks.weights import draw_weights


class AlexNet(PlainConvnet):
    """Five convolutions (96, 256, 384, 384, 256 filters), fc6 and fc7; B x width comes out."""

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
            super().__init__(
                {
                    "conv1": convolution(channels, 96, 11, stride=4, padding=2),
                    "pool1": nn.MaxPool2d(3, stride=2),
                    "conv2": convolution(96, 256, 5, padding=2),
                    "pool2": nn.MaxPool2d(3, stride=2),
                    "conv3": convolution(256, 384, 3, padding=1),
                    "conv4": convolution(384, 384, 3, padding=1),
                    "conv5": convolution(384, 256, 3, padding=1),
                    "pool5": nn.MaxPool2d(3, stride=2),
                }
            )
            self.fc6 = nn.Sequential(
                nn.Dropout(dropout),
                nn.Linear(self.flat_width(input_size), width),
                nn.ReLU(inplace=True),
            )
            self.fc7 = nn.Sequential(nn.Dropout(dropout), nn.Linear(width, width))
        self.width = width
        draw_weights(self, generator)
