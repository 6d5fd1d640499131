"""Which images an epoch trains on."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepcluster.pseudolabels import Draw, Draws
from deepcluster.runtime.errors import UsageError
from deepcluster.runtime.seeds import generator

UNEQUAL = (1, 2, 500, 1000)

sizes_of_clusters = st.lists(st.integers(1, 60), min_size=2, max_size=8)
multiples = st.sampled_from([0.3, 0.5, 1.0, 1.7, 2.0])
kinds = st.sampled_from(["uniform", "natural", "weighted"])


def labels_of(sizes, excluded: int = 0, seed: int = 0) -> np.ndarray:
    """Labels of images in no particular order; `excluded` of them are -1."""
    labels = np.repeat(np.arange(-1, len(sizes)), [excluded, *sizes])
    return np.random.default_rng(seed).permutation(labels)


def drawn(draw: Draw, labels: np.ndarray, epoch: int = 0) -> Draws:
    return draw(labels, generator(0, "draw", epoch))


def drawn_per_cluster(draws: Draws, labels: np.ndarray, count: int) -> np.ndarray:
    return np.bincount(labels[draws.images], minlength=count)


@pytest.mark.parametrize("reassign", [0.5, 1.0, 2.0])
def test_every_cluster_is_drawn_equally_often(reassign):
    labels = labels_of(UNEQUAL)
    counts = drawn_per_cluster(drawn(Draw(reassign=reassign), labels), labels, 4)
    assert counts.max() - counts.min() <= 1
    assert counts.sum() == round(1503 * reassign)


def test_the_natural_draw_shows_every_image_once():
    labels = labels_of(UNEQUAL, excluded=7)
    draws = drawn(Draw("natural"), labels)
    assert sorted(draws.images) == np.flatnonzero(labels >= 0).tolist()
    assert (draws.weights == 1).all()


def test_each_cluster_weighs_the_same():
    labels = labels_of(UNEQUAL)
    draws = drawn(Draw("weighted"), labels)
    weights = np.bincount(labels[draws.images], weights=draws.weights)
    np.testing.assert_allclose(weights, 1503 / 4, rtol=1e-5)
    assert draws.weights.mean() == pytest.approx(1, rel=1e-5)


def test_the_weighted_draw_shows_the_images_that_the_natural_one_does():
    labels = labels_of(UNEQUAL)
    natural, weighted = drawn(Draw("natural"), labels), drawn(Draw("weighted"), labels)
    assert natural.images.tolist() == weighted.images.tolist()


def test_the_order_of_the_clusters_is_mixed():
    labels = labels_of((300, 300))
    draws = drawn(Draw(), labels)
    changes = np.count_nonzero(np.diff(labels[draws.images]))
    assert 230 < changes < 370  # 299.5 on average, 12 the standard deviation


def test_epochs_differ_and_are_repeatable():
    labels = labels_of(UNEQUAL)
    first, second = drawn(Draw(), labels, 0), drawn(Draw(), labels, 1)
    assert first.images.tolist() == drawn(Draw(), labels, 0).images.tolist()
    assert first.images.tolist() != second.images.tolist()


def test_a_fraction_of_the_images_differs_from_epoch_to_epoch():
    labels = labels_of((200, 200))
    seen = [set(drawn(Draw(reassign=0.5), labels, epoch).images.tolist()) for epoch in (0, 1)]
    assert len(seen[0]) == 200
    assert 60 < len(seen[0] & seen[1]) < 140  # 100 on average, 5 the standard deviation


def test_every_image_of_a_large_cluster_has_the_same_chance():
    labels = labels_of((40, 360))
    times = sum(
        np.bincount(drawn(Draw(), labels, epoch).images, minlength=400) for epoch in range(200)
    )
    large = times[labels == 1]
    assert large.sum() == 200 * 200
    # Variance of a binomial with 200 trials and chance 200/360 is 49.4.
    assert 0.75 < large.var() / 49.4 < 1.3


def test_no_sense_in_labels_that_leave_out_numbers():
    labels = np.array([5, 5, 5, 900, -1, 5, 5])
    counts = Counter(labels[drawn(Draw(), labels).images].tolist())
    assert counts == {5: 3, 900: 3}


@pytest.mark.parametrize("reassign", [0, -1.0, float("nan"), float("inf")])
def test_a_number_of_draws_that_makes_no_sense_is_refused(reassign):
    with pytest.raises(UsageError, match="reassign"):
        drawn(Draw(reassign=reassign), labels_of((3, 3)))


@given(sizes_of_clusters, multiples, st.integers(0, 20), st.integers(0, 1000))
@settings(deadline=None)
def test_uniform_counts_differ_by_at_most_one(sizes, reassign, excluded, seed):
    labels = labels_of(sizes, excluded, seed)
    draws = drawn(Draw(reassign=reassign), labels, seed)
    counts = drawn_per_cluster(draws, labels, len(sizes))
    assert counts.max() - counts.min() <= 1
    assert len(draws) == max(2, round(reassign * sum(sizes)))


@given(kinds, sizes_of_clusters, multiples, st.integers(1, 20))
@settings(deadline=None)
def test_an_excluded_image_is_never_drawn(kind, sizes, reassign, excluded):
    labels = labels_of(sizes, excluded)
    assert (labels[drawn(Draw(kind, reassign), labels).images] >= 0).all()


@given(kinds, sizes_of_clusters, multiples, st.integers(0, 1000))
@settings(deadline=None)
def test_at_any_time_no_image_is_ahead_of_another_of_its_group(kind, sizes, reassign, seed):
    labels = labels_of(sizes, seed=seed)
    draws = drawn(Draw(kind, reassign), labels, seed)
    groups = labels if kind == "uniform" else np.zeros_like(labels)
    members = {group: np.flatnonzero(groups == group) for group in np.unique(groups)}
    times = np.zeros(len(labels), dtype=int)
    for image in draws.images:
        times[image] += 1
        of_its_group = times[members[groups[image]]]
        assert of_its_group.max() - of_its_group.min() <= 1


@given(sizes_of_clusters, st.integers(1, 3))
@settings(deadline=None)
def test_whole_multiples_of_the_images_leave_every_cluster_its_weight(sizes, multiple):
    labels = labels_of(sizes)
    draws = drawn(Draw("weighted", float(multiple)), labels)
    weights = np.bincount(labels[draws.images], weights=draws.weights)
    np.testing.assert_allclose(weights, multiple * sum(sizes) / len(sizes), rtol=1e-4)
