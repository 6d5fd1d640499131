"""Images as a detector sees them: whole, at one scale, decoded once and kept on the device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from deepcluster.evaluation.fast_rcnn import FastRCNN
from deepcluster.evaluation.kept_views import Kept, View, room_on
from deepcluster.evaluation.voc import VocImage
from deepcluster.images.threads import in_order

CANVAS = 64
"""Pixels: the sides of canvases are multiples of it, so that many images share a batch."""


@dataclass(frozen=True)
class Scale:
    """How large images are made: the short side as given, unless the long one would exceed its."""

    short_side: int
    long_side: int

    def size(self, width: int, height: int) -> tuple[int, int]:
        """Width and height of an image in the end."""
        factor = min(self.short_side / min(width, height), self.long_side / max(width, height))
        return max(1, round(width * factor)), max(1, round(height * factor))

    def factors(self, image: VocImage) -> tuple[float, float]:
        """What the numbers across and down are multiplied by."""
        width, height = self.size(image.width, image.height)
        return width / image.width, height / image.height

    def canvas(self, image: VocImage) -> tuple[int, int]:
        """Height and width of the canvas in whose corner the image lies."""
        width, height = self.size(image.width, image.height)
        return -(-height // CANVAS) * CANVAS, -(-width // CANVAS) * CANVAS

    def __call__(self, pixels: Tensor) -> Tensor:
        """The image, 3 x height x width, with levels from 0 to 255 in float32."""
        width, height = self.size(pixels.shape[2], pixels.shape[1])
        return F.interpolate(
            pixels[None].float(), (height, width), mode="bilinear", antialias=True
        )[0]


class Pictures:
    """Decoded images, uint8 on the device; as many as there is room for are decoded once."""

    def __init__(self, device: torch.device, workers: int, room: int | None = None) -> None:
        self.device, self.workers = device, workers
        self._room = room_on(device) // 2 if room is None else room
        self._kept: dict[str, Tensor] = {}

    def __call__(self, images: Sequence[VocImage]) -> Iterator[Tensor]:
        """The images in order, decoded ahead by threads where they are not kept."""
        for image, pixels in zip(images, in_order(self._pixels, images, self.workers), strict=True):
            own = pixels.to(self.device, non_blocking=True)
            name = str(image.path)
            if name not in self._kept and own.numel() <= self._room:
                self._room -= own.numel()
                self._kept[name] = own
            yield own

    def _pixels(self, image: VocImage) -> Tensor:
        kept = self._kept.get(str(image.path))
        if kept is not None:
            return kept
        return torch.from_numpy(np.array(image.picture()).transpose(2, 0, 1).copy())


@dataclass
class Seen:
    """Views of a set through a detector: what its front makes of them, and its convolutions.

    The front of every view is kept while it fits; its maps too where the convolutions are frozen.
    """

    model: FastRCNN
    images: Sequence[VocImage]
    scale: Scale
    picture: Callable[[int], Tensor]
    """The pixels of an image."""
    autocast: torch.dtype | None = None
    fronts: Kept = field(default_factory=lambda: Kept(0))
    maps: Kept = field(default_factory=lambda: Kept(0))

    def together(self, views: Sequence[View]) -> list[tuple[list[int], Tensor]]:
        """Maps of views that share a canvas, B x C x h x w, and which of the views they are of."""
        groups: dict[tuple[int, int], list[int]] = {}
        for number, view in enumerate(views):
            shape = self.scale.canvas(self.images[view.place])
            groups.setdefault(shape, []).append(number)
        return [
            (numbers, self._maps([views[number] for number in numbers], shape))
            for shape, numbers in groups.items()
        ]

    def _maps(self, views: Sequence[View], shape: tuple[int, int]) -> Tensor:
        kept = [self.maps.get(view) for view in views]
        missing = [view for view, maps in zip(views, kept, strict=True) if maps is None]
        if not missing:
            return torch.stack(kept)  # type: ignore[arg-type]
        computed = self.computed(missing, shape)
        if not computed.requires_grad:
            for view, maps in zip(missing, computed, strict=True):
                self.maps.add(view, maps)
        if len(missing) == len(views):
            return computed
        new = iter(computed)
        return torch.stack([next(new) if maps is None else maps for maps in kept])

    def computed(self, views: Sequence[View], shape: tuple[int, int]) -> Tensor:
        """The maps of views on canvases of that height and width."""
        fronts = [self._front(view) for view in views]
        canvas = fronts[0].new_zeros(len(views), fronts[0].shape[0], *shape)
        for place, front in zip(canvas, fronts, strict=True):
            place[:, : front.shape[1], : front.shape[2]] = front
        device = canvas.device.type
        with torch.autocast(device, self.autocast, enabled=self.autocast is not None):
            return self.model.maps(canvas)

    def _front(self, view: View) -> Tensor:
        kept = self.fronts.get(view)
        if kept is not None:
            return kept
        pixels = self.scale(self.picture(view.place))
        front = self.model.fronted(pixels.flip(2) if view.is_flipped else pixels)
        if self.autocast is not None:  # what the first convolution would make of it
            front = front.to(self.autocast)
        self.fronts.add(view, front)
        return front
