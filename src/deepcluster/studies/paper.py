"""What the paper reports, in percent, each with its place in it.

The comparison that the first version of table 1 made was between ten crops and one; the erratum of
18/03/2019 has both, and these are the corrected ones.
"""

LAYERS = ("conv1", "conv2", "conv3", "conv4", "conv5")

Figures = tuple[float | None, ...]

TABLE1_SOURCE = "table 1, accuracy of the central crop (corrected by the erratum of 18/03/2019)"
TABLE1: dict[str, tuple[Figures, Figures]] = {  # ImageNet, Places
    "Places labels": ((None,) * 5, (22.1, 35.1, 40.2, 43.3, 44.6)),
    "ImageNet labels": ((19.3, 36.3, 44.2, 48.3, 50.5), (22.7, 34.8, 38.4, 39.4, 38.7)),
    "random": ((11.6, 17.1, 16.9, 16.3, 14.1), (15.7, 20.3, 19.8, 19.1, 17.5)),
    "DeepCluster": ((12.9, 29.2, 38.2, 39.8, 36.1), (18.6, 30.8, 37.0, 37.5, 33.1)),
}

TEN_CROPS_SOURCE = "erratum of 18/03/2019 and appendix, table of variants: mean of 10 crops"
TEN_CROPS: dict[str, tuple[Figures, Figures]] = {  # ImageNet, Places
    "DeepCluster": ((13.4, 32.3, 41.0, 39.6, 38.2), (19.6, 33.2, 39.2, 39.8, 34.7)),
    "YFCC100M": ((13.5, 30.9, 38.0, 34.5, 31.4), (19.7, 33.0, 38.4, 39.0, 35.2)),
    "PIC": ((13.5, 32.4, 40.8, 40.5, 37.8), (19.5, 32.9, 39.1, 39.5, 35.9)),
    "RGB": ((18.0, 32.5, 39.2, 37.2, 30.6), (23.8, 32.8, 37.3, 36.0, 31.0)),
}

CLASSIF_SOURCE = "appendix, table of data and clusterings: fc6 to fc8 learnt anew on ImageNet"
CLASSIF: dict[tuple[str, str], float] = {  # pre-training images, clustering
    ("ImageNet", "k-means"): 44.0,
    ("ImageNet", "PIC"): 45.9,
    ("YFCC100M", "k-means"): 39.6,
    ("YFCC100M", "PIC"): 38.6,
}

MLP_SOURCE = "appendix, table of fc6 to fc8 learnt anew on ImageNet"
MLP = {
    "supervised": 59.7,
    "supervised Sobel": 57.8,
    "random": 12.0,
    "DeepCluster": 44.0,
    "YFCC100M": 39.6,
}

TABLE2_SOURCE = "table 2, transfer to Pascal VOC (classification corrected by the erratum)"
_TASKS = tuple(
    f"{task} {part}"
    for task in ("classification", "detection", "segmentation")
    for part in ("fc6-8", "all")
)
Tasks = dict[str, float | None]


def _by_task(*figures: float | None) -> Tasks:
    return dict(zip(_TASKS, figures, strict=True))


TABLE2: dict[str, Tasks] = {
    "ImageNet labels": _by_task(78.9, 79.9, None, 56.8, None, 48.0),
    "random-rgb": _by_task(33.2, 57.0, 22.2, 44.5, 15.2, 30.1),
    "random-sobel": _by_task(29.0, 61.9, 18.9, 47.9, 13.0, 32.0),
    "DeepCluster": _by_task(70.4, 73.7, 51.4, 55.4, 43.2, 45.1),
}

TABLE3_SOURCE = "table 3, training set (its 72.0 is from before the erratum, which has 70.4)"
TABLE3: dict[str, Tasks] = {
    "ImageNet": _by_task(72.0, 73.7, 51.4, 55.4, 43.2, 45.1),
    "YFCC100M": _by_task(67.3, 69.3, 45.6, 53.0, 39.2, 42.2),
}

PIC_SOURCE = "appendix, PIC versus k-means (its 72.0 is from before the erratum, which has 70.4)"
PIC: dict[str, Tasks] = {
    "k-means": _by_task(72.0, 73.7, 51.4, 55.4, 43.2, 45.1),
    "PIC": _by_task(71.0, 73.0, 53.6, 54.4, 42.4, 43.8),
}

TABLE4_SOURCE = "table 4, mAP of detection on VOC 2007 with fine-tuning"
TABLE4: dict[str, tuple[float, float]] = {  # AlexNet, VGG-16
    "ImageNet labels": (56.8, 67.3),
    "random": (47.8, 39.7),
    "DeepCluster": (55.4, 65.9),
}

TABLE5_SOURCE = "table 5, mAP of retrieval with a VGG-16, Sobel filters before it"
TABLE5: dict[str, Tasks] = {
    "ImageNet labels": {"Oxford": 72.4, "Paris": 81.5},
    "random": {"Oxford": 6.9, "Paris": 22.0},
    "DeepCluster": {"Oxford": 61.0, "Paris": 72.0},
}
SOBEL_HELPS_OXFORD = 5.5
"""Points of mAP that Sobel filters add to a supervised VGG-16 on Oxford (section 5.3, in words)."""

_LEAST = 1.0  # points: shares of less are mostly noise


def gap_closed(
    ours: Figures, random: Figures, supervised: Figures, *, chance: float = 0.0
) -> Figures:
    """How much of the way from random to supervised was gone, in percent; none of hardly any way.

    Args:
        ours: In percent, as the others.
        random: Where the way begins.
        supervised: Where it ends.
        chance: Points that may be nothing but chance.
    """
    return tuple(
        None
        if value is None or low is None or high is None or high - low < max(_LEAST, chance)
        else 100 * (value - low) / (high - low)
        for value, low, high in zip(ours, random, supervised, strict=True)
    )
