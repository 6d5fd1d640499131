"""Crops changed at random after they are cut: light, contrast, sharpness, a part hidden.

None of it is the paper's. A whole batch at once, on whatever device it is; what happens to a crop
is a function of its own numbers alone, so batch, processes and device do not matter.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

JITTER_NUMBERS = 8
"""How many uniform numbers the changes of one crop are made from."""

_REACH = 4  # pixels that blurring looks to each side
_SIGMAS = (0.3, 2.0)  # pixels
_HIDDEN = (0.02, 0.25)  # share of the crop's area
_HIDDEN_RATIO = 3.0


@dataclass(frozen=True)
class Jitter:
    """How much the crops that are learned from are changed; the paper changes nothing."""

    brightness: float = 0.0
    """Levels are multiplied by 1 - brightness to 1 + brightness."""

    contrast: float = 0.0
    """Differences from the crop's mean are multiplied by 1 - contrast to 1 + contrast."""

    blur: float = 0.0
    """Share of the crops that are blurred, by a Gaussian of 0.3 to 2 pixels."""

    erase: float = 0.0
    """Share of the crops of which a rectangle, 2 to 25% of the area, is hidden under the mean."""

    @property
    def changes(self) -> bool:
        """Whether anything is changed at all."""
        return max(self.brightness, self.contrast, self.blur, self.erase) > 0

    def __call__(self, crops: Tensor, numbers: Tensor) -> Tensor:
        """The crops (b x c x size x size, levels from 0 to 255) changed, as float32.

        Args:
            crops: Levels from 0 to 255 of any type.
            numbers: b x `JITTER_NUMBERS` in [0, 1).
        """
        numbers = numbers.to(crops.device, torch.float32, non_blocking=True)
        light, contrast, blurred, sigma, hidden, *place = (
            column.view(-1, 1, 1, 1) for column in numbers.unbind(dim=1)
        )
        result = crops.to(torch.float32)
        if self.brightness:
            result = result * (1 + self.brightness * (2 * light - 1))
        if self.contrast:
            mean = result.mean(dim=(1, 2, 3), keepdim=True)
            result = mean + (result - mean) * (1 + self.contrast * (2 * contrast - 1))
        if self.brightness or self.contrast:
            result = result.clamp(0, 255)
        if self.blur:
            width = _SIGMAS[0] + (_SIGMAS[1] - _SIGMAS[0]) * sigma
            result = torch.where(blurred < self.blur, _blurred(result, width), result)
        if self.erase:
            # The number that decides whether is used again for how much: below `erase` it is
            # uniform as well.
            rectangle = _rectangle(hidden / self.erase, *place, size=crops.shape[-1])
            mean = result.mean(dim=(2, 3), keepdim=True)
            result = torch.where((hidden < self.erase) & rectangle, mean, result)
        return result


NONE = Jitter()


def _blurred(images: Tensor, sigma: Tensor) -> Tensor:
    """Each image under its own Gaussian, mirrored at the border."""
    count, channels, size, _ = images.shape
    taps = torch.arange(-_REACH, _REACH + 1, device=images.device)
    weights = torch.exp(-(taps**2) / (2 * sigma**2))
    weights = (weights / weights.sum(dim=3, keepdim=True)).repeat_interleave(channels, dim=0)
    # Every image is a channel with a filter of its own: two launches, not one for each tap.
    padded = F.pad(images, (_REACH,) * 4, mode="reflect").view(
        1, count * channels, -1, size + 2 * _REACH
    )
    down = F.conv2d(padded, weights.transpose(2, 3), groups=count * channels)
    return F.conv2d(down, weights, groups=count * channels).view(images.shape)


def _rectangle(area: Tensor, ratio: Tensor, left: Tensor, top: Tensor, *, size: int) -> Tensor:
    """B x 1 x size x size: where each image's rectangle is; all numbers are in [0, 1)."""
    area = _HIDDEN[0] + (_HIDDEN[1] - _HIDDEN[0]) * area.clamp(max=1)
    stretch = _HIDDEN_RATIO ** (ratio - 0.5)
    width, height = area.sqrt() * stretch, area.sqrt() / stretch  # shares of the side
    middle = (torch.arange(size, device=area.device) + 0.5) / size
    across = middle - left * (1 - width)
    down = middle.view(-1, 1) - top * (1 - height)
    return (across >= 0) & (across < width) & (down >= 0) & (down < height)
