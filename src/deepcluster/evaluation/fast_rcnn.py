"""Fast R-CNN (Girshick, 2015) on a plain convnet: what a region holds, and where exactly."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from deepcluster.evaluation.common_scale import mean_squares, rescale
from deepcluster.evaluation.evaluated import Evaluated
from deepcluster.images.crops import normalize
from deepcluster.networks.plain import PlainConvnet
from deepcluster.runtime.errors import UsageError
from deepcluster.runtime.seeds import generator


class Geometry(NamedTuple):
    """Where the cells of the last maps lie in the image, in pixels counted from 0."""

    stride: float
    """From one cell's centre to the next one's."""
    first: float
    """The centre of the first cell."""

    @staticmethod
    def of(layers: nn.Module) -> Geometry:
        """Of convolutions and poolings one after another."""
        stride, first = 1.0, 0.0
        for layer in layers.modules():
            if isinstance(layer, nn.Conv2d | nn.MaxPool2d):
                side, step, padding = (
                    int(value if isinstance(value, int) else value[0])  # all are square
                    for value in (layer.kernel_size, layer.stride, layer.padding)
                )
                first += stride * ((side - 1) / 2 - padding)
                stride *= step
        return Geometry(stride, first)

    def cells(self, boxes: Tensor, width: int, height: int) -> Tensor:
        """First and last cell of each box, in columns and rows of maps of that size.

        The cells whose centres are nearest to the box's first and last pixel, and all between: a
        box always has a cell. (Caffe's networks pad so that the first centre is 0; these do not.)
        """
        ends = torch.cat([boxes[:, :2], boxes[:, 2:] - 1], dim=1)
        places = ((ends - self.first) / self.stride).round().unflatten(1, (2, 2))
        # One side after the other: a tensor of both would make the host wait for a GPU.
        columns, rows = places[..., 0].clamp(0, width - 1), places[..., 1].clamp(0, height - 1)
        return torch.stack([columns, rows], dim=2).flatten(1)


class FastRCNN(nn.Module):
    """Scores and offsets of regions, from the maps of the last convolution.

    Regions are max-pooled to the grid that fc6 was made for, in the place of the last pooling.
    """

    def __init__(self, subject: Evaluated, classes: int, seed: int) -> None:
        super().__init__()
        network = subject.network
        convnet = network.trunk.convnet
        if not isinstance(convnet, PlainConvnet):
            raise UsageError(
                f"voc-detection needs a network with fc6 and fc7: alexnet or vgg16, not "
                f"{subject.shape.arch}"
            )
        *layers, last = convnet.convolutions
        assert isinstance(last, nn.MaxPool2d)
        self.front = network.front
        self.convolutions = nn.Sequential(*layers)
        self.geometry = Geometry.of(self.convolutions)
        channels = [
            part.out_channels for part in self.convolutions.modules() if isinstance(part, nn.Conv2d)
        ][-1]
        taken = next(part.in_features for part in convnet.fc6 if isinstance(part, nn.Linear))
        self.grid = math.isqrt(taken // channels)
        self.fc6, self.fc7, self.activation = convnet.fc6, convnet.fc7, network.activation
        self.unit = 1.0  # what the maxima of regions are divided by before fc6 reads them
        # One score more than classes, for none of them: the last.
        self.scores = _drawn(convnet.width, classes + 1, 0.01, generator(seed, "detection-scores"))
        self.offsets = _drawn(convnet.width, 4 * classes, 0.001, generator(seed, "detection-boxes"))
        self.to(next(network.parameters()).device)

    def learn(self, what: str, dropout: float) -> None:
        """Set what is learnt: "fc6-8", or "all" with the convolutions, and how much is dropped.

        Dropout is the protocol's, not the network's own: the same for all that are compared.
        Batch norm is a fixed scale and shift in both: few images make poor statistics, and
        Caffe's networks have theirs in the weights.
        """
        self.train()
        self.convolutions.eval()
        self.convolutions.requires_grad_(what == "all")
        for part in self.convolutions.modules():
            if isinstance(part, nn.BatchNorm2d):
                part.requires_grad_(False)
        for part in [*self.fc6.modules(), *self.fc7.modules()]:
            if isinstance(part, nn.Dropout):
                part.p = dropout

    @torch.no_grad()
    def measure(self, pooled: Iterable[Tensor]) -> None:
        """Give what fc6 reads, and what fc6 and fc7 put out, a mean square of 1 over regions.

        By one factor for each layer: since a ReLU keeps factors, fc7 gives what it gave but for a
        factor. One grid of steps then suits every network, also an untrained one.
        """
        was_training = self.training
        self.eval()
        sixth, seventh = (
            next(part for part in layer if isinstance(part, nn.Linear))
            for layer in (self.fc6, self.fc7)
        )

        def outputs(rows: Tensor) -> dict[str, Tensor]:
            first = self.fc6(rows / self.unit)
            return {"fc6": rows, "fc7": first, "scores": self.activation(self.fc7(first))}

        units = mean_squares(outputs(rows) for rows in pooled)
        rescale(sixth, units["fc6"] / self.unit, units["fc7"])
        rescale(seventh, units["fc7"], units["scores"])
        self.unit = units["fc6"]
        self.train(was_training)
        self.convolutions.eval()

    def fronted(self, pixels: Tensor) -> Tensor:
        """What the front makes of one image, 3 x height x width, levels from 0 to 255."""
        made: Tensor = self.front(normalize(pixels[None]))[0]
        return made

    def maps(self, fronts: Tensor) -> Tensor:
        """B x C x h x w: the last convolution's activation of images behind the front."""
        if fronts.device.type == "cuda":
            fronts = fronts.contiguous(memory_format=torch.channels_last)
        maps: Tensor = self.convolutions(fronts)
        return maps

    def pooled(self, maps: Tensor, boxes: Tensor, of: Tensor | None = None) -> Tensor:
        """R x (C grid grid): the maxima of each box, given in pixels of its image.

        Args:
            maps: Of some images.
            boxes: Of regions in them.
            of: Which image each region is of; all are of the first if not given.
        """
        from torchvision.ops import roi_pool  # slow to load, and studies name protocols sooner

        cells = self.geometry.cells(boxes, maps.shape[3], maps.shape[2])
        first = cells.new_zeros(len(cells)) if of is None else of.to(cells.dtype)
        rows = torch.cat([first[:, None], cells], dim=1)
        # In float32: the pooling knows no bfloat16, whose maxima are the same.
        pooled: Tensor = roi_pool(maps.float().contiguous(), rows, (self.grid, self.grid), 1.0)
        return pooled.flatten(1)

    def forward(self, pooled: Tensor) -> tuple[Tensor, Tensor]:
        """R x (classes + 1) scores and R x classes x 4 offsets, in float32."""
        features = self.activation(self.fc7(self.fc6(pooled / self.unit)))
        offsets = self.offsets(features).float()
        return self.scores(features).float(), offsets.unflatten(1, (-1, 4))


def _drawn(width: int, count: int, deviation: float, randomness: torch.Generator) -> nn.Linear:
    layer = nn.Linear(width, count, device="meta").to_empty(device="cpu")
    nn.init.normal_(layer.weight, std=deviation, generator=randomness)
    nn.init.zeros_(layer.bias)
    return layer
