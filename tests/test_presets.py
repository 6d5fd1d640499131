from __future__ import annotations

from dataclasses import replace

import pytest

from deepcluster.clusters import KMeans, PowerIteration
from deepcluster.images.crops import CropRange
from deepcluster.images.jitter import Jitter
from deepcluster.presets import PRESETS, automatic, paper_alexnet, paper_pic, paper_rgb, paper_vgg16
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


def test_the_small_power_iteration_takes_sigma_from_the_data():
    clustering = PRESETS["small-pic"]().clustering
    assert isinstance(clustering, PowerIteration)
    assert clustering.sigma == "auto"


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
    with pytest.raises(UsageError, match=r"^1 usable images; give at least 2$"):
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


def test_what_may_change_on_resume_is_not_among_the_results():
    results = paper_alexnet().results()
    assert not {"epochs", "minutes"} & {*results}
    assert not [name for name in results if name.startswith("speed.")]
    assert {"seed", "precision", "clustering.k", "draw.kind"} <= {*results}
