"""A network that gives every pixel its class: fc6 and fc7 as convolutions, scores up-sampled.

After Long, Shelhamer and Darrell (2015). Where a score belongs in the image follows from the
kernels, strides and paddings of the layers before it, so that nothing has to be cropped to fit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from deepcluster.evaluation.common_scale import mean_squares, rescale
from deepcluster.images.crops import normalize
from deepcluster.networks import Network
from deepcluster.networks.plain import PlainConvnet
from deepcluster.runtime.errors import UsageError


class Grid(NamedTuple):
    """Where maps lie on the image, in pixels: the middle of the first field, and the step."""

    start: float = 0.0
    step: int = 1

    def after(self, module: nn.Module) -> Grid:
        """The grid of what a module makes of maps with this one."""
        grid = self
        for part in module.modules():
            if isinstance(part, nn.Conv2d | nn.MaxPool2d):
                side, stride, padding = (
                    _one(number) for number in (part.kernel_size, part.stride, part.padding)
                )
                grid = Grid(grid.start + ((side - 1) / 2 - padding) * grid.step, grid.step * stride)
        return grid

    def to_pixels(self, extent: int, pixels: int, device: torch.device) -> Tensor:
        """Pixels x fields: the linear interpolation between fields, constant beyond the last."""
        places = (torch.arange(pixels, device=device) - self.start) / self.step
        places = places.clamp(0, extent - 1)
        fields = torch.arange(extent, device=device)
        return (1 - (places[:, None] - fields).abs()).clamp_min(0)


class FullyConvolutional(nn.Module):
    """B x classes x height x width: scores of every pixel.

    Scores begin at zero, and so do those of finer layers (`finest` 16 or 8), which are added.
    The network given is taken apart: its layers are this one's from now on.
    """

    def __init__(self, network: Network, input_size: int, classes: int, finest: int = 32) -> None:
        super().__init__()
        convnet = network.trunk.convnet
        if not isinstance(convnet, PlainConvnet):
            raise UsageError(
                "segmentation takes fc6 and fc7 as convolutions: the network must be alexnet or "
                "vgg16"
            )
        self.front, self.input_size = network.front, input_size
        self.convolutions = convnet.convolutions
        self.fc6, self.fc7 = _convolutions(convnet)
        device = self.fc6.weight.device
        self.score = _zero_scores(convnet.width, classes, device)
        grid, finer = Grid(), {}
        channels = 0
        for name, module in convnet.convolutions.named_children():
            grid = grid.after(module)
            channels = next(
                (part.out_channels for part in module.modules() if isinstance(part, nn.Conv2d)),
                channels,
            )
            # The pooling that reaches a step is its layer, as pool4 and pool3 are of FCN's VGG.
            if name.startswith("pool") and finest <= grid.step < 32:
                finer[name] = (grid, _zero_scores(channels, classes, device))
        self.finer = nn.ModuleDict({name: score for name, (_, score) in finer.items()})
        self._grids = {name: grid for name, (grid, _) in finer.items()}
        self.grid = grid.after(self.fc6)
        # The first score lies half a step inside of the image, as the last one does.
        self.margin = max(0, math.floor(self.grid.start - (self.grid.step - 1) / 2))
        # By what maps are divided before they are read.
        self._units = dict.fromkeys(("fc6", *self.finer), 1.0)

    @torch.no_grad()
    def measure(self, canvases: Iterable[Tensor]) -> None:
        """Give the maps that fc6 reads, and what fc6 and fc7 put out, a mean square of 1.

        Over these images, by one factor for each layer: since a ReLU keeps factors, fc7 gives what
        it gave but for a factor, which scores that begin at zero do not know. One grid of steps
        then suits every network, also an untrained one, whose numbers shrink from layer to layer.
        """

        def outputs(canvas: Tensor) -> dict[str, Tensor]:
            *finer, last = self._maps(canvas)
            first = self.fc6(last).relu()
            read = {"fc6": last, "fc7": first, "score": self.fc7(first).relu()}
            return {**read, **dict(zip(self.finer, finer, strict=True))}

        units = mean_squares(map(outputs, canvases))
        rescale(self.fc6, units["fc6"], units["fc7"])
        rescale(self.fc7, units["fc7"], units["score"])
        self._units = {name: units[name] for name in self._units}

    @property
    def learnt_anew(self) -> Iterator[nn.Module]:
        """fc6 to fc8, with the scores of finer layers."""
        yield from (self.fc6, self.fc7, self.score, *self.finer.values())

    def fronted(self, picture: Tensor) -> Tensor:
        """What the front makes of one image, uint8, 3 x any size."""
        device = self.score.weight.device
        made: Tensor = self.front(normalize(picture[None].to(device, non_blocking=True)))[0]
        return made

    def canvas(self, fronts: Sequence[Tensor]) -> Tensor:
        """Images of any size, behind the front, each in the corner of equal canvases.

        Around them are zeros, as many as give scores for every pixel: no contrast where the front
        is Sobel, the mean colour where it is none.
        """
        height, width = (max(front.shape[side] for front in fronts) for side in (1, 2))
        down, across = (self._extent(side) for side in (height, width))
        made = fronts[0].new_zeros(len(fronts), fronts[0].shape[0], down, across)
        for place, front in zip(made, fronts, strict=True):
            rows = slice(self.margin, self.margin + front.shape[1])
            columns = slice(self.margin, self.margin + front.shape[2])
            place[:, rows, columns] = front
        on_gpu = made.device.type == "cuda"
        return made.contiguous(memory_format=torch.channels_last) if on_gpu else made

    def fc7_maps(self, canvas: Tensor, dropout: Dropout | None = None) -> Tensor:
        """What fc7 gives (before its ReLU) at every place; at one alone for an image of its size.

        Where the convolutions are frozen nothing of them is kept for a gradient.
        """
        return self._fc7(self._maps(canvas)[-1], dropout)

    def forward(
        self, canvas: Tensor, size: tuple[int, int], dropout: Dropout | None = None
    ) -> Tensor:
        """The scores, float32, of images of up to that height and width."""
        *finer, last = self._maps(canvas)
        features = self._fc7(last, dropout).relu()
        if dropout is not None:
            features = dropout(features)
        total = self._up_sampled(self.score(features), self.grid, size)
        for maps, (name, score) in zip(finer, self.finer.items(), strict=True):
            scores = score(maps / self._units[name])
            total = total + self._up_sampled(scores, self._grids[name], size)
        return total

    def _maps(self, canvas: Tensor) -> list[Tensor]:
        """The maps of the finer layers, and those that fc6 takes."""
        found = []
        maps = canvas
        for name, module in self.convolutions.named_children():
            maps = module(maps)
            if name in self.finer:
                found.append(maps)
        return [*found, maps]

    def _fc7(self, maps: Tensor, dropout: Dropout | None) -> Tensor:
        features = self.fc6(maps / self._units["fc6"]).relu()
        return self.fc7(features if dropout is None else dropout(features))

    def _up_sampled(self, scores: Tensor, grid: Grid, size: tuple[int, int]) -> Tensor:
        # Two products rather than F.interpolate: any grid, and the same gradient at every call.
        here = Grid(grid.start - self.margin, grid.step)
        with torch.autocast(scores.device.type, enabled=False):
            down, across = (
                here.to_pixels(extent, pixels, scores.device)
                for extent, pixels in zip(scores.shape[2:], size, strict=True)
            )
            return down @ scores.float() @ across.T

    def _extent(self, pixels: int) -> int:
        fields = -(-pixels // self.grid.step)
        return max(self.margin + pixels, (fields - 1) * self.grid.step + self.input_size)


class Dropout:
    """Drops numbers by a stream of its own: what is dropped is a function of the seed."""

    def __init__(self, share: float, seed: int, device: torch.device) -> None:
        self.share = share
        self._stream = torch.Generator(device).manual_seed(seed)

    def __call__(self, features: Tensor) -> Tensor:
        """Zero where a number is dropped; the others make up for it."""
        drawn = torch.rand(features.shape, generator=self._stream, device=features.device)
        return features * ((drawn >= self.share).to(features.dtype) / (1 - self.share))


def _convolutions(convnet: PlainConvnet) -> tuple[nn.Conv2d, nn.Conv2d]:
    """fc6 and fc7 as convolutions: the same weights in another shape."""
    first, second = (
        next(part for part in layer.modules() if isinstance(part, nn.Linear))
        for layer in (convnet.fc6, convnet.fc7)
    )
    channels = [part.out_channels for part in convnet.modules() if isinstance(part, nn.Conv2d)][-1]
    side = math.isqrt(first.in_features // channels)
    return _as_convolution(first, channels, side), _as_convolution(second, first.out_features, 1)


def _as_convolution(linear: nn.Linear, channels: int, side: int) -> nn.Conv2d:
    with torch.device("meta"):
        convolution = nn.Conv2d(channels, linear.out_features, side)
    shaped = linear.weight.detach().view(linear.out_features, channels, side, side)
    convolution.weight = nn.Parameter(shaped.clone())
    convolution.bias = nn.Parameter(linear.bias.detach().clone())
    return convolution


def _zero_scores(channels: int, classes: int, device: torch.device) -> nn.Conv2d:
    with torch.device("meta"):
        score = nn.Conv2d(channels, classes, 1)
    score.to_empty(device=device)
    nn.init.zeros_(score.weight)
    assert score.bias is not None
    nn.init.zeros_(score.bias)
    return score


def _one(number: int | tuple[int, ...] | str) -> int:
    assert not isinstance(number, str)
    return number if isinstance(number, int) else number[0]
