"""What the frozen layers of a network say of images, with a common origin and unit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor

from deepcluster.evaluation.bench import Bench
from deepcluster.images.crops import normalize
from deepcluster.images.loader import Images
from deepcluster.networks import Network
from deepcluster.runtime import interruption

Scaling = Literal["layer", "feature", "none"]


class FrozenFeatures:
    """B x width of each layer.

    Nothing of the network changes, as long as it is `frozen`.

    `scaling` "layer" subtracts the mean over training images and divides all numbers of a layer by
    one number, so that rows are about 1 long: another origin and unit for the same linear
    classifiers (the bias takes up the one, the step size the other), under which one grid of steps
    suits every layer of every network. "feature" gives every number the same deviation, which is
    another classifier under weight decay. "none" leaves them as they are.
    """

    def __init__(
        self,
        network: Network,
        read: Callable[[Tensor], dict[str, Tensor]],
        bench: Bench,
        scaling: Scaling = "layer",
    ) -> None:
        self.network, self.bench, self.scaling = network, bench, scaling
        self.widths: dict[str, int] = {}
        self._read = read
        self._scales: dict[str, tuple[Tensor, Tensor]] = {}  # shift and unit

    def __call__(self, pixels: Tensor) -> list[Tensor]:
        """The features of uint8 crops, float32."""
        return self._scaled(self._raw(pixels))

    def measure(self, images: Images, ids: Sequence[int]) -> None:
        """Find origin and unit from the centre crops of these images, over all processes."""
        world, bench = self.bench.world, self.bench
        share = world.share(len(ids))
        mine = ids[share.start : share.stop]
        sums: dict[str, Tensor] = {}
        squares: dict[str, Tensor] = {}
        # A process without images still takes part in the sums. Two, which batch norm may want.
        blank = torch.zeros(2, images.channels, images.size, images.size, dtype=torch.uint8)
        for name, rows in self._raw(blank).items():
            self.widths[name] = rows.shape[1]
            sums[name] = torch.zeros(rows.shape[1], dtype=torch.float64, device=rows.device)
            squares[name] = torch.zeros_like(sums[name])
        for pixels in images.seen(mine, bench.look_batch, bench.workers):
            for name, rows in self._raw(pixels).items():
                sums[name] += rows.sum(dim=0, dtype=torch.float64)
                squares[name] += rows.double().square().sum(dim=0)
            interruption.raise_if_asked()
        for name in sums:
            mean = world.sum(sums[name]) / len(ids)
            variance = (world.sum(squares[name]) / len(ids) - mean.square()).clamp_min(0)
            origin, unit = _origin_and_unit(mean, variance, self.scaling)
            self._scales[name] = (-origin * unit).float(), unit.float()

    def _scaled(self, found: dict[str, Tensor]) -> list[Tensor]:
        return [
            torch.addcmul(shift, rows.float(), unit)
            for rows, (shift, unit) in zip(found.values(), self._scales.values(), strict=True)
        ]

    @torch.no_grad()
    def _raw(self, pixels: Tensor) -> dict[str, Tensor]:
        return self.rows_of(pixels)

    def rows_of(self, pixels: Tensor) -> dict[str, Tensor]:
        """What the layers say of uint8 crops, with no other origin or unit."""
        device, autocast = self.bench.world.device, self.bench.autocast
        inputs = normalize(pixels.to(device, non_blocking=True))
        if device.type == "cuda":
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        with torch.autocast(device.type, autocast, enabled=autocast is not None):
            return self._read(inputs)


def _origin_and_unit(mean: Tensor, variance: Tensor, scaling: Scaling) -> tuple[Tensor, Tensor]:
    """What to subtract and what to multiply by; a number that never varies stays at zero."""
    if scaling == "none":
        return torch.zeros_like(mean), torch.ones_like(mean)
    if scaling == "layer":
        return mean, variance.sum().clamp_min(1e-30).rsqrt().expand_as(mean)
    # Numbers that hardly vary must not be blown up to the size of the others.
    least = 1e-6 * variance.mean() + 1e-30
    return mean, ((variance + least) * len(mean)).rsqrt()
