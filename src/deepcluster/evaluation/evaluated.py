"""The network under evaluation, with what belongs to it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from deepcluster.evaluation.subject import Shape
from deepcluster.features import PCA
from deepcluster.images.kept import Colour
from deepcluster.networks import Network, build_network, looked_at
from deepcluster.runtime.errors import ResumeError
from deepcluster.runtime.run_folder import RunFolder
from deepcluster.runtime.seeds import generator
from deepcluster.runtime.world import World


@dataclass(frozen=True)
class Evaluated:
    """A network on its device; of a run, with its PCA and centroids where it has some."""

    network: Network
    shape: Shape
    pca: PCA | None = None
    centroids: Tensor | None = None
    clustered: str = "top"
    """The layer that is grouped, or would be."""
    views: int = 1
    """Of an image, over which it is averaged."""
    dimensions: int | None = None
    """That it is whitened to, or would be; none where no run says so."""

    @property
    def seen(self) -> nn.Module:
        """From images to what is grouped, or would be."""
        return looked_at(self.network, self.clustered, self.views)

    def grouped_like(self, folder: RunFolder) -> Evaluated:
        """The same, of which is seen what that run groups; it must be of this architecture."""
        effective = folder.settings["effective"]
        # Earlier runs grouped the top, of one view, and did not say so.
        clustered = str(effective.get("network.clustered", "top"))
        views = int(effective.get("network.views", 1))
        dimensions = effective.get("whitening.dimensions")
        return replace(self, clustered=clustered, views=views, dimensions=dimensions)

    @property
    def colour(self) -> Colour:
        """What its images must keep: Sobel begins by averaging the colours."""
        return "grey" if self.shape.front == "sobel" else "rgb"

    @property
    def fingerprint(self) -> str:
        """Names the trunk's weights, and what figures depend on beside them.

        The same weights may be meant for images of another size, or be taught with other dropout.
        """
        digest = hashlib.blake2b(repr(self.shape).encode(), digest_size=8)
        for name, tensor in sorted(self.network.trunk.state_dict().items()):
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

    def on(self, world: World) -> Evaluated:
        """The same on the device that computes."""
        # The layout in which convolutions are faster, on a CPU too.
        network = self.network.to(world.device).to(memory_format=torch.channels_last)
        pca = self.pca and PCA(*(t.to(world.device) for t in (self.pca.mean, self.pca.projection)))
        centroids = None if self.centroids is None else self.centroids.to(world.device)
        return replace(self, network=network, pca=pca, centroids=centroids)


def untrained(shape: Shape, seed: int) -> Evaluated:
    """The network as it is before the first step of a run with this seed."""
    network = build_network(
        shape.arch,
        shape.front,
        input_size=shape.input_size,
        dropout=shape.dropout,
        width=shape.width,
        generator=generator(seed, "network"),
    )
    return Evaluated(network, shape)


def of_run(folder: RunFolder) -> Evaluated:
    """The network that the run has left."""
    start = untrained(Shape.of_run(folder), seed=0).grouped_like(folder)
    start.network.trunk.load_state_dict(_tensors(folder, "model.safetensors"))
    if not (folder.path / "groups.safetensors").is_file():  # a supervised run groups nothing
        return start
    groups = _tensors(folder, "groups.safetensors")
    pca = PCA(groups["pca.mean"], groups["pca.projection"])
    return replace(start, pca=pca, centroids=groups["centroids"])


def _tensors(folder: RunFolder, name: str) -> dict[str, Tensor]:
    place = folder.verified(name)  # figures of other weights would be nobody's
    try:
        return load_file(place)
    except (OSError, SafetensorError) as error:
        raise ResumeError(
            f"{folder.path / name} cannot be read ({error}); the same deepcluster train writes it "
            "again once closing.json is deleted"
        ) from error
