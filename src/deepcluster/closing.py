"""The closing pass: the final network looks and groups once more.

The last epoch's labels belong to a network that has since moved on; what a run leaves behind
(groups, features, PCA, centroids) must belong to the network that it leaves behind.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors.torch import save as tensors_as_bytes

from deepcluster.clusters import Clusters, PowerIteration, own_and_other
from deepcluster.exchange.model_card import model_card
from deepcluster.features import Features
from deepcluster.keepsakes import keep_for_the_page, write_page
from deepcluster.loop import Sitting, group, look
from deepcluster.runtime import faults
from deepcluster.runtime.run_folder import settings_hash
from deepcluster.training.record import about_clusters


def closing_pass(sitting: Sitting) -> Clusters:
    """Look and group with the final network, and write what the run is for.

    In float32 whatever the run learned in, and with rows that are computed twice rather than kept
    in float16: the groups are those that anybody gets from the saved network, on any device.
    """
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    speed = replace(sitting.run.speed, keep_features="recompute")
    exactly = replace(sitting, run=replace(sitting.run, precision="float32", speed=speed))
    epoch = sitting.course.done
    record: dict[str, Any] = {"seconds": {}}
    sitting.display.closes()
    features = look(exactly, epoch, record)
    clusters = group(exactly, features, epoch, record)
    # A supervised run's labels are no clustering's.
    last = sitting.course.labels if sitting.run.labels == "clusters" else None
    record |= about_clusters(clusters, last, sitting.images.labels)
    every_row = _every_row(features, sitting)
    if isinstance(sitting.run.clustering, PowerIteration) and sitting.world.leads:
        clusters = _beside_each_other(clusters, every_row, sitting.world.device)
    sitting.course.settle()  # a finished run can be given more epochs
    if sitting.world.leads:
        _write(sitting, features, clusters, every_row)
    keep_for_the_page(sitting, clusters)
    if sitting.world.leads:
        record |= {
            "epochs": epoch,
            "epochs_asked": sitting.run.epochs,
            "minutes_asked": sitting.run.minutes,
            "images": len(sitting.images),
            "warnings": sitting.display.warned,
            "sha256": sitting.course.folder.hashes(),
            "settings_sha256": settings_hash(sitting.course.folder.settings),
        }
        sitting.course.folder.write("MODEL_CARD.md", model_card(sitting.course.folder, record))
        # Last of all: its presence says that the run is finished.
        sitting.course.folder.write("closing.json", json.dumps(record, indent=2) + "\n")
        shutil.rmtree(sitting.course.folder.scratch, ignore_errors=True)
        write_page(sitting)
    sitting.world.wait()
    return clusters


def _every_row(features: Features, sitting: Sitting) -> np.ndarray:
    """The whitened features of all images (N x d, float16); zero where there is none."""
    rows = sitting.world.gather(features.matrix.half().cpu())
    whole = torch.zeros(len(features.finite), rows.shape[1], dtype=torch.float16)
    whole[features.finite] = rows
    return whole.numpy()


def _beside_each_other(clusters: Clusters, every_row: np.ndarray, device: torch.device) -> Clusters:
    """The groups, with distance and margin to images in place of means, which mean little here.

    What `predict` says of the same images: no image is compared with itself, and one that is alone
    in its group is at distance 0.
    """
    known = clusters.labels >= 0
    rows = torch.from_numpy(every_row).to(device)[known.to(device)].float()
    labels = clusters.labels[known].to(device)
    own, other = own_and_other(rows, labels, rows, labels, torch.arange(len(rows), device=device))
    own = torch.where(own.isfinite(), own, 0.0)
    distances, margins = clusters.distances.clone(), clusters.margins.clone()
    distances[known], margins[known] = own.cpu(), (other - own).cpu()
    return replace(clusters, distances=distances, margins=margins)


def _write(sitting: Sitting, features: Features, clusters: Clusters, every_row: np.ndarray) -> None:
    folder, network = sitting.course.folder, sitting.course.network
    settings = {"settings": json.dumps(sitting.run.results())}
    weights = {key: value.cpu().contiguous() for key, value in network.trunk.state_dict().items()}
    folder.write("model.safetensors", tensors_as_bytes(weights, metadata=settings))
    folder.write_array("features.npy", every_row)
    groups = {
        "pca.mean": features.pca.mean.cpu().contiguous(),
        "pca.projection": features.pca.projection.cpu().contiguous(),
        "centroids": clusters.centroids.cpu().contiguous(),
    }
    folder.write("groups.safetensors", tensors_as_bytes(groups, metadata=settings))
    table = pa.table(
        {
            "id": pa.array(np.arange(len(sitting.images)), pa.int64()),
            "path": pa.array(sitting.images.names, pa.string()),
            "cluster": pa.array(clusters.labels.numpy(), pa.int32()),
            "distance": pa.array(clusters.distances.numpy(), pa.float32()),
            "margin": pa.array(clusters.margins.numpy(), pa.float32()),
        }
    )
    faults.point("closing.write")
    folder.write("clusters.parquet", lambda path: pq.write_table(table, path))
