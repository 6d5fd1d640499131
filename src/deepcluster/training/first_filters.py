"""Filters that begin as groups of patches: the method itself, before there is anything to learn.

With few images there is no time for the first convolutions to become good, so they begin so. One
after another: patches of what a convolution is given are whitened, brought to unit length and
grouped by k-means, as the paper does with features, and every filter begins as a centroid (Coates
and Ng, 2012, whom the paper names as having used k-means to pre-train convnets).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from deepcluster.clusters import KMeans
from deepcluster.features.moments import Moments
from deepcluster.features.whiten import fitted
from deepcluster.images.crops import normalize
from deepcluster.images.loader import Images
from deepcluster.networks import Network
from deepcluster.networks.plain import PlainConvnet
from deepcluster.runtime import interruption
from deepcluster.runtime.errors import HealthWarning, UsageError
from deepcluster.runtime.seeds import generator, uniforms
from deepcluster.runtime.world import World

_IMAGES = 2_000
"""That patches are taken from, at most."""
_PATCHES = 20_000
"""Of one convolution, at most; all are in memory at once."""
_OF_AN_IMAGE = 20
_BATCH = 50
"""Of images: each is centred by its own batch norm, so that it is no matter of speed alone. VGG-16
at 224 pixels takes 65 MB for each."""
_DIMENSIONS = 64
"""Of whitened patches. More are worse: whitening then makes as much of noise as of what is seen."""
_HOLD = 10.0
"""How much larger the weights are than drawn ones. With batch norm behind it that changes nothing
but what a step does, which is this squared times less: what begins well is to stay for a while."""


def begun_by_patches(network: Network, count: int) -> list[tuple[str, nn.Conv2d]]:
    """The convolutions, by name, that begin so; refuses where there are not so many."""
    if not count:
        return []
    found = [
        (name, part[0])
        for name, part in _convolutions(network, count).named_children()
        if isinstance(part, nn.Sequential) and isinstance(part[0], nn.Conv2d)
    ]
    if count > len(found):
        raise UsageError(
            f"--network.patches {count}: there are {len(found)} convolutions; use at most as many"
        )
    return found[:count]


def _convolutions(network: Network, count: int) -> nn.Sequential:
    convnet = network.trunk.convnet
    if not isinstance(convnet, PlainConvnet):
        raise UsageError(f"--network.patches {count}: only alexnet and vgg16 begin so; leave it 0")
    return convnet.convolutions


@dataclass(frozen=True)
class Sight:
    """The images, and how they are looked at."""

    images: Images
    device: torch.device
    workers: int
    advance: Callable[[int], None] = lambda count: None

    @property
    def ids(self) -> NDArray[np.int64]:
        """The images that are looked at, evenly among all."""
        count = min(len(self.images), _IMAGES)
        return np.arange(count) * len(self.images) // count

    def batches(self) -> Iterator[tuple[NDArray[np.int64], Tensor]]:
        """Their numbers and normalised pixels, in batches as equal as can be.

        Batch norm's averages are over batches: one image left over would say as much as all others.
        """
        count = len(self.ids)
        batch = -(-count // -(-count // _BATCH))
        first = 0
        for part in self.images.seen(self.ids.tolist(), batch, self.workers):
            yield self.ids[first : first + len(part)], normalize(part.to(self.device))
            first += len(part)
            self.advance(len(part))
            interruption.raise_if_asked()


def looks(images: int, count: int) -> int:
    """How many images are looked at, some of them several times."""
    return (count + 1) * min(images, _IMAGES)


@torch.no_grad()
def begin_with_patches(network: Network, count: int, sight: Sight, seed: int) -> None:
    """Give the first `count` convolutions centroids of patches for filters.

    And every batch norm its averages over these images, so that what comes after it is centred
    from the first look on.
    """
    convolutions = _convolutions(network, count)
    an_image = min(_OF_AN_IMAGE, _PATCHES // len(sight.ids))
    with _counting(convolutions):
        for number, (name, convolution) in enumerate(begun_by_patches(network, count)):
            before = list(convolutions.named_children())
            before = before[: [other for other, _ in before].index(name)]
            patches = []
            for ids, pixels in sight.batches():
                maps = network.front(pixels)
                for _, part in before:
                    maps = part(maps)
                places = uniforms(seed, f"patches-{name}", 0, ids, 2 * an_image)
                patches.append(_patches(maps, convolution, torch.from_numpy(places)))
            _become_centroids(convolution, torch.cat(patches), generator(seed, "patches", number))
        for _, pixels in sight.batches():
            convolutions(network.front(pixels))


def _patches(maps: Tensor, convolution: nn.Conv2d, places: Tensor) -> Tensor:
    """What the convolution sees at random places of each image: a row for each."""
    side, step, padding = convolution.kernel_size[0], convolution.stride[0], convolution.padding[0]
    seen = F.pad(maps, (int(padding),) * 4).unfold(2, side, step).unfold(3, side, step)
    down, across = places.to(maps.device).chunk(2, dim=1)
    down, across = (down * seen.shape[2]).long(), (across * seen.shape[3]).long()
    image = torch.arange(len(maps), device=maps.device)[:, None]
    return seen[image, :, down, across].flatten(2).flatten(0, 1)


def _become_centroids(convolution: nn.Conv2d, patches: Tensor, randomness: torch.Generator) -> None:
    world = World(device=patches.device)
    moments = Moments(patches.shape[1], patches.device)
    for block in patches.split(8192):
        moments.add(block)
    with warnings.catch_warnings():  # few images have few patches: the rest stays as drawn
        warnings.simplefilter("ignore", HealthWarning)
        pca = fitted(moments, _DIMENSIONS, world, of="patches")
        found = KMeans(k=convolution.out_channels)(pca(patches), world, randomness)
    filters = F.normalize(found.centroids.to(patches.device)) @ pca.projection.T
    weight = convolution.weight
    weight *= _HOLD
    weight[: len(filters)] = (filters * (weight.std() / filters.std())).reshape(
        -1, *weight.shape[1:]
    )


@contextmanager
def _counting(convolutions: nn.Module) -> Iterator[None]:
    """While open, batch norms average over all that they are given; their ways are put back."""
    norms = [part for part in convolutions.modules() if isinstance(part, nn.BatchNorm2d)]
    before = [(norm.momentum, norm.training) for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the plain mean of all batches
        norm.train()
    try:
        yield
    finally:
        for norm, (momentum, training) in zip(norms, before, strict=True):
            norm.momentum = momentum
            norm.train(training)
