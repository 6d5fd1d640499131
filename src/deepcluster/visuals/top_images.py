"""The images that excite each filter of a layer most, in one pass over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from deepcluster.images.crops import normalize
from deepcluster.images.loader import Images
from deepcluster.networks import Network
from deepcluster.runtime import interruption


class TopImages(NamedTuple):
    """For every filter (row) the images by falling excitement, of equal ones the first."""

    images: Tensor
    """filters x count, int64."""
    values: Tensor
    """filters x count: the largest activation of the filter anywhere in the image."""

    def most_telling(self, count: int) -> list[int]:
        """Filters that images excite much, and each other images than the ones before.

        Filters of a young network often like the same few images, and rows of those tell nothing.
        """
        alive = (self.values[:, -1] > 0).nonzero()[:, 0]
        by_strength = alive[self.values[alive, 0].argsort(descending=True, stable=True)].tolist()
        for shared in range(self.images.shape[1] + 1):  # as few images twice as can be
            chosen: list[int] = []
            seen: list[set[int]] = []
            for number in by_strength:
                own = set(self.images[number].tolist())
                if len(chosen) < count and all(len(own & other) <= shared for other in seen):
                    chosen.append(number)
                    seen.append(own)
            if len(chosen) >= min(count, len(by_strength)):
                return sorted(chosen)
        return []


def top_images(
    network: Network,
    images: Images,
    ids: Sequence[int],
    layer: str,
    count: int = 9,
    batch: int = 128,
    workers: int = 2,
    advance: Callable[[int], None] = lambda count: None,
) -> TopImages:
    """The best images of all filters of a layer; only the best so far are kept at any time."""
    device = next(network.parameters()).device
    was_training = network.training
    network.eval()
    best: TopImages | None = None
    try:
        with torch.no_grad():
            done = 0
            for pixels in images.seen(ids, batch, workers):
                found = network.activations(normalize(pixels.to(device)), [layer])[layer]
                excitement = found.float().flatten(2).amax(dim=2) if found.ndim > 2 else found
                numbers = torch.as_tensor(list(ids[done : done + len(pixels)]), device=device)
                best = _better(best, excitement.float().T, numbers, count)
                done += len(pixels)
                advance(len(pixels))
                interruption.raise_if_asked()
    finally:
        network.train(was_training)
    assert best is not None
    return TopImages(best.images.cpu(), best.values.cpu())


def _better(best: TopImages | None, values: Tensor, numbers: Tensor, count: int) -> TopImages:
    """The best of those before and of these; `values` is filters x images."""
    who = numbers.expand(len(values), -1)
    if best is not None:
        values, who = torch.cat([best.values, values], dim=1), torch.cat([best.images, who], dim=1)
    # Stable, and what came before comes first: among equals the first image wins.
    order = values.sort(dim=1, descending=True, stable=True).indices[:, :count]
    return TopImages(who.gather(1, order), values.gather(1, order))
