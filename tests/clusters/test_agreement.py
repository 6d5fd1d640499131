"""NMI and purity: a table by hand, against scikit-learn, and their laws."""

from math import log, sqrt

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import normalized_mutual_info_score

from deepcluster.clusters import cluster_purity, normalized_mutual_information
from deepcluster.runtime.errors import UsageError

labelings = st.integers(1, 40).flatmap(
    lambda n: st.tuples(
        *[st.lists(st.integers(0, 4), min_size=n, max_size=n).map(torch.tensor)] * 2
    )
)


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


@pytest.mark.parametrize("normalizer", ["geometric", "arithmetic"])
@settings(deadline=None, max_examples=40, derandomize=True)
@given(pair=labelings)
def test_like_scikit_learn(normalizer, pair):
    a, b = pair
    ours = normalized_mutual_information(a, b, normalizer)
    theirs = normalized_mutual_info_score(a.numpy(), b.numpy(), average_method=normalizer)
    assert ours == pytest.approx(theirs, abs=1e-9)


@settings(deadline=None, max_examples=40, derandomize=True)
@given(pair=labelings, names=st.permutations(range(5)))
def test_symmetric_and_blind_to_names(pair, names):
    a, b = pair
    plain = normalized_mutual_information(a, b)
    assert normalized_mutual_information(b, a) == pytest.approx(plain, abs=1e-12)
    renamed = 1000 * torch.tensor(names)[a]
    assert normalized_mutual_information(renamed, b) == pytest.approx(plain, abs=1e-12)
    assert 0 <= plain <= 1
    assert normalized_mutual_information(a, a) == pytest.approx(1)


def test_constant_labelings():
    constant, other = torch.zeros(4), torch.tensor([0, 1, 0, 1])
    assert normalized_mutual_information(constant, constant) == 1
    assert normalized_mutual_information(constant, other) == 0


def test_rows_without_a_label_are_left_out():
    a = torch.tensor([0, 0, 1, 1, -1, 2])
    b = torch.tensor([5, 5, 3, 3, 4, -1])
    assert normalized_mutual_information(a, b) == pytest.approx(1)
    assert cluster_purity(a, b)[:2].tolist() == [1, 1]
    assert cluster_purity(a, b)[2].isnan()


def test_purity_by_hand():
    labels = torch.tensor([0, 0, 0, 2, 2, 2, 2])
    classes = torch.tensor([1, 1, 0, 3, 3, 0, 1])
    purity = cluster_purity(labels, classes)
    assert purity[[0, 2]].tolist() == pytest.approx([2 / 3, 1 / 2])
    assert purity[1].isnan()


def test_misuse():
    with pytest.raises(UsageError, match="cannot be compared"):
        normalized_mutual_information(torch.zeros(3), torch.zeros(4))
    with pytest.raises(UsageError, match="no row has a label"):
        normalized_mutual_information(torch.tensor([-1]), torch.tensor([1]))
    with pytest.raises(UsageError, match="normalizer"):
        normalized_mutual_information(torch.tensor([0, 1]), torch.tensor([0, 1]), "max")
