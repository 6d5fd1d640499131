"""DeepCluster in the manner of scikit-learn: fit, predict, transform, on images of any kind."""

from __future__ import annotations

import base64
import html
import io
import os
import shutil
import tempfile
import threading
import weakref
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    ClusterMixin,
    TransformerMixin,
)
from sklearn.utils.validation import check_is_fitted

from deepcluster.clusters import KMeans
from deepcluster.collection.contact_sheet import Shown, Strip, drawn
from deepcluster.collection.groups import groups_of, read_clusters, whitened_rows
from deepcluster.collection.model import load
from deepcluster.collection.sight import refuse_any_unusable, sight_of
from deepcluster.features import Whitening
from deepcluster.images.album import Album
from deepcluster.images.folder import encoded
from deepcluster.images.given import opened
from deepcluster.images.kept import Pixels
from deepcluster.images.packing import pack
from deepcluster.images.store import Store
from deepcluster.intake import Intake, colour_for
from deepcluster.presets import PRESETS, automatic, with_arch, with_sobel
from deepcluster.runtime import interruption
from deepcluster.runtime.display import Display
from deepcluster.runtime.errors import DataError, UsageError
from deepcluster.runtime.run_folder import RunFolder
from deepcluster.runtime.world import joined
from deepcluster.session import Asked, train
from deepcluster.settings import Run, suggested_k

_SHEET_GROUPS = 12
_SHEET_IMAGES = 8


class _PassingPlace:
    """A temporary folder that is shared by copies and goes with the last of them."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="deepcluster-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)

    def __deepcopy__(self, _: object) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()  # a pickle may outlive the folder and holds none


class DeepCluster(ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin, BaseEstimator):
    """A convnet that teaches itself from images, and the groups they fall into.

    Images are a path (folder, list file, tar shards, store), a list of paths, an array N x H x W or
    N x H x W x C of uint8, or a torch Dataset. The constructor only stores settings; `fit` makes a
    run, in `out` or else in a temporary folder that goes with the estimator and its copies; a
    pickle holds what `predict` and `transform` need, and not the folder.

    Args:
        k: How many groups; "auto" follows the number of images.
        preset: Of `deepcluster.presets`, or "auto": what suits the images and the device.
        epochs: Clusterings, each followed by training on its labels; the preset's if not given.
        minutes: Time to spend at the most.
        seed: Names every random stream.
        arch: alexnet, vgg16 or a torchvision network; the preset's if not given.
        input_size: Side of the square that the network sees; the preset's if not given.
        dimensions: Of the whitened features; the preset's if not given.
        max_unusable: Share of the files that may be no images; with more, `fit` refuses them all.
        device: cpu, cuda, or auto.
        out: Run folder; the same settings and images again continue it.
        verbose: Whether to tell what goes on.

    Attributes:
        labels_: Group of each usable image, -1 where it has no finite feature.
        paths_: Path of each of them; the number of an image that came in an array.
        cluster_centers_: k x d, in the space of `transform`.
        history_: One dictionary an epoch, as in journal.jsonl.
        model_: Network and preprocessing, with `embed`.
        run_: The run folder.
    """

    def __init__(
        self,
        k: int | Literal["auto"] = "auto",
        preset: str = "small",
        *,
        epochs: int | None = None,
        minutes: float | None = None,
        seed: int = 0,
        arch: str | None = None,
        input_size: int | None = None,
        dimensions: int | None = None,
        max_unusable: float = 0.05,
        device: str = "auto",
        out: str | Path | None = None,
        verbose: bool = True,
    ) -> None:
        self.k = k
        self.preset = preset
        self.epochs = epochs
        self.minutes = minutes
        self.seed = seed
        self.arch = arch
        self.input_size = input_size
        self.dimensions = dimensions
        self.max_unusable = max_unusable
        self.device = device
        self.out = out
        self.verbose = verbose

    def fit(self, X: Any, y: object = None) -> Self:  # noqa: N803 - scikit-learn's name
        """Learn features and groups; `y` is there for scikit-learn's sake and not looked at."""
        share = _number("max_unusable", self.max_unusable)
        if not 0 <= share <= 1:
            raise UsageError(f"max_unusable = {share:g}: use a share from 0 to 1")
        out = self._passing_place() if self.out is None else Path(self.out)
        main = threading.current_thread() is threading.main_thread()
        with (
            interruption.noticed() if main else nullcontext(),  # signals reach no other thread
            joined(self.device) as world,
            Display(speaks=self.verbose and world.leads).shown() as display,
        ):
            place = (
                X
                if isinstance(X, str | Path)
                else self._packed(X, out, world.device.type == "cuda")
            )
            settle = partial(self._settle, grey=Intake(Path(place)).in_grey)
            asked = Asked(Path(place), settle, out=out, max_unusable=share)
            folder, _ = train(asked, world, display)
        return self._fitted(folder)

    def fit_transform(self, X: Any, y: object = None, **_: Any) -> NDArray[np.float32]:  # noqa: N803
        """Fit, and the features of the same images; row i is image i, zero where there is none."""
        self.fit(X)
        return whitened_rows(RunFolder(self.run_)).numpy()

    def transform(self, X: Any) -> NDArray[np.float32]:  # noqa: N803
        """The features of images: whitened, of unit length, N x d."""
        check_is_fitted(self, "model_")
        return self.model_.embed(X, whiten=True, normalize=True)

    def predict(self, X: Any) -> NDArray[np.int64]:  # noqa: N803
        """The group of each image."""
        check_is_fitted(self, "model_")
        model, groups = self.model_, self._groups.to(self.model_.device)
        blocks = sight_of(opened(X), model.preprocessing, model.device).blocks(
            64, os.cpu_count() or 1
        )
        found = [
            groups.members(model.activations(crops)).cluster.cpu()
            for crops in refuse_any_unusable(blocks)
        ]
        return torch.cat(found).numpy() if found else np.empty(0, np.int64)

    @classmethod
    def load(cls, run: str | Path, device: str = "auto") -> Self:
        """The estimator that a finished run stands for, fitted.

        One that was exported for the hub predicts and transforms; it has no `labels_` and `paths_`.
        """
        model = load(run, device)
        groups_of(model)  # or one sentence: an imported network has none
        effective = model.effective
        estimator = cls(
            k=effective.get("clustering.k", "auto"),
            epochs=effective["epochs"],
            seed=effective["seed"],
            arch=effective["network.arch"],
            input_size=effective["network.input_size"],
            dimensions=effective["whitening.dimensions"],
            device=device,
            out=run,
        )
        return estimator._fitted(RunFolder(Path(run)))

    @property
    def _n_features_out(self) -> int:
        return int(self.cluster_centers_.shape[1])

    def _settle(self, images: int, gpu: bool, grey: bool = False) -> tuple[Run, list[str]]:
        """The settings for so many images, and in words why."""
        reasons: dict[str, str] = {}
        if self.preset == "auto":
            run, reasons = automatic(images, gpu, timed=self.minutes is not None, grey=grey)
        elif (name := str(self.preset).replace("_", "-")) in PRESETS:
            run = with_sobel(PRESETS[name]()) if grey else PRESETS[name]()
        else:
            raise UsageError(f"no preset {self.preset!r}; there are auto, {', '.join(PRESETS)}")
        clustering = run.clustering
        if not isinstance(clustering, KMeans):
            if self.k != "auto":
                raise UsageError(
                    f"k = {self.k!r}: power iteration finds the number of groups itself; "
                    'leave k at "auto"'
                )
        else:
            if self.k != "auto":
                k = _whole("k", self.k, ', or "auto"')
                run = replace(run, clustering=replace(clustering, k=k))
                reasons.pop("clustering.k", None)
            elif self.preset != "auto":
                k = suggested_k(images)
                run = replace(run, clustering=replace(clustering, k=k))
                reasons["clustering.k"] = f"k = {k:,} groups: {images:,}^0.8 / 8"
        if self.arch not in (None, run.network.arch):
            run = with_arch(run, self.arch)
            reasons.pop("network.input_size", None)  # it names the other network
            reasons.pop("network.front", None)  # seen of that one
            if not run.network.patches:
                reasons.pop("network.patches", None)
        network = run.network
        if self.input_size is not None:
            network = replace(network, input_size=_whole("input_size", self.input_size))
        minutes = None if self.minutes is None else _number("minutes", self.minutes)
        run = replace(run, seed=_whole("seed", self.seed), minutes=minutes, network=network)
        if self.epochs is not None:
            run = replace(run, epochs=_whole("epochs", self.epochs))
        if self.dimensions is not None:
            run = replace(run, whitening=Whitening(_whole("dimensions", self.dimensions)))
        return run, list(reasons.values())

    def _passing_place(self) -> Path:
        """A run folder that goes when the estimator and all its copies have gone."""
        self._place = _PassingPlace()
        return self._place.path / "run"

    def _packed(self, images: Any, out: Path, gpu: bool) -> Path:
        """Where images that are no path are kept for the run: a store beside its folder."""
        place = out.with_name(out.name + "-images")
        source = opened(images)
        assert not isinstance(source, Store)  # that is a path
        source.refuse_without_images()
        run, _ = self._settle(len(source.find()), gpu)
        store = pack(source, place, colour_for(run), Pixels(), run.speed.threads)
        index = store.index
        if left_out := index.unusable:  # rows would no longer be images
            first, reason = left_out[0]
            raise DataError(
                f"{len(left_out)} of {len(left_out) + len(index.paths)} images cannot be used "
                f"(the first is {encoded(first)}: {reason}); leave them out"
            )
        return place

    def _fitted(self, folder: RunFolder) -> Self:
        self.model_ = load(folder.path, self.device)
        self._groups = groups_of(self.model_).to(torch.device("cpu"))  # for pickles
        if not folder.closing.get("exported"):  # which goes without what tells of the images
            clusters = read_clusters(folder)
            self.labels_ = clusters.cluster
            self.paths_ = clusters.path
        assert self.model_.centroids is not None
        self.cluster_centers_ = self.model_.centroids.cpu().numpy()
        self.history_ = folder.journal()
        self.run_ = folder.path
        return self

    def _repr_html_(self) -> str:
        """For notebooks: the largest groups, a few images of each."""
        head = f"<pre>{html.escape(repr(self))}</pre>"
        if not hasattr(self, "labels_"):
            return head
        if not RunFolder(self.run_).finished:
            return f"{head}<p>{html.escape(str(self.run_))} is gone: no pictures to show.</p>"
        sheet = io.BytesIO()
        drawn(self._strips()).save(sheet, "JPEG", quality=85)  # it stays in the notebook's file
        picture = base64.b64encode(sheet.getvalue()).decode()
        return (
            f"{head}<p>{len(self.labels_):,} images in {len(self.cluster_centers_):,} groups; "
            f"those nearest to the middle of the largest groups:</p>"
            f'<img alt="groups" src="data:image/jpeg;base64,{picture}">'
        )

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    def _strips(self) -> list[Strip]:
        folder = RunFolder(self.run_)
        images, clusters = Album.of_run(folder), read_clusters(folder)
        sizes = np.bincount(self.labels_[self.labels_ >= 0])
        strips = []
        for group in np.argsort(-sizes, kind="stable")[:_SHEET_GROUPS].tolist():
            members = np.flatnonzero(self.labels_ == group)
            nearest = members[np.argsort(clusters.distance[members], kind="stable")]
            shown = [
                Shown(images.original(number), clusters.path[number])
                for number in nearest[:_SHEET_IMAGES].tolist()
            ]
            strips.append(Strip(f"group {group}: {len(members):,} images", shown))
        return strips


def _whole(name: str, value: Any, otherwise: str = "") -> int:
    """A setting as Python's own number, which a search over an array of them does not give."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise UsageError(f"{name} = {value!r}: use a whole number{otherwise}")
    return int(value)


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise UsageError(f"{name} = {value!r}: use a number")
    return float(value)
