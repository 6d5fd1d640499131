"""Pictures and masks of a set for segmentation: decoded once, kept on the device, in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deepcluster.evaluation.bench import Bench
from deepcluster.evaluation.kept_views import Kept, View, room_on
from deepcluster.evaluation.voc import BORDER, VocImage, VocSet
from deepcluster.images.folder import encoded
from deepcluster.images.threads import in_order
from deepcluster.runtime import interruption
from deepcluster.runtime.errors import DataError


class SegmentedImages:
    """Pictures and masks of a set, decoded once; on the device where they fit there."""

    def __init__(self, images: VocSet, bench: Bench) -> None:
        self._images, self._bench = images, bench
        self._read: list[tuple[Tensor, Tensor]] = []

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        """3 x height x width and height x width, uint8."""
        self.read()
        return self._read[number]

    def read(self) -> None:
        """Decode all of them, unless that is done."""
        if self._read:
            return
        images, bench = self._images.images, self._bench
        size = sum(4 * image.width * image.height for image in images)
        device = bench.world.device
        home = device if size <= room_on(device) else torch.device("cpu")
        title = f"reading {self._images.split}"
        read = []  # all of them or none: an interrupted reading begins anew
        with bench.display.phase(title, len(images), {}, "read") as phase:
            for pixels, mask in in_order(_pixels, images, bench.workers):
                read.append((pixels.to(home), mask.to(home)))
                phase.advance()
                interruption.raise_if_asked()
        self._read = read

    def refuse_unjudged(self, ids: NDArray[np.int64], advice: str = "") -> None:
        """Raise where no pixel of these images is judged: nothing can be learnt or counted."""
        self.read()
        if not any(bool((self[int(number)][1] != BORDER).any()) for number in ids):
            one = self._images
            raise DataError(
                f"{encoded(str(one.folder))}: {len(ids):,} of the {len(one):,} masks of "
                f"{one.split} are all border (255), so that no pixel is judged{advice}"
            )

    def masks(self, ids: NDArray[np.int64], flips: NDArray[np.bool_]) -> Tensor:
        """Their masks, filled up to one size by what is not judged."""
        masks = [self[int(number)][1] for number in ids]
        height, width = (max(mask.shape[side] for mask in masks) for side in (0, 1))
        truth = masks[0].new_full((len(masks), height, width), BORDER)
        for place, mask, flipped in zip(truth, masks, flips, strict=True):
            place[: mask.shape[0], : mask.shape[1]] = mask.flip(1) if flipped else mask
        return truth.to(self._bench.world.device, non_blocking=True)

    def alike(self, ids: Sequence[int], batch: int) -> Iterator[list[int]]:
        """The same images in batches of one size each."""
        sizes: dict[tuple[int, int], list[int]] = {}
        for number in ids:
            image = self._images.images[number]
            sizes.setdefault((image.height, image.width), []).append(number)
        for members in sizes.values():
            for start in range(0, len(members), batch):
                yield members[start : start + batch]


class Fronted:
    """Images behind the front of one network, flipped or not; computed once while they fit."""

    def __init__(self, images: SegmentedImages, front: Callable[[Tensor], Tensor], room: int):
        self._images, self._front, self._kept = images, front, Kept(room)

    def __call__(self, ids: NDArray[np.int64], flips: NDArray[np.bool_]) -> list[Tensor]:
        """C x height x width of each."""
        return [
            self._one(View(int(number), bool(flipped)))
            for number, flipped in zip(ids, flips, strict=True)
        ]

    def _one(self, view: View) -> Tensor:
        kept = self._kept.get(view)
        if kept is not None:
            return kept
        picture, _ = self._images[view.place]
        made = self._front(picture.flip(2) if view.is_flipped else picture)
        self._kept.add(view, made)
        return made


def _pixels(image: VocImage) -> tuple[Tensor, Tensor]:
    picture = np.asarray(image.picture())
    pixels = torch.from_numpy(picture.transpose(2, 0, 1).copy())
    return pixels, torch.from_numpy(image.classes_of_pixels())
