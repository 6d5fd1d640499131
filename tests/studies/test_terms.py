from __future__ import annotations

from dataclasses import replace

from deepcluster.images.crops import CropRange
from deepcluster.images.jitter import Jitter
from deepcluster.presets import automatic, paper_rgb, small, small_alexnet, with_sobel
from deepcluster.pseudolabels import Draw
from deepcluster.settings import Run
from deepcluster.studies.terms import Grid, Terms, recipe_for


def test_the_supervised_baseline_is_the_recipes_network_on_the_papers_crops(terms: Terms):
    recipe = replace(small_alexnet(), crops=CropRange(scale=0.5), clustering_start="previous")
    paper = Run()
    for name in ("jitter", "crops", "draw", "clustering_start"):  # what suits groups alone
        assert getattr(recipe, name) != getattr(paper, name), name
    terms = replace(terms, recipe=recipe, grid=Grid((0.02, 0.1), (5e-4,), (30, 60)))
    candidates = terms.supervised("rgb")
    assert [(one.epochs, one.training.step) for one in candidates] == [
        (30, 0.02),
        (30, 0.1),
        (60, 0.02),
        (60, 0.1),
    ]
    for one in candidates:
        assert one.labels == "folders"
        assert (one.jitter, one.crops, one.draw) == (Jitter(), CropRange(), Draw())
        assert one.clustering_start == "random"
        assert (one.training.schedule, one.training.head_momentum) == ("cosine", 0.9)
        assert (one.training.weight_decay, one.training.smoothing) == (5e-4, 0.0)
        assert one.training.batch == recipe.training.batch
        assert one.network == replace(recipe.network, front="rgb", clustered="top", views=1)
        assert (one.precision, one.pixels, one.speed) == (
            recipe.precision,
            recipe.pixels,
            recipe.speed,
        )
    assert [one.network.front for one in terms.supervised()] == 4 * [recipe.network.front]


def test_recipes_begin_with_sobel_as_the_papers_rows_do():
    assert automatic(5_000, gpu=False)[0].network.front == "rgb"
    for gpu in (False, True):
        assert recipe_for(None, 5_000, gpu, timed=False).network.front == "sobel"
    assert recipe_for("small", 5_000, gpu=False, timed=False) == with_sobel(small())
    assert recipe_for("paper_rgb", 5_000, gpu=False, timed=False) == paper_rgb()
