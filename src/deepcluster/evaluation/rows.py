"""One row of features for every image, for protocols that compare images with each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from deepcluster.evaluation.bench import Bench, frozen
from deepcluster.evaluation.pooling import pooled
from deepcluster.features import PCA
from deepcluster.features.moments import Moments
from deepcluster.features.whiten import fitted
from deepcluster.images.crops import normalize
from deepcluster.images.loader import Images
from deepcluster.networks import Network
from deepcluster.runtime import interruption


def read_layer(network: Network, layer: str) -> Callable[[Tensor], Tensor]:
    """The function from images to rows: a layer, its maps pooled."""
    return lambda images: pooled(network.activations(images, [layer])[layer])


def blocks(
    network: Network, read: Callable[[Tensor], Tensor], images: Images, bench: Bench, title: str
) -> Iterator[Tensor]:
    """This process's rows, batch by batch, float32: centre crops, in the order of the images."""
    world, share = bench.world, bench.world.share(len(images))
    with bench.display.phase(title, len(share), {}, "look") as phase:
        for pixels in images.seen(share, bench.look_batch, bench.workers):
            inputs = normalize(pixels.to(world.device, non_blocking=True))
            with (
                frozen(network),
                torch.no_grad(),
                torch.autocast(
                    world.device.type, bench.autocast, enabled=bench.autocast is not None
                ),
            ):
                rows = read(inputs)
            yield rows.float()
            phase.advance(len(pixels))
            if world.size == 1:
                interruption.raise_if_asked()


def whitening_of(
    network: Network,
    read: Callable[[Tensor], Tensor],
    images: Images,
    dimensions: int,
    bench: Bench,
) -> PCA:
    """The whitening of these images' rows, as a run would find it."""
    moments: Moments | None = None
    for block in blocks(network, read, images, bench, "whitening"):
        moments = moments or Moments(block.shape[1], block.device)
        moments.add(block[block.isfinite().all(dim=1)])
    assert moments is not None
    return fitted(moments.over(bench.world), dimensions, bench.world)


def unit_rows(
    network: Network,
    read: Callable[[Tensor], Tensor],
    images: Images,
    pca: PCA | None,
    bench: Bench,
    title: str,
) -> Tensor:
    """This process's rows, whitened if there is a PCA, each of unit length."""
    return torch.cat(
        [
            F.normalize(block, dim=1) if pca is None else pca(block)
            for block in blocks(network, read, images, bench, title)
        ]
    )
