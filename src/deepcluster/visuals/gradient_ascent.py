"""The image that a filter wants to see, by gradient ascent (Yosinski et al., 2015).

The objective is the log-probability of the filter among all filters of its layer, their mean
activations taken as scores: an image that excites every filter is no picture of one. L2 decay keeps
the pixels small, and a blur every few steps takes out what is too fine to mean anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from deepcluster.networks import Network, Sobel
from deepcluster.runtime import interruption
from deepcluster.runtime.errors import UsageError
from deepcluster.runtime.seeds import generator


@dataclass(frozen=True)
class GradientAscent:
    """How images are made; the same settings and seed make the same images."""

    steps: int = 200
    step: float = 0.1
    """Length of a step, the gradient of every image being scaled to a mean size of one."""
    decay: float = 0.01
    """Share of every pixel that is taken away at each step."""
    blur_every: int = 4
    """Steps between two blurs; 0 for none."""
    blur: float = 0.6
    """Width of the blur, in pixels."""

    def __call__(
        self,
        network: Network,
        layer: str,
        filters: Sequence[int],
        size: int,
        seed: int = 0,
        advance: Callable[[int], None] = lambda count: None,
    ) -> Tensor:
        """One normalised image a filter (filters x channels x size x size), all made at once.

        Behind Sobel, which averages the colours, an image is grey: it has one channel.

        Each is made from its own noise, so that it does not matter which others are asked for.
        """
        device = next(network.parameters()).device
        count = filter_count(network, layer, size)
        for number in filters:
            if not 0 <= number < count:
                raise UsageError(f"--filters {number}: {layer} has filters 0 to {count - 1}")
        channels = 1 if isinstance(network.front, Sobel) else 3
        noise = [
            torch.randn(channels, size, size, generator=generator(seed, "ascent", number))
            for number in filters
        ]
        images = (0.1 * torch.stack(noise)).to(device)
        wanted = torch.tensor(list(filters), device=device)
        with _frozen(network):
            for step in range(self.steps):
                images.requires_grad_(True)
                likelihoods(network, layer, images).gather(1, wanted[:, None]).sum().backward()
                slope = images.grad
                assert slope is not None
                with torch.no_grad():
                    size_of = slope.abs().mean(dim=(1, 2, 3), keepdim=True)
                    images = images + self.step * slope / size_of.clamp_min(1e-12)
                    images = images * (1 - self.decay)
                    # Never last: what is kept is what the ascent has reached.
                    due = self.blur_every and (step + 1) % self.blur_every == 0
                    if due and step + self.blur_every < self.steps:
                        images = blurred(images, self.blur)
                images = images.detach()
                advance(len(images))
                interruption.raise_if_asked()
        return images


def likelihoods(network: Network, layer: str, images: Tensor) -> Tensor:
    """(images x filters) log-probability of each filter of the layer, by mean activation."""
    found = network.activations(images, [layer])[layer]
    scores = found.float().flatten(2).mean(dim=2) if found.ndim > 2 else found.float()
    return F.log_softmax(scores, dim=1)


def blurred(images: Tensor, width: float) -> Tensor:
    """The images under a Gaussian of this width; edges repeat."""
    reach = max(1, round(3 * width))
    places = torch.arange(-reach, reach + 1, device=images.device, dtype=images.dtype)
    kernel = torch.exp(-(places**2) / (2 * width**2))
    kernel = kernel / kernel.sum()
    channels = images.shape[1]
    padded = F.pad(images, (reach,) * 4, mode="replicate")
    down = F.conv2d(padded, kernel.view(1, 1, -1, 1).expand(channels, 1, -1, 1), groups=channels)
    return F.conv2d(down, kernel.view(1, 1, 1, -1).expand(channels, 1, 1, -1), groups=channels)


def shown(images: Tensor) -> list[NDArray[np.uint8]]:
    """Each image stretched about grey to what a screen shows (H x W x 3).

    What is far out comes nearer, or a few bright spots would be flat and the rest grey.
    """
    images = images.detach().cpu()
    deviation = images.std(dim=(1, 2, 3), keepdim=True).clamp_min(1e-6)
    centred = images - images.mean(dim=(1, 2, 3), keepdim=True)
    pixels = (127.5 + 127.5 * torch.tanh(0.45 * centred / deviation)).to(torch.uint8)
    return [one.expand(3, -1, -1).permute(1, 2, 0).contiguous().numpy() for one in pixels]


def likelihoods_of(network: Network, layer: str, images: Tensor) -> Tensor:
    """`likelihoods` by the network at rest, to look at."""
    with _frozen(network), torch.no_grad():
        return likelihoods(network, layer, images)


def filter_count(network: Network, layer: str, size: int) -> int:
    """How many filters a layer has, by asking it about a blank image."""
    blank = torch.zeros(1, 3, size, size, device=next(network.parameters()).device)
    return likelihoods_of(network, layer, blank).shape[1]


class _frozen:  # noqa: N801 - used as a verb
    """While open, the network is asked and does not learn; all is put back."""

    def __init__(self, network: Network) -> None:
        self.network = network

    def __enter__(self) -> None:
        self.was_training = self.network.training
        self.wanted = [p.requires_grad for p in self.network.parameters()]
        self.network.eval().requires_grad_(False)

    def __exit__(self, *_: object) -> None:
        self.network.train(self.was_training)
        for parameter, wanted in zip(self.network.parameters(), self.wanted, strict=True):
            parameter.requires_grad_(wanted)
