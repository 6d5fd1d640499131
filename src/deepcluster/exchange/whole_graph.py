"""Pictures in, features out, in one graph: all that `embed` does to a picture is inside."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from deepcluster.images.kept import DEVIATION, GREY, MEAN, Colour, Pixels
from deepcluster.networks import Network
from deepcluster.networks.layer_view import grid_averaged
from deepcluster.networks.many_views import ManyViews
from deepcluster.networks.plain import PlainConvnet
from deepcluster.runtime.errors import UsageError

_ONE = 2.0**16  # what the weights of the grey of a store are rounded to


class WholeGraph(nn.Module):
    """B x d features of whole pictures of one size, B x H x W x 3, uint8.

    As in the run: shrunk and made grey where its store does so, then the centre is cut, by the same
    triangle filter and with the same roundings. Resizing is written as matrix products, so that the
    graph holds for any H and W: of the shrunk picture only the window is made that the cut needs,
    which has one size whatever the picture's.
    """

    def __init__(
        self,
        network: Network,
        size: int,
        colour: Colour,
        pixels: Pixels,
        clustered: str = "top",
        views: int = 1,
    ) -> None:
        super().__init__()
        feature = network.trunk if clustered == "top" else _UpTo(network, clustered)
        self.feature = feature if views == 1 else ManyViews(feature, views)
        self.size, self.grey = size, colour == "grey"
        self.kept = pixels.short_side if pixels.keep == "store" else None
        self.square = pixels.keep == "store" and pixels.shape == "square"
        self.short = round(size * 256 / 224)
        self.window = math.ceil((size + 3) * max(1.0, (self.kept or 0) / self.short)) + 3

    def forward(self, images: Tensor) -> Tensor:
        """One feature vector an image."""
        pixels = images.permute(0, 3, 1, 2).float()
        # Where the pixels of each side are; from the picture, so that H and W stay open.
        down, across = (
            torch.cumsum(line.double() * 0 + 1, 0) - 0.5
            for line in (pixels[0, 0, :, 0], pixels[0, 0, 0, :])
        )
        least = torch.minimum(down[-1], across[-1]) + 0.5
        if self.kept is None:
            cut = _resized(pixels, self._cut(down, least), self._cut(across, least))
        else:
            shrunk, cuts = zip(*(self._kept(side, least) for side in (down, across)), strict=True)
            pixels = _resized(pixels, *shrunk)
            cut = _resized(_grey(pixels) if self.grey else pixels, *cuts)
        return self.feature(_normalized(cut))

    def _kept(self, places: Tensor, least: Tensor) -> tuple[Tensor, Tensor]:
        """Weights that shrink one side as the store does, and weights that cut what is left."""
        assert self.kept is not None
        length = places[-1] + 0.5
        short = torch.clamp(least, max=self.kept)
        first = torch.floor((length - least) / 2) if self.square else length * 0
        if self.square:
            length = least
        new = torch.clamp(torch.round(short * length / least), min=1)
        begin, scale = self._centre(new, short)
        numbers = torch.arange(self.window, dtype=torch.float64, device=places.device)
        seen = torch.floor(begin - torch.clamp(scale, min=1)) - 1 + numbers + 0.5
        ratio = length / new
        shrink = _weights(places, first, first + length, first + seen * ratio, ratio)
        return shrink, _weights(seen, new * 0, new, self._centres(begin, scale), scale)

    def _cut(self, places: Tensor, least: Tensor) -> Tensor:
        length = places[-1] + 0.5
        begin, scale = self._centre(length, least)
        return _weights(places, length * 0, length, self._centres(begin, scale), scale)

    def _centre(self, length: Tensor, short: Tensor) -> tuple[Tensor, Tensor]:
        """Where the cut begins in a side of this length, and how wide one of its pixels is."""
        new = torch.floor(self.short * length / short)
        scale = length / new
        return torch.round((new - self.size) / 2) * scale, scale

    def _centres(self, begin: Tensor, scale: Tensor) -> Tensor:
        numbers = torch.arange(self.size, dtype=torch.float64, device=begin.device)
        return begin + (numbers + 0.5) * scale


class _UpTo(nn.Module):
    """The feature of a run that groups another layer than the last, without hooks."""

    def __init__(self, network: Network, layer: str) -> None:
        super().__init__()
        convnet = network.trunk.convnet
        if not isinstance(convnet, PlainConvnet) or not layer.startswith("conv"):
            raise UsageError(
                f"--to onnx: the run groups {layer}, and only its last layer or a convolution of "
                "AlexNet or VGG-16 can be exported; use safetensors"
            )
        names = [name for name, _ in convnet.convolutions.named_children()]
        self.front = network.trunk.front
        self.convolutions = convnet.convolutions[: names.index(layer) + 1]

    def forward(self, images: Tensor) -> Tensor:
        """One vector an image."""
        return grid_averaged(self.convolutions(self.front(images))).flatten(1)


def _weights(places: Tensor, low: Tensor, high: Tensor, centres: Tensor, width: Tensor) -> Tensor:
    """(centres, places): how much each pixel counts for each of the new ones.

    Args:
        places: Of the pixels.
        low: Where the picture begins; pixels before it do not count.
        high: Where it ends.
        centres: Of the new pixels.
        width: Of a new pixel; the triangle reaches as far, and at least to the next pixel.
    """
    reach = torch.clamp(width, min=1.0)
    weights = torch.relu(1 - (places[None] - centres[:, None]).abs() / reach)
    weights = weights * ((places > low) & (places < high)).double()
    return (weights / weights.sum(dim=1, keepdim=True).clamp(min=1e-9)).float()


def _resized(pixels: Tensor, down: Tensor, across: Tensor) -> Tensor:
    """First across, then down, rounded to whole levels after each, as both libraries do it."""
    return _rounded(down @ _rounded(pixels @ across.T))


def _rounded(levels: Tensor) -> Tensor:
    return torch.floor(levels + 0.5)


def _grey(pixels: Tensor) -> Tensor:
    """B x 1 x H x W: as a grey store has it; all numbers are whole, and exact in float32."""
    red, green, blue = (round(weight * _ONE) for weight in GREY)
    total = red * pixels[:, :1] + green * pixels[:, 1:2] + blue * pixels[:, 2:] + _ONE / 2
    return torch.floor(total / _ONE)


def _normalized(levels: Tensor) -> Tensor:
    """As `images.crops.normalize` has it, without writing in place."""
    if levels.shape[1] == 1:
        scale = sum(1 / deviation for deviation in DEVIATION) / (3 * 255)
        offset = -sum(m / d for m, d in zip(MEAN, DEVIATION, strict=True)) / 3
        return levels * scale + offset
    mean, deviation = (
        255 * torch.tensor(values, device=levels.device).view(-1, 1, 1)
        for values in (MEAN, DEVIATION)
    )
    return (levels - mean) / deviation
