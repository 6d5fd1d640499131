from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics

from deepcluster.evaluation.group_agreement import GroupAgreement


def test_the_figures_are_scikit_learns():
    randomness = np.random.default_rng(0)
    classes = randomness.integers(0, 4, 300)
    groups = np.where(randomness.random(300) < 0.6, classes, randomness.integers(0, 6, 300))
    found = GroupAgreement.of(groups, classes)
    nmi = metrics.normalized_mutual_info_score
    assert found.nmi == pytest.approx(nmi(classes, groups, average_method="geometric"))
    assert found.nmi_arithmetic == pytest.approx(nmi(classes, groups))
    assert found.ami == pytest.approx(metrics.adjusted_mutual_info_score(classes, groups))
    assert found.ari == pytest.approx(metrics.adjusted_rand_score(classes, groups))
    assert (found.groups, found.classes, found.images) == (6, 4, 300)


def test_purity_and_accuracy_by_hand():
    # Group 0 has two of class 0 and one of class 1, group 1 one of each, group 2 one of class 1.
    found = GroupAgreement.of(np.array([0, 0, 0, 1, 1, 2]), np.array([0, 0, 1, 0, 1, 1]))
    assert found.purity == pytest.approx(4 / 6)
    assert found.accuracy == pytest.approx(3 / 6)
