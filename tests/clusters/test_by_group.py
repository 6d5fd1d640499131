"""The nearest row of the own group and of any other, against distances taken one by one."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from deepcluster.clusters import by_group, own_and_other


@pytest.mark.parametrize("block", [7, 8192])
def test_against_all_distances(block: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(by_group, "_ROWS", block)
    monkeypatch.setattr(by_group, "_SCORES", {"cpu": 5 * block})
    randomness = np.random.default_rng(0)
    rows = randomness.normal(size=(50, 6))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    labels = randomness.integers(0, 6, 50)
    labels[13] = 99  # alone
    left_out = np.where(np.arange(50) % 5 == 4, -1, np.arange(50))
    apart = np.linalg.norm(rows[:, None] - rows, axis=2)
    apart[np.arange(50)[left_out >= 0], left_out[left_out >= 0]] = np.inf
    same = labels[:, None] == labels
    given = torch.from_numpy(rows).float(), torch.from_numpy(labels)
    own, other = own_and_other(*given, *given, torch.from_numpy(left_out))
    np.testing.assert_allclose(own, np.where(same, apart, np.inf).min(axis=1), atol=1e-3)
    np.testing.assert_allclose(other, np.where(same, np.inf, apart).min(axis=1), rtol=1e-5)
    assert own[13] == torch.inf
    assert own[4] < 1e-3  # compared with itself


def test_one_group_has_no_other():
    rows, labels = torch.eye(3), torch.zeros(3, dtype=torch.int64)
    own, other = own_and_other(rows, labels, rows, labels, torch.arange(3))
    np.testing.assert_allclose(own, 2**0.5, rtol=1e-6)
    assert other.isinf().all()
    nothing = own_and_other(rows[:0], labels[:0], rows, labels, torch.arange(0))
    assert nothing.own.shape == nothing.other.shape == (0,)
