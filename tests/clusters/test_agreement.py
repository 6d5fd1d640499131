"""Measures of agreement: tables by hand, against scikit-learn, their laws, and the corners."""

from itertools import permutations
from math import log, sqrt

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import (
    adjusted_mutual_info_score,
    adjusted_rand_score,
    normalized_mutual_info_score,
)
from sklearn.metrics.cluster import contingency_matrix

from deepcluster.clusters import Contingency, cluster_purity, normalized_mutual_information
from deepcluster.runtime.errors import UsageError

labelings = st.integers(1, 40).flatmap(
    lambda n: st.tuples(
        *[st.lists(st.integers(0, 4), min_size=n, max_size=n).map(torch.tensor)] * 2
    )
)
lawful = settings(deadline=None, max_examples=40, derandomize=True)

SYMMETRIC = [
    Contingency.normalized_mutual_information,
    Contingency.adjusted_mutual_information,
    Contingency.adjusted_rand_index,
    Contingency.accuracy,
    Contingency.changed,
]


def of_sizes(rows: int, k: int, seed: int) -> np.ndarray:
    """Labels of clusters whose sizes differ by orders of magnitude."""
    randomness = np.random.default_rng(seed)
    shares = randomness.gamma(0.5, size=k)
    return randomness.choice(k, rows, p=shares / shares.sum())


def test_a_two_by_two_table_by_hand():
    # The table [[2, 1], [0, 1]]: rows hold 3 and 1, columns 2 and 2, of 4.
    a = torch.tensor([0, 0, 0, 1])
    b = torch.tensor([0, 0, 1, 1])
    information = 2 / 4 * log(2 * 4 / (3 * 2)) + 1 / 4 * log(4 / (3 * 2)) + 1 / 4 * log(4 / 2)
    entropy_a, entropy_b = -(3 / 4 * log(3 / 4) + 1 / 4 * log(1 / 4)), log(2)
    assert normalized_mutual_information(a, b) == pytest.approx(
        information / sqrt(entropy_a * entropy_b)
    )
    assert normalized_mutual_information(a, b, "arithmetic") == pytest.approx(
        2 * information / (entropy_a + entropy_b)
    )
    table = Contingency.of(a, b)
    assert table.together.tolist() == [2, 1, 1]
    assert table.accuracy() == table.purity() == 3 / 4
    assert table.changed() == 1 / 4
    # Of 6 pairs of rows 3 are together in a, 2 in b and 1 in both; by chance 3 * 2 / 6 = 1 is.
    assert table.adjusted_rand_index() == 0


@lawful
@given(pair=labelings)
def test_like_scikit_learn(pair):
    a, b = (labels.numpy() for labels in pair)
    table = Contingency.of(a, b)
    for normalizer in ("geometric", "arithmetic"):
        theirs = normalized_mutual_info_score(a, b, average_method=normalizer)
        assert table.normalized_mutual_information(normalizer) == pytest.approx(theirs, abs=1e-9)
    ami, ari = table.adjusted_mutual_information(), table.adjusted_rand_index()
    assert ami == pytest.approx(adjusted_mutual_info_score(a, b), abs=1e-9)
    assert ari == pytest.approx(adjusted_rand_score(a, b), abs=1e-12)


@pytest.mark.parametrize(
    ("count_a", "count_b"), [(2, 3), (40, 40), (300, 20)], ids=["few", "equal", "many to few"]
)
def test_like_scikit_learn_with_sizes_that_differ(count_a, count_b):
    a, b = of_sizes(20_000, count_a, 0), of_sizes(20_000, count_b, 1)
    b[:9_000] = a[:9_000] % count_b
    table = Contingency.of(a, b)
    ami = table.adjusted_mutual_information()
    assert ami == pytest.approx(adjusted_mutual_info_score(a, b), abs=1e-9)
    assert table.adjusted_rand_index() == pytest.approx(adjusted_rand_score(a, b), abs=1e-12)
    dense = contingency_matrix(a, b)
    assert table.accuracy() == dense[linear_sum_assignment(dense, maximize=True)].sum() / 20_000


def test_chance_is_zero_where_mutual_information_is_not():
    table = Contingency.of(of_sizes(3_000, 200, 0), of_sizes(3_000, 200, 1))
    assert table.normalized_mutual_information() > 0.3
    assert abs(table.adjusted_mutual_information()) < 0.02
    assert abs(table.adjusted_rand_index()) < 0.02


@lawful
@given(pair=labelings)
def test_accuracy_is_that_of_the_best_renaming(pair):
    a, b = pair
    best = max(int((torch.tensor(names)[a] == b).sum()) for names in permutations(range(5)))
    table = Contingency.of(a, b)
    assert table.accuracy() == best / len(a)
    partners = table.matching()
    matched = partners[partners >= 0]
    assert len(set(matched.tolist())) == len(matched)
    renamed = partners[np.searchsorted(table.labels_a, a.numpy())]
    assert (renamed == b.numpy()).mean() == pytest.approx(table.accuracy())
    assert table.changed() == pytest.approx((renamed != b.numpy()).mean())


@pytest.mark.parametrize("measure", SYMMETRIC, ids=lambda measure: measure.__name__)
@lawful
@given(pair=labelings, names=st.permutations(range(5)))
def test_symmetric_and_blind_to_names(measure, pair, names):
    a, b = pair
    plain = measure(Contingency.of(a, b))
    assert measure(Contingency.of(b, a)) == pytest.approx(plain, abs=1e-12)
    renamed = 1000 * torch.tensor(names)[a]
    assert measure(Contingency.of(renamed, b)) == pytest.approx(plain, abs=1e-12)


@lawful
@given(pair=labelings)
def test_ranges(pair):
    table = Contingency.of(*pair)
    assert 0 <= table.normalized_mutual_information() <= 1
    assert 0 <= table.normalized_mutual_information("arithmetic") <= 1
    assert -1 <= table.adjusted_mutual_information() <= 1
    assert -0.5 <= table.adjusted_rand_index() <= 1
    assert 0 < table.accuracy() <= table.purity() <= 1
    assert table.purity() == pytest.approx(
        np.average(table.purity_of_each(), weights=table.sizes_a)
    )


@pytest.mark.parametrize("k", [1, 7, 30], ids=["one cluster", "some", "every row its own"])
def test_the_same_groups_under_other_names(k):
    a = torch.arange(30) % k
    table = Contingency.of(a, 100 - a)
    assert table.normalized_mutual_information() == pytest.approx(1)
    assert table.adjusted_mutual_information() == table.adjusted_rand_index() == 1
    assert table.purity() == table.accuracy() == 1
    assert table.changed() == 0
    assert table.matching().tolist() == (100 - table.labels_a).tolist()


def test_one_cluster_against_many():
    table = Contingency.of(torch.zeros(4), torch.tensor([0, 1, 0, 1]))
    assert table.normalized_mutual_information() == 0
    assert table.adjusted_mutual_information() == table.adjusted_rand_index() == 0
    assert table.accuracy() == table.purity() == 1 / 2
    assert Contingency.of([0, 1, 2, 3], [0, 0, 0, 0]).matching().tolist().count(-1) == 3


def test_rows_without_a_label_are_left_out():
    a = torch.tensor([0, 0, 1, 1, -1, 2])
    b = torch.tensor([5, 5, 3, 3, 4, -1])
    assert normalized_mutual_information(a, b) == pytest.approx(1)
    assert Contingency.of(a, b).rows == 4
    assert Contingency.of(a, b).matching().tolist() == [5, 3]
    assert cluster_purity(a, b)[:2].tolist() == [1, 1]
    assert cluster_purity(a, b)[2].isnan()


def test_arrays_that_cannot_be_written():
    a = np.array([0, 0, 1, 1], dtype=np.int32)
    a.flags.writeable = False
    assert Contingency.of(a, torch.from_numpy(a.copy())).same
    assert cluster_purity(a, a).tolist() == [1, 1]


def test_purity_by_hand():
    labels = torch.tensor([0, 0, 0, 2, 2, 2, 2])
    classes = torch.tensor([1, 1, 0, 3, 3, 0, 1])
    purity = cluster_purity(labels, classes)
    assert purity[[0, 2]].tolist() == pytest.approx([2 / 3, 1 / 2])
    assert purity[1].isnan()
    assert Contingency.of(labels, classes).purity() == 4 / 7


def test_misuse():
    with pytest.raises(UsageError, match="cannot be compared"):
        normalized_mutual_information(torch.zeros(3), torch.zeros(4))
    for nothing in ([], [-1, -1]):
        with pytest.raises(UsageError, match="no row has a label"):
            Contingency.of(nothing, nothing)
    with pytest.raises(UsageError, match="no row has a label"):
        cluster_purity(torch.tensor([-1]), torch.tensor([1]))
    with pytest.raises(UsageError, match="normalizer"):
        normalized_mutual_information(torch.tensor([0, 1]), torch.tensor([0, 1]), "max")


@pytest.mark.parametrize(
    "labels", [["a", "b"], [0.5, 1.0], [0.0, float("nan")], [0.0, float("inf")], [[0], [1]]]
)
def test_labels_that_are_no_whole_numbers_are_refused(labels):
    with pytest.raises(UsageError, match="whole number for each row"):
        Contingency.of(labels, [0, 1])
