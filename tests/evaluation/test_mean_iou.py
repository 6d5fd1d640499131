"""Intersection over union by hand and against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import jaccard_score

from deepcluster.evaluation.mean_iou import Confusion, Overlap
from deepcluster.runtime.world import World

CPU = torch.device("cpu")


def counted(truth: list, given: list, classes: int = 3) -> np.ndarray:
    confusion = Confusion(classes, 255, CPU)
    confusion.add(torch.tensor(truth, dtype=torch.uint8), torch.tensor(given))
    return confusion.over(World())


def test_by_hand():
    counts = counted([[0, 0, 1, 1], [1, 255, 255, 0]], [[0, 1, 1, 1], [0, 1, 0, 0]])
    assert counts.tolist() == [[2, 1, 0], [1, 2, 0], [0, 0, 0]]
    overlap = Overlap.of(counts)
    # Both classes: two pixels right, one missed, one too many. Class 2 is nowhere.
    assert overlap.classes == [0.5, 0.5, None]
    assert overlap.mean == 0.5
    assert overlap.pixels == pytest.approx(4 / 6)


def test_a_class_that_is_given_and_not_there_counts_as_nothing_found():
    assert Overlap.of(counted([0, 0], [0, 2])).classes == [0.5, None, 0.0]
    assert Overlap.of(counted([0, 0], [0, 2])).mean == 0.25


def test_borders_do_not_count_whatever_is_given_there():
    assert Overlap.of(counted([0, 255, 1], [0, 1, 1])).mean == 1.0
    assert Overlap.of(counted([0, 255, 1], [0, 0, 1])).mean == 1.0


def test_equal_to_scikit_learn_over_several_batches():
    randomness = np.random.default_rng(0)
    truth = randomness.choice([0, 1, 2, 3, 255], (4, 30, 40))
    given = randomness.integers(0, 4, (4, 30, 40))
    confusion = Confusion(4, 255, CPU)
    for one, other in zip(truth, given, strict=True):
        confusion.add(torch.from_numpy(one.astype(np.uint8)), torch.from_numpy(other))
    overlap = Overlap.of(confusion.over(World()))
    judged = truth != 255
    expected = jaccard_score(truth[judged], given[judged], average=None)
    np.testing.assert_allclose(overlap.classes, expected)
    assert overlap.mean == pytest.approx(expected.mean())
