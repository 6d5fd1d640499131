from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.cluster import KMeans as Reference
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from deepcluster.clusters import KMeans


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.filterwarnings("ignore::deepcluster.runtime.errors.ClustersShrunk")
@parametrize_with_checks([KMeans(k=3)])
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


def blobs(n: int = 300) -> np.ndarray:
    randomness = np.random.default_rng(0)
    centres = 10 * randomness.normal(size=(5, 4))
    return (centres[np.arange(n) % 5] + randomness.normal(size=(n, 4))).astype(np.float32)


def test_fit_leaves_what_a_call_gives():
    rows = blobs()
    model, clusters = KMeans(k=5).fit(rows), KMeans(k=5)(torch.from_numpy(rows))
    assert np.array_equal(model.labels_, clusters.labels.numpy())
    assert np.allclose(model.cluster_centers_, clusters.centroids.numpy())
    assert model.inertia_ == pytest.approx(clusters.objective[-1] * len(rows))
    assert model.n_iter_ == len(clusters.objective) - 1


def test_predict_and_transform_agree_with_scikit_learn_at_the_same_centres():
    rows, others = blobs(), blobs(500)[300:]
    model = KMeans(k=5).fit(rows)
    reference = Reference(5, init=model.cluster_centers_, n_init=1, max_iter=1).fit(rows)
    reference.cluster_centers_ = model.cluster_centers_.astype(reference.cluster_centers_.dtype)
    assert np.array_equal(model.predict(others), reference.predict(others))
    assert np.allclose(model.transform(others), reference.transform(others), atol=1e-3)
    assert np.array_equal(model.predict(rows), model.labels_)


def test_a_tensor_in_is_a_tensor_out():
    rows = torch.from_numpy(blobs())
    by_tensor, by_array = KMeans(k=5).fit(rows), KMeans(k=5).fit(rows.numpy())
    assert isinstance(by_tensor.labels_, torch.Tensor)
    assert np.array_equal(by_tensor.labels_.numpy(), by_array.labels_)
    assert torch.equal(by_tensor.predict(rows), by_tensor.labels_)
    assert by_tensor.transform(rows).shape == (300, 5)


def test_settings_are_cloned_and_what_was_fitted_is_not():
    model = KMeans(k=5, iterations=3).fit(blobs())
    copy = clone(model)
    assert copy == KMeans(k=5, iterations=3)
    assert not hasattr(copy, "labels_")
    assert copy.set_params(k=7).k == 7


def test_it_works_in_a_pipeline():
    labels = make_pipeline(StandardScaler(), KMeans(k=5)).fit_predict(blobs())
    assert len(np.unique(labels)) == 5


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (np.full((10, 3), np.nan, dtype=np.float32), "NaN"),
        (np.ones((10, 3), dtype=np.float32), "nothing to group"),
        (np.ones(10, dtype=np.float32), "Expected 2D array"),
        (np.full((10, 3), np.inf), "infinity"),
        (np.array([["a", "b"]] * 10), "could not convert string"),
    ],
)
def test_bad_rows_are_refused_in_scikit_learns_words(rows, message):
    with pytest.raises(ValueError, match=message):
        KMeans(k=2).fit(rows)


def test_read_only_and_strided_rows_are_taken():
    rows = blobs()
    rows.setflags(write=False)
    expected = KMeans(k=5).fit(rows).labels_
    wide = np.repeat(rows, 2, axis=1)[:, ::2]
    assert np.array_equal(KMeans(k=5).fit(wide).labels_, expected)
    assert np.array_equal(KMeans(k=5).fit(np.asfortranarray(rows)).labels_, expected)


def test_transform_keeps_its_digits_for_rows_far_from_zero():
    rows = blobs()
    near, far = KMeans(k=5).fit(rows), KMeans(k=5).fit(rows + 1000)
    assert np.allclose(near.transform(rows), far.transform(rows + 1000), atol=1e-2)
    assert np.array_equal(far.transform(rows + 1000).argmin(axis=1), far.labels_)


def test_rows_of_float64_far_from_zero_are_grouped_as_scikit_learn_does():
    rows = blobs().astype(np.float64)
    near, far = KMeans(k=5).fit(rows), KMeans(k=5).fit(rows + 1e9)
    assert np.array_equal(far.labels_, near.labels_)
    assert far.inertia_ == pytest.approx(near.inertia_, rel=1e-5)
    reference = Reference(5, init=far.cluster_centers_, n_init=1).fit(rows + 1e9)
    assert far.inertia_ == pytest.approx(reference.inertia_, rel=1e-5)
    assert np.array_equal(far.predict(rows + 1e9), far.labels_)
    assert np.allclose(far.transform(rows + 1e9), near.transform(rows), atol=1e-4)
    assert np.allclose(far.cluster_centers_ - 1e9, near.cluster_centers_, atol=1e-4)
    by_tensor = KMeans(k=5).fit(torch.from_numpy(rows + 1e9))
    assert np.array_equal(by_tensor.predict(torch.from_numpy(rows + 1e9)).numpy(), far.labels_)


@pytest.mark.parametrize("as_tensor", [False, True])
def test_what_cannot_be_predicted_is_refused_too(as_tensor):
    rows = blobs()
    model = KMeans(k=5).fit(rows)
    broken = rows.copy()
    broken[[7, 9], 1] = np.nan
    for wrong, message in (
        (rows.astype(np.complex64), "Complex data not supported"),
        (rows.astype(np.float64) * 1e300, "too large for dtype"),
        (broken, r"(?s)NaN.*Not finite: row 7, 9\."),
        (rows[:, :2], "expecting 4 features"),
        (rows[0], "Expected 2D"),
    ):
        given = torch.from_numpy(wrong) if as_tensor else wrong
        for verb in (model.predict, model.transform):
            with pytest.raises(ValueError, match=message):
                verb(given)


def test_tensors_that_are_sparse_or_of_few_digits():
    rows = torch.from_numpy(blobs())
    with pytest.raises(TypeError, match="dense data is required"):
        KMeans(k=5).fit(rows.to_sparse())
    assert KMeans(k=5).fit(rows.bfloat16()).transform(rows.bfloat16()).shape == (300, 5)
    assert len(KMeans(k=4).fit(rows > 0).predict(rows > 0)) == 300
