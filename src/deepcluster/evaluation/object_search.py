"""Looking for objects with a detector that has learnt: scores, boxes, suppression."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from deepcluster.evaluation.bench import Bench
from deepcluster.evaluation.boxes import moved, within
from deepcluster.evaluation.detection_map import Detections
from deepcluster.evaluation.detector_images import Pictures, Scale, Seen
from deepcluster.evaluation.fast_rcnn import FastRCNN
from deepcluster.evaluation.kept_views import View
from deepcluster.evaluation.proposals import Regions
from deepcluster.evaluation.voc import VocImage
from deepcluster.runtime import interruption
from deepcluster.runtime.errors import NumericsError
from deepcluster.runtime.interruption import Interrupted

_FIRST_JUDGED = 1_000  # boxes of an image that suppression looks at first, over all classes
_MOST_JUDGED = 4_000  # and at the most
_REGIONS_AT_ONCE = 16_384  # of several images of one canvas, where objects are looked for


@dataclass(frozen=True)
class ObjectSearch:
    """Which boxes are reported; see `VOCDetection` for what the numbers mean."""

    threshold: float
    suppression: float
    detections: int

    @torch.no_grad()
    def __call__(
        self,
        model: FastRCNN,
        images: Sequence[VocImage],
        regions: Regions,
        scale: Scale,
        bench: Bench,
        pictures: Pictures | None = None,
    ) -> Detections:
        """What the model finds in the images, each process in its share of them."""
        world, device = bench.world, bench.world.device
        model.eval()
        share = world.share(len(images))
        pictures = pictures or Pictures(device, bench.workers)
        rows = [torch.zeros(0, 7, dtype=torch.float64, device=device)]
        finite = torch.ones((), dtype=torch.bool, device=device)
        with bench.display.phase("finding objects", len(share), {}, "detect") as phase:
            for batch in _alike(images, share, regions, scale):
                pixels = dict(zip(batch, pictures([images[i] for i in batch]), strict=True))
                seen = Seen(model, images, scale, pixels.__getitem__, bench.autocast)
                shares, boxes = _scored(seen, batch, regions)
                finite &= shares.isfinite().all()
                counts = [len(regions.boxes[place]) for place in batch]
                for place, own, moved_to in zip(
                    batch, shares.split(counts), boxes.split(counts), strict=True
                ):
                    image = images[place]
                    found = self._kept(own, within(moved_to, image.width, image.height))
                    number = torch.full((len(found), 1), place, dtype=torch.float64, device=device)
                    rows.append(torch.cat([number, found], dim=1))
                phase.advance(len(batch))
                if world.size == 1:  # several processes end at the next step that they share
                    interruption.raise_if_asked()
        if world.any(interruption.asked() is not None):
            raise Interrupted(interruption.asked() or interruption.TERMINATED)
        if world.any(not bool(finite)):  # else it would have found nothing, and no more be said
            raise NumericsError(
                "the detector's scores are not finite: learning has diverged; use a smaller --steps"
            )
        every = world.gather(torch.cat(rows)).cpu().numpy()
        every = every[every[:, 0].argsort(kind="stable")]  # image by image, as they are listed
        return Detections(
            every[:, 0].astype(np.int64), every[:, 1].astype(np.int64), every[:, 2], every[:, 3:]
        )

    def _kept(self, shares: Tensor, boxes: Tensor) -> Tensor:
        """What is left of the boxes of one image, the surest first."""
        places, labels = torch.nonzero(shares >= self.threshold, as_tuple=True)
        sure = shares[places, labels]
        order = sure.argsort(descending=True, stable=True)[:_MOST_JUDGED]
        places, labels, sure = places[order], labels[order], sure[order]
        chosen = boxes[places, labels]
        kept = self._unsuppressed(chosen, sure, labels)
        columns = [labels[kept, None], sure[kept, None], chosen[kept]]
        return torch.cat([column.double() for column in columns], dim=1)

    def _unsuppressed(self, boxes: Tensor, sure: Tensor, labels: Tensor) -> Tensor:
        """Which boxes, the surest first, no surer one of their class overlaps too much.

        Whether a box stays depends on surer ones alone. So the surest are looked at first, and
        more only where too few of them stay: the work grows with the square of their number.
        """
        from torchvision.ops import nms

        # Classes lie side by side, so that no box meets one of another class.
        span = boxes.amax() + 1 if len(boxes) else 1.0
        apart = boxes.double() + (labels.double() * span)[:, None]
        judged = _FIRST_JUDGED
        while True:
            kept = nms(apart[:judged], sure[:judged].double(), self.suppression)
            if len(kept) >= self.detections or judged >= len(boxes):
                return kept[: self.detections]
            judged = _MOST_JUDGED


def _scored(seen: Seen, places: Sequence[int], regions: Regions) -> tuple[Tensor, Tensor]:
    """R x classes and R x classes x 4: of all regions of some images the shares and boxes."""
    model, device = seen.model, seen.model.scores.weight.device
    images = [seen.images[place] for place in places]
    counts = [len(regions.boxes[place]) for place in places]
    of = torch.from_numpy(np.repeat(np.arange(len(places)), counts)).to(device)
    boxes = torch.from_numpy(np.concatenate([regions.boxes[place] for place in places]))
    factors = np.array([seen.scale.factors(image) * 2 for image in images])
    scaled = (boxes * torch.from_numpy(np.repeat(factors, counts, axis=0))).float().to(device)
    ((_, maps),) = seen.together([View(place) for place in places])
    with torch.autocast(device.type, seen.autocast, enabled=seen.autocast is not None):
        scores, offsets = model(model.pooled(maps, scaled, of))
    return scores.softmax(dim=1)[:, :-1], moved(boxes.float().to(device), offsets)


def _alike(
    images: Sequence[VocImage], places: Iterable[int], regions: Regions, scale: Scale
) -> Iterator[list[int]]:
    """The images in batches of one canvas each, which hold so many regions at most, or one."""
    groups: dict[tuple[int, int], list[int]] = {}
    for place in places:
        group = groups.setdefault(scale.canvas(images[place]), [])
        if group and sum(len(regions.boxes[one]) for one in (*group, place)) > _REGIONS_AT_ONCE:
            yield group.copy()
            group.clear()
        group.append(place)
    yield from (group for group in groups.values() if group)
