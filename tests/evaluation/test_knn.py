from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier

from deepcluster.evaluation.bench import Bench
from deepcluster.evaluation.evaluated import Evaluated, untrained
from deepcluster.evaluation.knn import KNearest
from deepcluster.evaluation.rows import read_layer, unit_rows, whitening_of
from deepcluster.evaluation.subject import Shape
from deepcluster.runtime.errors import DimensionsShrunk, UsageError

SHAPE = Shape(front="rgb", input_size=64, width=16)


@pytest.fixture(scope="module")
def subject() -> Evaluated:
    return untrained(SHAPE, seed=0)


@pytest.mark.parametrize("layer", [None, "conv5"])
def test_the_vote_is_scikit_learns(subject, splits_of_colours, layer):
    train, test = splits_of_colours
    # With half of the labels drawn at random it matters how many vote.
    drawn = np.random.default_rng(0).integers(0, 3, len(train))
    train = replace(train, classes=np.where(np.arange(len(train)) % 2, train.classes, drawn))
    settings = KNearest(neighbours=(1, 3, 7), features="raw", layer=layer)
    result = settings(subject, train, test, Bench())
    read = subject.network.trunk if layer is None else read_layer(subject.network, layer)
    rows, queries = (
        unit_rows(subject.network, read, part.images, None, Bench(), "").numpy()
        for part in (train, test)
    )
    assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
    for vote in result.votes:
        reference = KNeighborsClassifier(
            vote.neighbours, metric="cosine", weights=lambda far: np.exp((1 - far) / 0.07)
        ).fit(rows, train.classes)
        assert vote.top1 == pytest.approx(reference.score(queries, test.classes))
        voted = reference.predict_proba(queries) > 0  # among three classes, those with a vote
        assert vote.top5 == pytest.approx(voted[np.arange(len(voted)), test.classes].mean())
    assert [vote.neighbours for vote in result.votes] == [1, 3, 7]
    assert len({vote.top1 for vote in result.votes}) == 3  # else there would be nothing to compare


def test_planted_features(planted, splits_of_colours):
    settings = KNearest(neighbours=(5,), features="raw", layer="seeing")
    result = settings(Evaluated(planted, SHAPE), *splits_of_colours, Bench())
    assert result.votes[0].top1 == 1.0


def test_a_nearer_neighbour_weighs_more(splits_of_colours):
    train, _ = splits_of_colours
    squared = torch.tensor([[0.0, 0.5, 0.5]], dtype=torch.float64)  # cosines 1, 0.75 and 0.75
    votes = KNearest()._votes(squared, torch.tensor([[2, 1, 1]]), train)
    assert votes[0].tolist() == pytest.approx([-np.inf, 2 * np.exp(-0.25 / 0.07), 1])


def test_whitened_by_the_runs_own_pca_or_by_the_training_images(subject, splits_of_colours):
    train, test = splits_of_colours
    read = subject.network.trunk
    with pytest.warns(DimensionsShrunk):
        pca = whitening_of(subject.network, read, train.images, 16, Bench())
    rows = torch.cat([subject.network.eval().trunk(torch.randn(8, 3, 64, 64)).detach()])
    assert pca.whitened(rows).shape == (8, 8)
    mine = KNearest(neighbours=(5,))(replace(subject, pca=pca), train, test, Bench())
    with pytest.warns(DimensionsShrunk):
        other = KNearest(neighbours=(5,), dimensions=16)(subject, train, test, Bench())
    assert (mine.whitening, other.whitening) == ("the run's", "of the training images")
    assert mine.votes == other.votes


def test_dimensions_are_those_of_the_run_unless_given(subject, splits_of_colours):
    asked = replace(subject, pca=None, dimensions=4)
    for given, width in ((None, 4), (6, 6)):
        settings = KNearest(neighbours=(5,), dimensions=given)
        assert settings(asked, *splits_of_colours, Bench()).width == width


def test_more_neighbours_than_images(subject, splits_of_colours):
    result = KNearest(neighbours=(5, 37), features="raw")(subject, *splits_of_colours, Bench())
    assert [vote.neighbours for vote in result.votes] == [5]
    with pytest.raises(UsageError, match="--neighbours 37: there are only 36 training images"):
        KNearest(neighbours=(37,), features="raw")(subject, *splits_of_colours, Bench())
