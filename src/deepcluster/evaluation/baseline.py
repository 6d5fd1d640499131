"""Has it learned? A network before its first step and after, by the neighbours of images.

Where the images lie in folders, how often the nearest image lies in the same one. Always, how often
the nearest of all crops is the other crop of the same image. Labels are looked at here only to
measure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from deepcluster.evaluation.neighbour_agreement import neighbour_agreement
from deepcluster.features.sampled import whitened_rows
from deepcluster.images.loader import Images
from deepcluster.runtime.seeds import generator

MOST = 1_000
_BATCH = 128
FORMAT = 2  # in the first, untrained was a drawn network, whatever the run began with
_EPOCH = 1 << 20  # names crops that no epoch draws


@dataclass(frozen=True)
class Sample:
    """The images that both networks are asked about."""

    images: Images
    ids: list[int]
    seed: int
    workers: int

    @staticmethod
    def of(images: Images, seed: int, workers: int, most: int = MOST) -> Sample:
        """At most so many of the images, the same for every network of the run."""
        chosen = torch.randperm(len(images), generator=generator(seed, "baseline"))[:most]
        return Sample(images, sorted(chosen.tolist()), seed, workers)

    def figures(
        self,
        view: nn.Module,
        dimensions: int,
        device: torch.device,
        advance: Callable[[int], None] = lambda count: None,
    ) -> dict[str, float]:
        """The agreements by the features that this module gives, whitened as a run does."""
        found = {}
        count = len(self.ids)
        twice = np.repeat(np.array(self.ids), 2)
        draws = np.arange(2 * count)
        parts = [draws[start : start + _BATCH] for start in range(0, 2 * count, _BATCH)]
        crops = (
            pixels for pixels, _ in self.images.drawn(parts, twice, self.seed, _EPOCH, self.workers)
        )
        rows = whitened_rows(view, crops, dimensions, device, advance)
        found["crops"] = neighbour_agreement(rows, torch.from_numpy(draws // 2))
        if self.images.labels is not None:
            classes = torch.from_numpy(self.images.labels[self.ids])
            whole = self.images.seen(self.ids, _BATCH, self.workers)
            rows = whitened_rows(view, whole, dimensions, device, advance)
            found["folders"] = neighbour_agreement(rows, classes)
        return found

    @property
    def looks(self) -> int:
        """How many pictures a network is shown."""
        return len(self.ids) * (2 if self.images.labels is None else 3)

    def chance(self) -> dict[str, float]:
        """What a network that sees nothing would get."""
        count = len(self.ids)
        found = {"crops": 1 / max(1, 2 * count - 1)}
        if self.images.labels is not None:
            sizes = np.bincount(self.images.labels[self.ids]).astype(float)
            found["folders"] = float((sizes * (sizes - 1)).sum() / max(1, count * (count - 1)))
        return found


def compared(
    sample: Sample, untrained: dict[str, float], trained: dict[str, float]
) -> dict[str, Any]:
    """What baseline.json says; untrained is the network as the run began with it."""
    chance = sample.chance()
    return {
        "format": FORMAT,
        "images": len(sample.ids),
        "comparisons": [
            {
                "name": name,
                "untrained": untrained[name],
                "trained": trained[name],
                "chance": chance[name],
            }
            for name in ("folders", "crops")
            if name in untrained and name in trained
        ],
    }
