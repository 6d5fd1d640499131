"""The groups of a finished run, and which of them any image belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from deepcluster.clusters import assign, nearest
from deepcluster.features import PCA
from deepcluster.runtime.errors import UsageError
from deepcluster.runtime.run_folder import RunFolder

STRANGE = 0.99
"""An image farther from its group than this share of the run's own images is in none of them."""

_MEASURED = 4096  # images whose own distance is measured, where it is not at hand
_ROWS = 8192  # training images compared with at once


class Members(NamedTuple):
    """Where each of some images belongs."""

    cluster: Tensor  # (n,) int64
    distance: Tensor  # (n,) float32
    margin: Tensor  # (n,) float32: how much farther the second-best group is
    none: Tensor  # (n,) bool: so far away that it is in none of the groups


@dataclass(frozen=True)
class CentroidGroups:
    """Groups around centroids, as k-means leaves them."""

    pca: PCA
    centroids: Tensor
    farthest: float
    """Of the run's own images, `STRANGE` are no farther from their centroid."""

    def members(self, rows: Tensor) -> Members:
        """The nearest centroid of each raw feature."""
        cluster, distance, margin = assign(self.pca(rows), self.centroids)
        return Members(cluster, distance, margin, ~(distance <= self.farthest))


@dataclass(frozen=True)
class NeighbourGroups:
    """Groups without a centre, as power iteration leaves them: the nearest image tells."""

    pca: PCA
    rows: Tensor  # (n, d) float32: the run's own images, whitened
    labels: Tensor  # (n,) int64
    farthest: float
    """Of the run's own images, `STRANGE` have another one no farther away."""

    def members(self, rows: Tensor) -> Members:
        """The group of the nearest image of the run; the margin is to that of another group."""
        whitened = self.pca(rows)
        found = nearest(whitened, self.rows, 1)
        cluster = self.labels[found.index[:, 0]]
        distance = found.distance[:, 0].sqrt().float()
        margin = self._to_others(whitened, cluster) - distance
        return Members(cluster, distance, margin, ~(distance <= self.farthest))

    def _to_others(self, whitened: Tensor, cluster: Tensor) -> Tensor:
        """The distance to the nearest image of another group; inf if there is none."""
        best = torch.full((len(whitened),), torch.inf, dtype=torch.float64, device=whitened.device)
        for start in range(0, len(self.rows), _ROWS):
            part = slice(start, start + _ROWS)
            apart = torch.cdist(
                whitened.double(),
                self.rows[part].double(),
                compute_mode="donot_use_mm_for_euclid_dist",
            )
            apart[cluster[:, None] == self.labels[part]] = torch.inf
            best = torch.minimum(best, apart.amin(dim=1))
        return best.float()


def groups_of(
    folder: RunFolder, pca: PCA | None, centroids: Tensor | None
) -> CentroidGroups | NeighbourGroups:
    """The groups of a run, on the device of its PCA."""
    if pca is None or centroids is None:
        raise UsageError(f"{folder.path} has no groups: its network was imported")
    table = read_clusters(folder)
    finite = table.cluster >= 0
    if folder.settings["effective"]["clustering"] != "PowerIteration":
        own = table.distance[finite]
        return CentroidGroups(pca, centroids, float(np.quantile(own, STRANGE)))
    rows = whitened_rows(folder)[finite].to(centroids.device)
    labels = torch.from_numpy(table.cluster[finite]).to(rows.device)
    return NeighbourGroups(pca, rows, labels, _typical_distance(rows))


class ClusterTable(NamedTuple):
    """What clusters.parquet says; entry i is image i."""

    path: list[str]
    cluster: np.ndarray
    distance: np.ndarray
    margin: np.ndarray


def read_clusters(folder: RunFolder) -> ClusterTable:
    """The groups of the run's own images, whole."""
    table = _read_parquet(folder.verified("clusters.parquet"))
    return ClusterTable(
        table["path"].to_pylist(),
        table["cluster"].to_numpy().astype(np.int64),
        table["distance"].to_numpy(),
        table["margin"].to_numpy(),
    )


def whitened_rows(folder: RunFolder) -> Tensor:
    """The features that the run grouped (N x d, float32); row i is image i."""
    rows = np.load(folder.verified("features.npy"), allow_pickle=False)
    return torch.from_numpy(rows.astype(np.float32))


def _typical_distance(rows: Tensor) -> float:
    """What `STRANGE` of the images have to their nearest other one; of many, some are measured."""
    some = rows[:: max(1, len(rows) // _MEASURED)]
    if len(rows) < 2:
        return 0.0
    # The nearest of all is the image itself, or a copy of it.
    apart = nearest(some, rows, 2).distance[:, 1].sqrt()
    return float(np.quantile(apart.cpu().numpy(), STRANGE))


def _read_parquet(path: Path) -> pa.Table:
    # Not read_table: its threads, beside torch's, can abort the process when it ends.
    return pq.ParquetFile(path).read(use_threads=False)
