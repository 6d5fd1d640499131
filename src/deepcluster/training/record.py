"""What an epoch leaves in the journal, and the warnings that its figures give rise to."""

from __future__ import annotations

import math
import warnings
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from deepcluster.clusters import Clusters, normalized_mutual_information
from deepcluster.runtime.errors import HeadIsGuessing, OneClusterDominates

# One cluster with more than this share of the images, of k that should have 1/k each.
_DOMINANT = 0.5


def about_clusters(
    clusters: Clusters,
    previous: NDArray[np.int64] | None,
    folder_labels: NDArray[np.int64] | None,
) -> dict[str, Any]:
    """Figures of a clustering; folder labels are looked at here and nowhere else in training."""
    sizes = clusters.sizes
    total = int(sizes.sum())
    if clusters.count > 2 and int(sizes.max()) > _DOMINANT * total:
        warnings.warn(
            OneClusterDominates(
                f"one cluster holds {int(sizes.max()) / total:.0%} of the images; training draws "
                "every cluster equally often, but if this lasts, try a smaller --training.step "
                "or another --seed"
            ),
            stacklevel=2,
        )
    return {
        "clusters": clusters.count,
        "clustering_loss": clusters.objective[-1],
        "nmi_last": _agreement(clusters.labels, previous),
        "nmi_labels": _agreement(clusters.labels, folder_labels),
        "largest": int(sizes.max()),
        "smallest": int(sizes.min()),
        "empty": int((sizes == 0).sum()),
        "repaired": clusters.repaired,
        "search": clusters.search,
    }


def about_training(
    loss: float, count: int, before: list[dict[str, Any]], kind: Literal["groups", "classes"]
) -> dict[str, Any]:
    """The loss beside that of a head that guesses among so many groups, or classes.

    `before` are the journal's lines so far.
    """
    guessing = math.log(count)
    recent = [*((entry["loss"], entry["ln_k"]) for entry in before[-2:]), (loss, guessing)]
    if len(recent) == 3 and all(lost > 0.99 * guess for lost, guess in recent):
        fewer = "a smaller --k or --batch" if kind == "groups" else "a smaller --batch"
        warnings.warn(
            HeadIsGuessing(
                f"for three epochs the loss ({loss:.3f}) has been that of guessing among "
                f"{count} {kind} (ln k = {guessing:.3f}): the network is not learning yet; if "
                f"this lasts, try a larger --training.step, {fewer}, or more images"
            ),
            stacklevel=2,
        )
    return {"loss": loss, "ln_k": guessing}


def _agreement(labels: torch.Tensor, others: NDArray[np.int64] | None) -> float | None:
    if others is None:
        return None
    return normalized_mutual_information(labels, torch.from_numpy(others))
