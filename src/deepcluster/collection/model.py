"""A trained network and its preprocessing in one object: `deepcluster.load(run).embed(images)`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from deepcluster.collection.sight import Preprocessing, refuse_any_unusable, sight_of
from deepcluster.features import PCA
from deepcluster.images.crops import normalize
from deepcluster.images.given import opened
from deepcluster.networks import Network, build_network, looked_at
from deepcluster.runtime.errors import ResumeError, UsageError
from deepcluster.runtime.run_folder import RunFolder, finished_run
from deepcluster.runtime.world import joined

_LEAST = 16  # rows below which libraries take another path, which rounds otherwise


@dataclass(frozen=True)
class Wanted:
    """Which numbers stand for an image."""

    layer: str | None = None
    """By name; maps are averaged over their places. None: the feature that is clustered."""
    whiten: bool = False
    """By the run's own PCA."""
    normalize: bool = False
    """To unit length."""


class Model:
    """A trained network with its preprocessing, in evaluation mode, in float32."""

    def __init__(
        self,
        network: Network,
        preprocessing: Preprocessing,
        effective: dict[str, Any],
        groups: dict[str, Tensor],
        device: torch.device,
        folder: RunFolder | None = None,
    ) -> None:
        # The layout in which convolutions are faster.
        network = network.to(device).to(memory_format=torch.channels_last)
        self.network = network.eval().requires_grad_(False)
        # Settings that earlier runs did not have.
        self.clustered = effective.get("network.clustered", "top")
        self.views = int(effective.get("network.views", 1))
        self._view = looked_at(self.network, self.clustered, self.views)
        self.preprocessing = preprocessing
        self.effective = effective
        self.device = device
        self.folder = folder
        self._groups = groups
        self.pca = (
            PCA(groups["pca.mean"].to(device), groups["pca.projection"].to(device))
            if "pca.mean" in groups
            else None
        )
        self.centroids = groups["centroids"].to(device) if "centroids" in groups else None

    def __repr__(self) -> str:
        arch, front = self.effective["network.arch"], self.effective["network.front"]
        where = "" if self.folder is None else f", run={str(self.folder.path)!r}"
        return f"Model({arch}, {front}, {self.preprocessing.size} px{where})"

    def __reduce__(self) -> tuple[Any, ...]:
        """For copies and pickles of estimators: on the CPU, so that any machine can take it up."""
        network = deepcopy(self.network).cpu()
        return _revived, (
            network,
            self.preprocessing,
            dict(self.effective),
            {name: tensor.cpu() for name, tensor in self._groups.items()},
            self.device.type,
            self.folder,
        )

    @property
    def layers(self) -> list[str]:
        """The layers that can be asked for."""
        return [*self.network.layers, *self._other_names]

    @property
    def _other_names(self) -> dict[str, str]:
        """Of the paper's networks, what other networks call pooled: the last maps, averaged."""
        names = list(self.network.layers)
        if "pooled" in names:
            return {}
        return {"pooled": [name for name in names if name.startswith("conv")][-1]}

    def embed(
        self,
        images: Any,
        layer: str | None = None,
        *,
        whiten: bool = False,
        normalize: bool = False,
        batch: int = 64,
        workers: int | None = None,
    ) -> NDArray[np.float32]:
        """The features of images, N x d; row i is image i.

        A file that cannot be read raises a DataError that names it: rows would no longer be images.

        Args:
            images: A path (folder, one file, list file, shards, store), a list of paths, an array
                N x H x W or N x H x W x C of uint8, a picture, or a dataset.
            layer: By name (see `layers`); maps are averaged, and pooled is the last of them.
                Without one, what is clustered.
            whiten: Whether to apply the run's PCA.
            normalize: Whether to scale each row to unit length.
            batch: How many images at a time; the features do not depend on it.
            workers: How many threads decode; one for each core if not given.
        """
        if batch < 1 or (workers is not None and workers < 1):
            raise UsageError(f"batch = {batch}, workers = {workers}: at least 1 is needed")
        wanted = Wanted(layer, whiten, normalize)
        self.refuse(wanted)
        sight = sight_of(opened(images), self.preprocessing, self.device)
        blocks = sight.blocks(batch, workers or os.cpu_count() or 1)
        rows = [self.vectors(crops, wanted).cpu() for crops in refuse_any_unusable(blocks)]
        return torch.cat(rows).numpy() if rows else np.empty((0, self.width(wanted)), np.float32)

    def vectors(self, crops: Tensor, wanted: Wanted) -> Tensor:
        """What stands for each of the crops (n x channels x size x size, uint8), float32."""
        return self.shaped(self.activations(crops, wanted.layer), wanted)

    def shaped(self, rows: Tensor, wanted: Wanted) -> Tensor:
        """Activations as they are wanted: whitened, of unit length, or as they are."""
        with full_float32():
            if wanted.whiten:
                assert self.pca is not None
                rows = self.pca.whitened(rows)
            if wanted.normalize:
                rows = rows / rows.norm(dim=1, keepdim=True).clamp_min(1e-12)
        return rows

    def activations(self, crops: Tensor, layer: str | None = None) -> Tensor:
        """What a layer says to each of the crops, n x d; without one, the feature."""
        layer = None if layer is None else self._other_names.get(layer, layer)
        count = len(crops)
        if count < _LEAST:
            crops = torch.cat([crops, crops.new_zeros(_LEAST - count, *crops.shape[1:])])
        with torch.no_grad(), full_float32():
            inputs = normalize(crops.to(self.device, non_blocking=True))
            if layer is None or layer == self._clustered_layer:
                rows = self._view(inputs)
            else:
                rows = self._averaged(self.network.activations(inputs, [layer])[layer])
            return rows.float()[:count]

    def refuse(self, wanted: Wanted) -> None:
        """Raise, in one sentence, where this network cannot give what is wanted."""
        if wanted.layer is not None and wanted.layer not in self.layers:
            raise UsageError(f"no layer {wanted.layer!r}; there are {', '.join(self.layers)}")
        clustered = self._clustered_layer
        if wanted.whiten and wanted.layer not in (None, clustered):
            raise UsageError(
                f"--whiten: the run's PCA is of {clustered}, not of {wanted.layer}; leave out one "
                "of the two"
            )
        if wanted.whiten and self.pca is None:
            raise UsageError("--whiten: this network was imported and has no PCA")

    @property
    def _clustered_layer(self) -> str:
        """The name of the layer whose output is clustered."""
        return list(self.network.layers)[-1] if self.clustered == "top" else str(self.clustered)

    def width(self, wanted: Wanted) -> int:
        """How many numbers stand for an image."""
        channels = 1 if self.preprocessing.colour == "grey" else 3
        size = self.preprocessing.size
        return self.vectors(torch.zeros(1, channels, size, size, dtype=torch.uint8), wanted).shape[
            1
        ]

    def _averaged(self, activation: Tensor) -> Tensor:
        """One vector an image: the mean over places, which a transformer keeps elsewhere."""
        if activation.ndim == 4 and self.effective["network.arch"].startswith("swin"):
            return activation.float().mean(dim=(1, 2))
        if activation.ndim == 4:
            return activation.float().mean(dim=(2, 3))
        return activation.float().mean(dim=1) if activation.ndim == 3 else activation


def load(run: str | Path, device: str = "auto") -> Model:
    """The network of a finished run with its preprocessing; hashes are verified.

    Args:
        run: The run folder, or its name in runs/.
        device: cpu, cuda, or auto: the GPU if there is one.
    """
    folder = finished_run(run)
    effective = folder.settings["effective"]
    weights = _tensors(folder.verified("model.safetensors"))
    grouped = "groups.safetensors" in folder.closing["sha256"]  # what was imported has no groups
    groups = _tensors(folder.verified("groups.safetensors")) if grouped else {}
    network = _built(folder, effective)
    try:
        network.trunk.load_state_dict(weights)
    except RuntimeError as error:
        raise ResumeError(
            f"{folder.path}/model.safetensors does not fit the network of settings.json "
            f"({str(error).splitlines()[-1].strip()})"
        ) from error
    with joined(device) as world:
        here = world.device
    return Model(network, Preprocessing.of(effective), effective, groups, here, folder)


def _revived(
    network: Network,
    preprocessing: Preprocessing,
    effective: dict[str, Any],
    groups: dict[str, Tensor],
    kind: str,
    folder: RunFolder | None,
) -> Model:
    """The model on the kind of device that it was on, where this machine has one."""
    device = torch.device(kind if kind != "cuda" or torch.cuda.is_available() else "cpu")
    return Model(network, preprocessing, effective, groups, device, folder)


def _built(folder: RunFolder, effective: dict[str, Any]) -> Network:
    try:
        return build_network(
            effective["network.arch"],
            effective["network.front"],
            input_size=effective["network.input_size"],
            dropout=effective["network.dropout"],
            width=effective["network.width"],
            generator=torch.Generator().manual_seed(0),  # all weights are replaced
        )
    except (KeyError, TypeError, ValueError, UsageError) as error:
        raise ResumeError(
            f"{folder.path}/settings.json names no network that there is ({error}); put the run's "
            "own file back"
        ) from error


def _tensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise ResumeError(f"{path} cannot be read ({error})") from error


@contextmanager
def full_float32() -> Iterator[None]:
    """While open, products and convolutions keep all digits of float32."""
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]
