from __future__ import annotations

from dataclasses import replace

import pytest

from deepcluster.clusters import KMeans, PowerIteration
from deepcluster.images.crops import CropRange
from deepcluster.images.jitter import Jitter
from deepcluster.presets import (
    OF_LABELS,
    automatic,
    for_labels,
    paper_alexnet,
    paper_pic,
    paper_rgb,
    paper_vgg16,
    small,
    small_alexnet,
    small_pic,
    with_arch,
)
from deepcluster.runtime.errors import UsageError
from deepcluster.settings import Run, flat, suggested_k
from deepcluster.training.optimizers import Optimization


def test_the_papers_values():
    run = paper_alexnet()
    assert run.clustering == KMeans(k=10_000, iterations=20)
    assert run.epochs == 500
    assert run.whitening.dimensions == 256
    assert (run.draw.kind, run.draw.reassign) == ("uniform", 1.0)
    training = run.training
    assert (training.step, training.momentum, training.weight_decay) == (0.05, 0.9, 1e-5)
    assert (training.batch, training.head_momentum) == (256, 0.0)
    assert (training.schedule, training.warmup, training.smoothing) == ("constant", 0.0, 0.0)
    assert (training.head, training.head_step) == ("fresh", 1.0)
    assert (run.labels, run.clustering_start) == ("clusters", "random")
    assert (run.crops.scale, run.crops.ratio) == (0.08, 4 / 3)
    assert not run.jitter.changes
    network = run.network
    assert (network.arch, network.front, network.input_size) == ("alexnet", "sobel", 224)
    assert (network.width, network.dropout, network.clustered) == (4096, 0.5, "top")


def test_the_papers_variants_differ_in_one_thing():
    paper = flat(paper_alexnet())
    for variant, name in ((paper_vgg16, "network.arch"), (paper_rgb, "network.front")):
        now = flat(variant())
        assert [key for key in paper if now[key] != paper[key]] == [name]
    pic = paper_pic()
    assert isinstance(pic.clustering, PowerIteration)
    assert (pic.clustering.sigma, pic.clustering.neighbours) == (0.2, 5)
    assert (pic.clustering.alpha, pic.clustering.update) == (1e-3, "paper")


def test_the_small_one_is_the_recipe_of_a_gpu_made_smaller():
    of_a_gpu, here = flat(small_alexnet()), flat(small())
    smaller = {
        "epochs": 7,
        "precision": "float32",
        "network.front": "rgb",
        "network.input_size": 64,
        "network.width": 512,
        "network.patches": 2,
        "whitening.dimensions": 64,
        "clustering.k": 50,
        "clustering.precision": "float32",
        "training.batch": 32,
        "training.head_step": 50.0,
        "training.step": 0.01,
        "speed.look_batch": 256,
    }
    assert {name: here[name] for name in here if here[name] != of_a_gpu[name]} == smaller
    assert (here["network.clustered"], here["network.views"]) == ("conv5", 6)
    assert here["draw.reassign"] == 2


def test_the_small_power_iteration_takes_sigma_from_the_data():
    run = small_pic()
    assert run.clustering == PowerIteration(sigma="auto")
    assert replace(run, clustering=small().clustering) == small()


@pytest.mark.parametrize(
    ("images", "epochs", "passes"), [(300, 20, 5), (600, 20, 2), (5_000, 4, 2), (10**5, 3, 2)]
)
def test_a_cpu_gets_fewer_epochs_of_more_images(images: int, epochs: int, passes: int):
    run, reasons = automatic(images, gpu=False)
    assert (run.epochs, run.draw.reassign) == (epochs, passes)
    assert (run.network, run.jitter, run.training) == (
        small().network,
        small().jitter,
        small().training,
    )
    assert "6 views" in reasons["network.views"]
    assert "colours" in reasons["network.front"]
    assert "0.01, of the head 50 times" in reasons["training.head_step"]
    assert "the first 2 convolutions" in reasons["network.patches"]


@pytest.mark.parametrize(("images", "epochs"), [(300, 30), (5_000, 12), (10**5, 4)])
def test_a_baseline_on_a_cpu_passes_as_often_as_ever(images: int, epochs: int):
    assert automatic(images, gpu=False, labels="folders")[0].epochs == epochs
    assert (
        automatic(images, gpu=True, labels="folders")[0].epochs
        == automatic(images, gpu=True)[0].epochs
    )


@pytest.mark.parametrize("gpu", [False, True])
def test_a_baseline_learns_labels_as_suits_them(gpu: bool):
    recipe = automatic(5_000, gpu)[0]
    run, reasons = automatic(5_000, gpu, labels="folders")
    run.validate(5_000)
    assert replace(for_labels(recipe), epochs=run.epochs) == run
    paper = paper_alexnet()
    assert (run.labels, run.crops, run.jitter, run.draw) == (
        "folders",
        paper.crops,
        paper.jitter,
        paper.draw,
    )
    differing = {"clustered", "views"}  # nothing is grouped
    assert {**vars(run.network), **dict.fromkeys(differing)} == {
        **vars(recipe.network),
        **dict.fromkeys(differing),
    }
    assert (run.training.schedule, run.training.smoothing) == ("cosine", 0.0)
    assert (run.training.head_momentum, run.training.batch) == (0.9, recipe.training.batch)
    assert reasons["training.schedule"] == OF_LABELS


def test_of_another_network_the_same_place_is_clustered():
    assert with_arch(small(), "alexnet") == small()
    deep = with_arch(small(), "vgg16").network
    assert deep == replace(small().network, arch="vgg16", clustered="conv13")
    assert with_arch(small(), "resnet18").network.clustered == "top"  # its last maps, averaged
    assert with_arch(small(), "resnet18").network.patches == 0
    assert with_arch(paper_alexnet(), "vgg16") == paper_vgg16()
    early = replace(small(), network=replace(small().network, clustered="conv3"))
    assert with_arch(early, "vgg16").network.clustered == "top"


@pytest.mark.parametrize("images", [2, 20, 300, 3_000, 50_000, 1_281_167, 50_000_000])
@pytest.mark.parametrize("gpu", [False, True])
def test_automatic_settings_can_be_carried_out(images: int, gpu: bool):
    run, reasons = automatic(images, gpu)
    run.validate(images)
    assert set(reasons) <= set(flat(run))
    assert 8 <= run.whitening.dimensions <= 256


def test_suggested_k_grows_with_the_images():
    assert [suggested_k(n) for n in (2, 300, 3_000, 1_281_167)] == [2, 12, 76, 9616]


def test_more_groups_than_images_is_refused_with_a_suggestion():
    with pytest.raises(UsageError, match=r"--k 10,000 but only 300 usable images; try --k 12"):
        paper_alexnet().validate(300)
    with pytest.raises(UsageError, match=r"^1 usable image; give at least 2$"):
        paper_alexnet().validate(1)


def test_the_kind_of_clustering_is_told_apart():
    assert flat(paper_pic())["clustering"] == "PowerIteration"
    assert paper_pic().results()["clustering"] == "PowerIteration"


def test_with_a_schedule_the_length_is_among_the_results():
    run = replace(paper_alexnet(), training=Optimization(schedule="cosine"))
    assert {"epochs", "minutes"} <= {*run.results()}


@pytest.mark.parametrize(
    "run",
    [
        Run(crops=CropRange(scale=0.0)),
        Run(crops=CropRange(ratio=0.5)),
        Run(jitter=Jitter(blur=1.5)),
        Run(training=Optimization(smoothing=1.0)),
        Run(training=Optimization(warmup=-1.0)),
        Run(training=Optimization(head_step=0.0)),
        replace(paper_pic(), clustering_start="previous"),
    ],
)
def test_what_cannot_be_is_refused(run: Run):
    with pytest.raises(UsageError, match=r"use |only k-means"):
        run.validate(20_000)


def test_a_fall_without_a_schedule_that_falls_is_refused():
    late = replace(paper_alexnet(), training=Optimization(fall=0.3))
    with pytest.raises(UsageError, match=r"^--training.fall 0.3: a constant step does not fall; "):
        late.validate(20_000)
    replace(late, training=Optimization(schedule="cosine", fall=0.3)).validate(20_000)


def test_what_may_change_on_resume_is_not_among_the_results():
    results = paper_alexnet().results()
    assert not {"epochs", "minutes"} & {*results}
    assert not [name for name in results if name.startswith("speed.")]
    assert {"seed", "precision", "clustering.k", "draw.kind"} <= {*results}
