"""Run: every setting, typed. What changes results stands apart from what changes only speed."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from deepcluster.clusters import KMeans, PowerIteration
from deepcluster.features import Whitening
from deepcluster.features.raw_rows import Keep
from deepcluster.images.crops import CropRange
from deepcluster.images.jitter import Jitter
from deepcluster.images.kept import Pixels
from deepcluster.networks.many_views import MOST_VIEWS
from deepcluster.pseudolabels import Draw
from deepcluster.runtime.errors import UsageError
from deepcluster.training.optimizers import Optimization

_KINDS: dict[str, type[KMeans] | type[PowerIteration]] = {
    "KMeans": KMeans,
    "PowerIteration": PowerIteration,
}
"""Of clusterings, by the name that stored settings give them."""


@dataclass(frozen=True)
class Architecture:
    """The convnet."""

    arch: str = "alexnet"
    """alexnet or vgg16 as in the paper, or any torchvision classification network by name."""

    front: Literal["sobel", "rgb"] = "sobel"
    """What the first layer sees: edges without colour (the paper), or colours."""

    input_size: int = 224
    """Side of the square that the network sees, in pixels; at least 64."""

    width: int = 4096
    """Width of fc6 and fc7 (alexnet and vgg16)."""

    dropout: float = 0.5
    """Share of activations dropped while training."""

    clustered: str = "top"
    """Layer whose output is clustered: top (the paper: fc7 before its ReLU), or one by name, such \
    as conv5, its maps averaged to at most 4,096 numbers."""

    views: int = 1
    """Views of an image whose features are averaged before they are clustered: 1 is the centre \
    alone (the paper), 2 its mirror image too, 6 four closer ones as well."""

    patches: int = 0
    """Convolutions, from the first on, whose filters begin as centroids of patches of what they \
    are given; with 0 all are drawn (the paper)."""

    init: str | None = None
    """Weights to begin with in place of drawn ones: a run, a .safetensors file, or a weight file \
    of torchvision or timm."""


@dataclass(frozen=True)
class Speed:
    """How the work is done. None of this changes what is computed, up to rounding."""

    device: str = "auto"
    """cpu, cuda, or auto: the GPU if there is one."""

    workers: int | None = None
    """Threads that decode images; one for each core if not given."""

    look_batch: int = 256
    """Images per step of the pass over all images."""

    keep_features: Keep = "auto"
    """Where raw features wait for whitening: device, file, recompute, or auto."""

    channels_last: bool = True
    """Memory layout in which convolutions are faster."""

    record_steps: bool = True
    """Record a step an epoch on a GPU and play it again (a CUDA graph): one process, the paper's \
    networks. The same kernels, launched at once."""

    save_minutes: float = 10.0
    """Time between two saves inside an epoch, and at most without any while the disk is slow."""

    checkpoints: int = 2
    """Checkpoints kept."""

    timeout_minutes: float = 10.0
    """How long processes wait for one that does not answer."""

    @property
    def threads(self) -> int:
        """Threads that decode images in this process, of those that share the machine."""
        if self.workers is not None:
            return self.workers
        return max(1, (os.cpu_count() or 1) // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


@dataclass(frozen=True)
class Run:
    """One run of the method. The defaults are the paper's, for AlexNet on ImageNet."""

    epochs: int = 500
    """Clusterings, each followed by training on its labels."""

    seed: int = 0
    """Names every random stream of the run."""

    minutes: float | None = None
    """Time to spend on epochs and the closing pass; training ends after the last epoch that fits, \
    or inside the first."""

    precision: Literal["float32", "tf32", "bfloat16"] = "float32"
    """Arithmetic of the network."""

    labels: Literal["clusters", "folders"] = "clusters"
    """What is learned: clusters (the method), or folders: the classes that folders or a list's \
    label column name, for a supervised network to compare with."""

    clustering_start: Literal["random", "previous"] = "random"
    """Where k-means starts: at random images (the paper), or where the last epoch's groups are."""

    network: Architecture = field(default_factory=Architecture)
    pixels: Pixels = field(default_factory=Pixels)
    whitening: Whitening = field(default_factory=Whitening)
    clustering: KMeans | PowerIteration = field(default_factory=KMeans)
    draw: Draw = field(default_factory=Draw)
    crops: CropRange = field(default_factory=CropRange)
    jitter: Jitter = field(default_factory=Jitter)
    training: Optimization = field(default_factory=Optimization)
    speed: Speed = field(default_factory=Speed)

    def results(self) -> dict[str, Any]:
        """The settings that decide what is computed; a run is continued only where these agree.

        The length may change, unless the step size has a schedule that ends with it.
        """
        described = flat(self)
        may_change = ("epochs", "minutes") if self.training.schedule == "constant" else ()
        return {
            name: value
            for name, value in described.items()
            if name not in may_change and not name.startswith("speed.")
        }

    @property
    def keeps_head(self) -> bool:
        """Whether the head outlives its epoch."""
        return self.labels == "folders" or self.training.head == "matched"

    @property
    def autocast(self) -> torch.dtype | None:
        """The type that the network's arithmetic is cast to, if to another one."""
        return torch.bfloat16 if self.precision == "bfloat16" else None

    def validate(self, images: int, processes: int = 1) -> None:
        """Refuse, before any work, what cannot be carried out on so many images."""
        if images < 2:
            raise UsageError(
                f"{'1 usable image' if images else 'no usable images'}; give at least 2"
            )
        if isinstance(self.clustering, KMeans):
            k = self.clustering.k
            if k < 2:
                raise UsageError(f"--k {k}: one group teaches nothing; use at least 2")
            if k > images:
                raise UsageError(
                    f"--k {k:,} but only {images:,} usable images; try --k {suggested_k(images)}"
                )
        if self.clustering_start == "previous":
            if self.labels == "folders":
                raise UsageError("--clustering-start previous: --labels folders has no clusterings")
            if not isinstance(self.clustering, KMeans):
                raise UsageError(
                    "--clustering-start previous: only k-means has centroids to start from"
                )
        if self.network.patches and self.network.init is not None:
            raise UsageError(
                f"--network.patches {self.network.patches} and --init {self.network.init}: filters "
                "begin in one way; leave one of the two out"
            )
        self.pixels.refuse_impossible()
        least_batch = 2 if processes == 1 else 8 * processes
        for flag, value, least, most in (
            ("--epochs", self.epochs, 1, math.inf),
            ("--minutes", self.minutes, 1e-6, math.inf),
            ("--input-size", self.network.input_size, 64, 4096),
            ("--network.width", self.network.width, 1, math.inf),
            ("--network.dropout", self.network.dropout, 0, 0.99),
            ("--network.views", self.network.views, 1, MOST_VIEWS),
            ("--network.patches", self.network.patches, 0, math.inf),
            ("--pixels.short-side", self.pixels.short_side, 64, math.inf),
            ("--dimensions", self.whitening.dimensions, 1, math.inf),
            ("--clustering.iterations", self.clustering.iterations, 1, math.inf),
            ("--draw.reassign", self.draw.reassign, 1e-6, 1e6),
            ("--crops.scale", self.crops.scale, 1e-6, 1),
            ("--crops.ratio", self.crops.ratio, 1, 100),
            ("--jitter.brightness", self.jitter.brightness, 0, 1),
            ("--jitter.contrast", self.jitter.contrast, 0, 1),
            ("--jitter.blur", self.jitter.blur, 0, 1),
            ("--jitter.erase", self.jitter.erase, 0, 1),
            ("--training.step", self.training.step, 1e-12, 1e6),
            ("--training.momentum", self.training.momentum, 0, 0.9999),
            ("--training.head-momentum", self.training.head_momentum, 0, 0.9999),
            ("--training.warmup", self.training.warmup, 0, math.inf),
            ("--training.fall", self.training.fall, 1e-6, 1),
            ("--training.head-step", self.training.head_step, 1e-6, 1e4),
            ("--training.smoothing", self.training.smoothing, 0, 0.99),
            ("--training.weight-decay", self.training.weight_decay, 0, 1e6),
            ("--batch", self.training.batch, least_batch, math.inf),
            ("--workers", self.speed.workers, 1, math.inf),
            ("--speed.look-batch", self.speed.look_batch, 1, math.inf),
            ("--speed.save-minutes", self.speed.save_minutes, 0, math.inf),
            ("--speed.checkpoints", self.speed.checkpoints, 1, math.inf),
            ("--speed.timeout-minutes", self.speed.timeout_minutes, 0.1, math.inf),
        ):
            if value is not None and not least <= value <= most:
                bounds = "more than 0" if 0 < least < 1e-3 else f"at least {least:g}"
                bounds += f" and at most {most:g}" if most < 1e5 else ""
                raise UsageError(f"{flag} {value:g}: use {bounds}")
        if self.training.schedule == "constant" and self.training.fall != 1:
            raise UsageError(
                f"--training.fall {self.training.fall:g}: a constant step does not fall; give "
                "--training.schedule cosine too, or leave --training.fall out"
            )
        if self.pixels.colour == "grey" and self.network.front == "rgb":
            raise UsageError("--pixels.colour grey: --network.front rgb wants colours")
        if images * self.draw.reassign < 2 * processes:
            raise UsageError(f"{images} images are too few for {processes} processes; use fewer")


def suggested_k(images: int) -> int:
    """A number of groups that suits so many images: 12 for 300, 75 for 3,000, 10,000 for ImageNet.

    The paper found about ten groups for every class best (figure 2c); with fewer images each
    group must hold a larger share of them to hold any number at all.
    """
    return max(2, min(10_000, round(images**0.8 / 8)))


def flat(settings: Any, prefix: str = "") -> dict[str, Any]:
    """The settings by dotted name, with the kind of each variant, as JSON can hold them."""
    named: dict[str, Any] = {}
    for entry in dataclasses.fields(settings):
        value = getattr(settings, entry.name)
        if dataclasses.is_dataclass(value):
            if entry.name == "clustering":
                named[f"{prefix}{entry.name}"] = type(value).__name__
            named |= flat(value, f"{prefix}{entry.name}.")
        else:
            named[f"{prefix}{entry.name}"] = value
    return named


def completed(described: Mapping[str, Any]) -> dict[str, Any]:
    """Stored settings, with those that an earlier version of the program did not have.

    What it did is what their defaults do now, so that its runs go on and its networks are taken
    over. With one exception, which stays without the setting: before there was `training.fall`, the
    step of a fresh head fell with the trunk's, and now it does not.
    """
    if "training.step" not in described:  # not of a run: there is nothing to complete
        return dict(described)
    kind = _KINDS.get(described.get("clustering", ""), KMeans)
    defaults = Run(clustering=kind()).results()
    if _head_fell(described):
        del defaults["training.fall"]
    return {**json.loads(json.dumps(defaults)), **described}


def _head_fell(described: Mapping[str, Any]) -> bool:
    """Whether these are of an earlier version, in which the step of a fresh head fell too."""
    return (
        "training.fall" not in described
        and described.get("training.schedule", "constant") == "cosine"
        and described.get("training.head", "fresh") == "fresh"
        and described.get("labels", "clusters") == "clusters"
    )


def restored(described: Mapping[str, Any]) -> Run:
    """The run that `flat` has described; what an earlier version did not have is at its default.

    Raises:
        KeyError: A setting is described that there is not, or none there is tells what was done.
    """
    if _head_fell(described):
        raise KeyError("training.fall")
    left = dict(described)
    clustering = _KINDS[left.pop("clustering", KMeans.__name__)]()

    def filled(settings: Any, prefix: str = "") -> Any:
        changes = {}
        for entry in dataclasses.fields(settings):
            name, value = f"{prefix}{entry.name}", getattr(settings, entry.name)
            if dataclasses.is_dataclass(value):
                changes[entry.name] = filled(value, f"{name}.")
            elif name in left:
                changes[entry.name] = left.pop(name)
        return dataclasses.replace(settings, **changes)

    run: Run = filled(Run(clustering=clustering))
    if left:
        raise KeyError(next(iter(left)))
    return run
