"""Functions returning a Run. A preset chooses the kind, a flag the amount."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from deepcluster.clusters import KMeans, PowerIteration
from deepcluster.features import Whitening
from deepcluster.images.jitter import Jitter
from deepcluster.pseudolabels import Draw
from deepcluster.settings import Architecture, Run, Speed, suggested_k
from deepcluster.training.optimizers import Optimization


def paper_alexnet() -> Run:
    """The paper's main run: AlexNet with Sobel, k-means with k = 10,000, 500 epochs.

    `deepcluster train imagenet/train --preset paper-alexnet` (12 days on a P100 in the paper).
    Images are read from a grey store with a short side of 256 pixels, of which the smallest crops
    are softer than of the files; `--pixels.keep files` decodes these at every look.
    """
    return Run()


def paper_vgg16() -> Run:
    """The paper's deeper network: VGG-16 with batch norm and Sobel, otherwise as AlexNet."""
    return Run(network=Architecture(arch="vgg16"))


def paper_pic() -> Run:
    """The paper's other clustering: power iteration on the 5-neighbour graph, sigma = 0.2."""
    return Run(clustering=PowerIteration(sigma=0.2))


def paper_rgb() -> Run:
    """The paper's run on colours, without Sobel; the store is as large and in colours."""
    return Run(network=Architecture(front="rgb"))


def small() -> Run:
    """Thousands of images on a CPU: as small-alexnet, on colours, at 64 pixels and narrower.

    `deepcluster train photos/ --preset small`. To expect, on 5,000 images of 50 kinds of scenes
    (half of places-50, 7 epochs, 6 minutes on one busy core, one seed): linear probes of 20.2,
    22.5, 22.7, 20.9 and 18.5% on conv1 to conv5, where the untrained network has 16.7, 19.5, 17.8,
    17.3 and 16.6%, and groups whose AMI with the kinds goes from 0.129 to 0.144 (NMI from 0.190 to
    0.204). The features are there before the first step, since the first two convolutions begin as
    groups of patches; the steps are so small that they stay. Of grey images Sobel says a little
    more: `--network.front sobel`.
    """
    run = small_alexnet()
    return replace(
        run,
        epochs=7,
        precision="float32",
        # So few steps make no filters: 70,000 crops are not enough for features, patches are.
        # And what colours say of few images, contrasts alone do not.
        network=replace(run.network, front="rgb", input_size=64, width=512, patches=2),
        whitening=Whitening(dimensions=64),
        clustering=KMeans(k=50),
        # Few images make few steps, so that these are of few images. What begins well is not to be
        # overrun: the trunk's steps are small, those of the head, which begins anew, are not.
        training=replace(run.training, batch=32, step=0.01, head_step=50.0),
        speed=Speed(),
    )


def small_alexnet() -> Run:
    """5,000 to 100,000 images on a GPU: the paper's AlexNet at 128 pixels, grouped by six views.

    `deepcluster train photos/ --preset small-alexnet`. To expect, on 50,000 images of 100 classes
    (tiny-imagenet-100, 76 epochs, 3.7 minutes on an H200, three seeds): linear probes of 24.6,
    35.3, 39.9, 38.1 and 34.8% on conv1 to conv5, where the untrained network has 21.7, 24.4, 22.4,
    21.4 and 20.0%. Of 3,823 of them (17 s, one seed), each seen as often as gives the updates of 8
    epochs of all: 22.9, 32.1, 35.0, 34.3 and 32.4%, where those 8 epochs have 23.0, 31.4, 35.0,
    33.7 and 31.4%.
    """
    return Run(
        epochs=76,
        precision="bfloat16",
        # With few images the network soon knows each by heart, and groups what it remembers. What
        # several views of an image have in common, and crops that never look the same, are not
        # so easily remembered; and conv5 remembers less of the last groups than fc7 does.
        network=Architecture(input_size=128, dropout=0.2, clustered="conv5", views=6),
        jitter=Jitter(brightness=0.4, contrast=0.6, blur=0.5, erase=0.3),
        draw=Draw(reassign=2.0),  # looking six times takes longer than learning once
        clustering=KMeans(k=200, precision="bfloat16"),
        training=Optimization(smoothing=0.1, weight_decay=1e-4),  # the groups are no truth
        speed=Speed(look_batch=1024),  # 256 do not keep such a card busy
    )


def small_pic() -> Run:
    """As small, with power iteration clustering and sigma from the distances themselves.

    To expect, on the images of `small`, of 7 epochs in 6 minutes on one busy core, one seed: some
    240 groups, whose NMI with the kinds goes from 0.260 to 0.298 (more groups, larger NMI; by AMI,
    which allows for that, from 0.117 to 0.107, where `small` has 0.144), and probes of 20.1, 22.7,
    22.7, 21.4 and 19.4%.
    """
    return replace(small(), clustering=PowerIteration(sigma="auto"))


PRESETS: dict[str, Callable[[], Run]] = {
    preset.__name__.replace("_", "-"): preset
    for preset in (
        small,
        small_alexnet,
        small_pic,
        paper_alexnet,
        paper_vgg16,
        paper_pic,
        paper_rgb,
    )
}


_LAST_CONVOLUTION = {"alexnet": "conv5", "vgg16": "conv13"}


def with_arch(run: Run, arch: str) -> Run:
    """The run with a network by name; of another, its last convolution is clustered, or its top.

    Whichever was: layers are named by their networks. VGG's conv5 is an early one, and a ResNet
    has none, the top of which is its last convolution.
    """
    network = run.network
    if arch == network.arch:
        return run
    at_last_convolution = network.clustered == _LAST_CONVOLUTION.get(network.arch)
    clustered = _LAST_CONVOLUTION.get(arch, "top") if at_last_convolution else "top"
    patches = network.patches if arch in _LAST_CONVOLUTION else 0
    return replace(run, network=replace(network, arch=arch, clustered=clustered, patches=patches))


def with_sobel(run: Run) -> Run:
    """The run without colours, unless it is the paper's that is about them."""
    if run == paper_rgb():
        return run
    return replace(run, network=replace(run.network, front="sobel"))


def with_init(run: Run, init: str | None) -> Run:
    """The run as it begins with given weights, if any: then no filters are looked for."""
    if init is None:
        return run
    return replace(run, network=replace(run.network, patches=0))


OF_LABELS = (
    "what suits labels: the paper's crops, a step that falls to zero, a head with momentum, more "
    "decay; to be tuned by --training.step, --training.weight-decay and --epochs"
)


def for_labels(run: Run) -> Run:
    """The same network as it learns labels that are there and stay, as a baseline to compare with.

    Crops are the paper's, the step falls to zero, the head has momentum, and weights decay more:
    what suits labels does not suit groups that change (`benchmarks/log.md`).
    """
    paper = Run()
    return replace(
        run,
        labels="folders",
        clustering_start="random",
        draw=paper.draw,
        crops=paper.crops,
        jitter=paper.jitter,
        network=replace(run.network, clustered="top", views=1),
        training=replace(
            paper.training,
            weight_decay=1e-3,
            schedule="cosine",
            head_momentum=0.9,
            batch=run.training.batch,
        ),
    )


def automatic(
    images: int,
    gpu: bool,
    timed: bool = False,
    labels: Literal["clusters", "folders"] = "clusters",
    grey: bool = False,
) -> tuple[Run, dict[str, str]]:
    """A run for so many images on such a device, and the reason for each setting chosen.

    Args:
        images: How many usable images there are.
        gpu: Whether there is a GPU.
        timed: Whether the user gave minutes, which then decide the number of epochs.
        labels: What the network is trained to predict.
        grey: Whether images are kept in grey.
    """
    where = "a GPU" if gpu else "a CPU"
    if gpu and images >= 200_000:
        run = paper_alexnet()
        kind = f"the paper's AlexNet at 224 px: {images:,} images and {where} can carry it"
        epochs = 500 if images < 2_000_000 else 100
    elif gpu:
        run = small_alexnet()
        if images < 10_000:
            run = replace(run, training=replace(run.training, batch=32))
        kind = f"the paper's AlexNet at 128 px: {images:,} images on {where}"
        epochs = max(30, min(200, 2_500_000 // images))
    else:
        run = small()
        kind = f"a narrow AlexNet at 64 px: {images:,} images on {where}"
        epochs = max(3, min(20, 20_000 // images))
        if labels == "folders":  # an epoch is one pass, and nothing is looked at
            epochs = max(4, min(30, 60_000 // images))
    if grey:
        run = with_sobel(run)
    # A new head needs some fifty steps of its own before the trunk can learn from it.
    reassign = max(run.draw.reassign, float(round(1_500 / images)))
    k = suggested_k(images)
    dimensions = max(8, min(256, images // 20))
    reasons = {
        "network.input_size": kind,
        "clustering.k": f"k = {k:,} groups: {images:,}^0.8 / 8, "
        f"about {images / k:,.0f} images each",
        "whitening.dimensions": f"{dimensions} dimensions: one for every 20 images, at least 8, "
        "at most the paper's 256",
        "epochs": f"{epochs} epochs: about {epochs * reassign * images:,.0f} images "
        "seen in training",
    }
    if run.precision == "bfloat16":
        reasons["precision"] = "bfloat16 arithmetic: several times as fast on a GPU"
    if run.network.views > 1:
        reasons["network.views"] = (
            f"{run.network.views} views of an image, averaged before they are grouped: what they "
            "have in common groups better"
        )
    if run.network.front == "rgb":
        reasons["network.front"] = (
            "colours: with few steps they say more than Sobel's contrasts of grey"
        )
    if not gpu and labels == "clusters":
        reasons["training.head_step"] = (
            f"steps of {run.training.step:g}, of the head {run.training.head_step:g} times as "
            "large: what begins well is to stay, and the head begins anew"
        )
    if run.network.patches:
        reasons["network.patches"] = (
            f"the first {run.network.patches} convolutions begin as groups of patches: there are "
            "too few steps for them to become good"
        )
    if labels == "folders":
        run = for_labels(run)
        reasons["training.schedule"] = OF_LABELS
    if timed:
        epochs = 500
        reasons["epochs"] = "as many epochs as the minutes allow"
    if reassign > 1:
        reasons["draw.reassign"] = (
            f"{reassign:.0f} times through the images between clusterings: "
            + ("they are few" if reassign > run.draw.reassign else "looking takes long, too")
        )
    chosen = replace(
        run,
        epochs=epochs,
        draw=run.draw if labels == "folders" else Draw(reassign=reassign),
        clustering=KMeans(k=k, precision="bfloat16" if gpu else "float32"),
        whitening=Whitening(dimensions=dimensions),
    )
    return chosen, reasons
