"""What may be said to the verb evaluate: the flags of every protocol."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Literal, get_args

import tyro

from deepcluster.evaluation.knn import KNearest
from deepcluster.evaluation.linear_probe import LinearProbe
from deepcluster.evaluation.mlp import MLPProbe
from deepcluster.evaluation.retrieval import Retrieval
from deepcluster.evaluation.voc import Split, Year
from deepcluster.evaluation.voc_classification import VOCClassification
from deepcluster.evaluation.voc_detection import VOCDetection
from deepcluster.evaluation.voc_segmentation import VOCSegmentation
from deepcluster.flags import Count, shown_as
from deepcluster.reading_flags import LinkFlags

Folder = Annotated[Path | None, shown_as("DIR")]
Name = Annotated[str | None, shown_as("NAME")]


def _one_of(words: object) -> str:
    """How the help shows what may be chosen from."""
    return "{" + ",".join(map(str, get_args(words))) + "}"


_SETS = _one_of(Split)


@dataclass(frozen=True)
class Common:
    """Flags of every protocol."""

    out: Folder = None
    """Where the result is written; RUN/evaluations, or evaluations for random, if not given."""

    stores: Path = Path("evaluations/stores")
    """Where images are kept decoded for the next evaluation."""

    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Arithmetic of products; auto is bfloat16 on a GPU."""

    device: str = "auto"
    """cpu, cuda, or auto: the GPU if there is one."""

    workers: Count = None
    """Threads that crop images; one for each core if not given."""


@dataclass(frozen=True)
class WithRandom(Common):
    """Flags of protocols that judge an untrained network too."""

    like: Name = None
    """The run whose architecture random has."""

    arch: Name = None
    """Architecture of random: alexnet (default), vgg16, or a torchvision network."""

    input_size: Count = None
    """Side of the images that random sees (default 224)."""

    width: Count = None
    """Width of fc6 and fc7 of random (default 4096)."""


@dataclass(frozen=True)
class Labelled(LinkFlags, WithRandom):
    """Flags of protocols that take images with one class each."""

    data: Folder = None
    """Folder with train/ and val/ (or test/), each with one folder per class."""

    train: Folder = None
    """Training images, if not data/train: folder, list, shards or store."""

    test: Folder = None
    """Test images, if not data/val."""


# Settings know nothing of flags: how the help shows those that may be left open is said here.
@dataclass(frozen=True)
class _LinearShown(LinearProbe):
    layers: Annotated[tuple[str, ...], shown_as("NAME ...")] = ()


@dataclass(frozen=True)
class _MLPShown(MLPProbe):
    hidden: Count = None


@dataclass(frozen=True)
class _NearestShown(KNearest):
    layer: Name = None
    dimensions: Count = None


@dataclass(frozen=True)
class _RetrievalShown(Retrieval):
    whiten_on: Name = None
    images: Name = None
    ground_truth: Name = None
    layer: Name = None
    dimensions: Count = None


@dataclass(frozen=True)
class _ClassificationShown(VOCClassification):
    epochs: Count = None
    decays: Annotated[tuple[float, ...] | None, shown_as("X ...")] = None
    hidden: Count = None


@dataclass(frozen=True)
class _DetectionShown(VOCDetection):
    boxes: Name = None
    short_side: Count = None
    long_side: Count = None
    passes: Annotated[float | None, shown_as("X")] = None


@dataclass(frozen=True)
class _SegmentationShown(VOCSegmentation):
    year: Annotated[Year | None, shown_as(_one_of(Year))] = None
    learn_on: Annotated[Split | None, shown_as(_SETS)] = None
    judge_on: Annotated[Split | None, shown_as(_SETS)] = None
    epochs: Count = None


@dataclass(frozen=True)
class Linear(Labelled):
    """A linear classifier on each frozen layer, all layers and candidates learnt together."""

    settings: Annotated[_LinearShown, tyro.conf.arg(name="")] = field(default_factory=_LinearShown)


@dataclass(frozen=True)
class Mlp(Labelled):
    """fc6 to fc8 learnt anew on the frozen convolutions."""

    settings: Annotated[_MLPShown, tyro.conf.arg(name="")] = field(default_factory=_MLPShown)


@dataclass(frozen=True)
class Nearest(Labelled):
    """The vote of the nearest training images, by cosine; nothing is learnt."""

    settings: Annotated[_NearestShown, tyro.conf.arg(name="")] = field(
        default_factory=_NearestShown
    )

    seed: int = 0
    """Of random: names its weights."""


@dataclass(frozen=True)
class Agreement(LinkFlags, Common):
    """How well a run's groups agree with the folders of its own images, or of others (--data)."""

    data: Folder = None
    """One folder per class, or a list, shards or a store of such; of train/ and val/ the latter."""


@dataclass(frozen=True)
class Transferred(WithRandom):
    """Flags of every protocol of transfer.

    One more is a subclass whose field `settings` is a `Transfer`, and its line in PROTOCOLS.
    """

    data: Folder = None
    """VOCdevkit, the folder of the year in it, or what holds VOCdevkit."""

    fresh: bool = False
    """Compute again what earlier evaluations have kept in stages/."""


@dataclass(frozen=True)
class Landmarks(LinkFlags, Transferred):
    """Photographs of the same landmark, found by R-MAC (Oxford5k, Paris6k)."""

    data: Folder = None
    """Folder with images/ and the ground truth (gt_files/*_query.txt and its companions)."""

    settings: Annotated[_RetrievalShown, tyro.conf.arg(name="")] = field(
        default_factory=_RetrievalShown
    )


@dataclass(frozen=True)
class ClassifiedVOC(Transferred):
    """VOC2007 classification: fc6 to fc8, or all, learnt for 20 classes; average precision."""

    settings: Annotated[_ClassificationShown, tyro.conf.arg(name="")] = field(
        default_factory=_ClassificationShown
    )


@dataclass(frozen=True)
class DetectedVOC(Transferred):
    """Object detection by Fast R-CNN on Pascal VOC 2007, taught on trainval, judged on test."""

    settings: Annotated[_DetectionShown, tyro.conf.arg(name="")] = field(
        default_factory=_DetectionShown
    )


@dataclass(frozen=True)
class SegmentedVOC(Transferred):
    """VOC segmentation: fc6 to fc8, or all, learnt for the class of every pixel; mean IoU."""

    settings: Annotated[_SegmentationShown, tyro.conf.arg(name="")] = field(
        default_factory=_SegmentationShown
    )


PROTOCOLS: dict[str, type[Common]] = {
    "linear": Linear,
    "mlp": Mlp,
    "knn": Nearest,
    "agreement": Agreement,
    "voc-classification": ClassifiedVOC,
    "voc-detection": DetectedVOC,
    "voc-segmentation": SegmentedVOC,
    "retrieval": Landmarks,
}


def name_of(settings: object) -> str:
    """What settings are called, however the help shows them."""
    return next(kind.__name__ for kind in type(settings).__mro__ if kind.__name__[0] != "_")


def flags_of(kind: type[Common]) -> list[str]:
    """All that may be given, as on the command line."""
    names = [entry.name for entry in fields(kind) if entry.name != "settings"]
    settings = getattr(kind(), "settings", None)
    if is_dataclass(settings):
        names += [entry.name for entry in fields(settings)]
    return ["--" + name.replace("_", "-") for name in names]
