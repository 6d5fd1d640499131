"""The groups of a finished run, and which of them any image belongs to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors.torch import load_file
from torch import Tensor

from deepcluster.clusters import assign, nearest, own_and_other
from deepcluster.collection.model import Model
from deepcluster.features import PCA
from deepcluster.runtime.errors import UsageError
from deepcluster.runtime.run_folder import RunFolder

STRANGE = 0.99
"""An image farther from its group than this share of the run's own images is in none of them."""

_MEASURED = 4096  # images whose own distance is measured, where it is not at hand
_ITSELF = 1e-3  # nearer than this is the image itself: rows of unit length are kept in float16


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

    def to(self, device: torch.device) -> CentroidGroups:
        """The same on another device."""
        return replace(self, pca=_moved(self.pca, device), centroids=self.centroids.to(device))

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
    """Of the run's own images, `STRANGE` have another one of their group no farther away."""

    def to(self, device: torch.device) -> NeighbourGroups:
        """The same on another device."""
        rows, labels = self.rows.to(device), self.labels.to(device)
        return replace(self, pca=_moved(self.pca, device), rows=rows, labels=labels)

    def members(self, rows: Tensor) -> Members:
        """The group of the nearest image of the run; the margin is to that of another group.

        An image of the run is in its own group, and is not compared with itself: its distance is
        that to the nearest other one of its group, 0 if it is alone there.
        """
        whitened = self.pca(rows).half().float()  # as the run's own rows were kept
        found = nearest(whitened, self.rows, 1)
        number = found.index[:, 0]
        itself = found.distance[:, 0].sqrt() < _ITSELF
        cluster = self.labels[number]
        left_out = torch.where(itself, number, -1)
        own, other = own_and_other(whitened, cluster, self.rows, self.labels, left_out)
        distance = torch.where(itself & own.isinf(), 0.0, own)
        return Members(cluster, distance, other - distance, ~(distance <= self.farthest))


def groups_of(model: Model) -> CentroidGroups | NeighbourGroups:
    """The groups of the run that a network comes from, on the network's device."""
    folder, pca, centroids = model.folder, model.pca, model.centroids
    if folder is None or pca is None or centroids is None:
        raise UsageError(
            f"{'the network' if folder is None else folder.path} has no groups: it was imported; "
            "train on your images makes some, and --init begins with these weights"
        )
    exported = folder.closing.get("exported")
    if model.effective["clustering"] != "PowerIteration":
        farthest = exported["farthest"] if exported else _farthest(folder)
        return CentroidGroups(pca, centroids, farthest)
    if exported:
        kept = load_file(folder.verified("groups.safetensors"))
        rows, labels = kept["rows"].float(), kept["labels"]
    else:
        rows, labels = _known_rows(folder)
    rows, labels = rows.to(centroids.device), labels.to(centroids.device)
    return NeighbourGroups(pca, rows, labels, _typical_distance(rows, labels))


def for_others(folder: RunFolder, groups: dict[str, Tensor]) -> tuple[dict[str, Tensor], float]:
    """What others need to tell groups without the run: tensors, and the distance of `STRANGE`.

    Args:
        folder: The run.
        groups: What its groups.safetensors holds.
    """
    if folder.settings["effective"]["clustering"] != "PowerIteration":
        return groups, _farthest(folder)
    rows, labels = _known_rows(folder)
    return {**groups, "rows": rows.half(), "labels": labels}, _typical_distance(rows, labels)


def _moved(pca: PCA, device: torch.device) -> PCA:
    return PCA(pca.mean.to(device), pca.projection.to(device))


def _farthest(folder: RunFolder) -> float:
    table = _read_clusters(folder, ["cluster", "distance"])  # without paths, a million strings
    cluster, distance = table["cluster"].to_numpy(), table["distance"].to_numpy()
    return float(np.quantile(distance[cluster >= 0], STRANGE))


def _known_rows(folder: RunFolder) -> tuple[Tensor, Tensor]:
    """The features of the images that are in a group, and which."""
    cluster = _read_clusters(folder, ["cluster"])["cluster"].to_numpy().astype(np.int64)
    known = torch.from_numpy(cluster >= 0)
    return whitened_rows(folder)[known], torch.from_numpy(cluster)[known]


class ClusterTable(NamedTuple):
    """What clusters.parquet says; entry i is image i."""

    path: list[str]
    cluster: np.ndarray
    distance: np.ndarray
    margin: np.ndarray


def read_clusters(folder: RunFolder) -> ClusterTable:
    """The groups of the run's own images, whole."""
    table = _read_clusters(folder)
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


def _typical_distance(rows: Tensor, labels: Tensor) -> float:
    """What `STRANGE` of the images have to the nearest other one of their group.

    Of many images some are measured; one that is alone in its group says nothing.
    """
    some = torch.arange(0, len(rows), max(1, len(rows) // _MEASURED), device=rows.device)
    own = own_and_other(rows[some], labels[some], rows, labels, some).own
    known = own[own.isfinite()].cpu().numpy()
    return float(np.quantile(known, STRANGE)) if len(known) else 0.0


def _read_clusters(folder: RunFolder, columns: list[str] | None = None) -> pa.Table:
    # Not read_table: its threads, beside torch's, can abort the process when it ends.
    file = pq.ParquetFile(folder.verified("clusters.parquet"))
    return file.read(columns, use_threads=False)
