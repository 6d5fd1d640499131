"""Choosing k: groups that are there are found, noise is called noise, and the words say so."""

import pytest
import torch

from deepcluster.clusters import suggest_k
from deepcluster.runtime.errors import NumericsError, UsageError


def stream(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def blobs(rows: int, count: int, width: int = 16, radius: float = 0.1) -> torch.Tensor:
    generator = stream(0)
    centres = torch.randn(count, width, generator=generator)
    noise = torch.randn(rows, width, generator=generator)
    return centres[torch.arange(rows) % count] + radius * noise


@pytest.mark.parametrize("count", [5, 20])
def test_separate_blobs_are_counted(count):
    suggestion = suggest_k(blobs(1_000, count), draws=3)
    assert suggestion.stable
    assert count / 1.5 <= suggestion.k <= count * 1.5
    assert f"k = {suggestion.k}:" in suggestion.why
    at_k = next(point for point in suggestion.curve if point.k == suggestion.k)
    assert at_k.stability > 0.8 > at_k.chance
    assert at_k.gain == max(point.gain for point in suggestion.curve if point.stable)


def test_the_curve_is_logarithmic_and_leaves_each_cluster_some_rows():
    ks = [point.k for point in suggest_k(blobs(1_000, 5), draws=2).curve]
    assert ks == [2, 3, 4, 6, 8, 11, 16, 23, 32, 45]


@pytest.mark.parametrize("scale", [1.0, 10.0], ids=["round", "elongated"])
def test_noise_is_not_stable(scale):
    noise = torch.randn(600, 16, generator=stream(1))
    noise[:, 0] *= scale
    suggestion = suggest_k(noise)
    assert not suggestion.stable
    assert "nothing is stable" in suggestion.why
    assert f"k = {suggestion.k}:" in suggestion.why


def test_expected_classes_decide():
    rows = blobs(1_000, 5)
    suggestion = suggest_k(rows, classes=4, draws=2)
    assert suggestion.k == 40
    assert "k = 40: the paper's rule of thumb is ten times the 4 classes" in suggestion.why
    bounded = suggest_k(rows, classes=100, draws=2)
    assert bounded.k == 50
    assert "20 or more of 1,000 rows" in bounded.why


def test_a_generator_decides_everything():
    rows = blobs(300, 4)
    assert suggest_k(rows, generator=stream(3)) == suggest_k(rows, generator=stream(3))
    array = rows.numpy()
    array.flags.writeable = False
    assert suggest_k(array, draws=2) == suggest_k(rows, draws=2)


def test_only_a_sample_is_looked_at():
    suggestion = suggest_k(blobs(100_000, 8), sample=400, draws=2)
    assert 6 <= suggestion.k <= 11
    assert suggestion.curve[-1].k == 16
    assert "400 rows" in suggestion.why
    assert "larger sample" in suggest_k(blobs(100_000, 8), sample=60, draws=2).why


@pytest.mark.parametrize("rows", [2, 3, 39])
def test_too_few_rows_to_measure(rows):
    suggestion = suggest_k(torch.randn(rows, 4, generator=stream(0)))
    assert suggestion.k == 2
    assert suggestion.curve == []
    assert not suggestion.stable
    assert f"k = 2: {rows} different rows are too few" in suggestion.why


def test_fifty_rows():
    suggestion = suggest_k(blobs(50, 2))
    assert suggestion.k == 2
    assert [point.k for point in suggestion.curve] == [2]
    assert suggestion.curve[0].stability > 0.9


def test_copies_and_more_columns_than_rows():
    rows = blobs(80, 3, width=200)
    assert suggest_k(rows.repeat(5, 1)).curve[-1].k == 4
    constant = torch.cat([rows, torch.ones(80, 1)], dim=1)
    assert suggest_k(constant).k in (3, 4)


def test_misuse():
    with pytest.raises(UsageError, match="classes = 0"):
        suggest_k(torch.randn(50, 2), classes=0)
    with pytest.raises(UsageError, match="draws = 1"):
        suggest_k(torch.randn(50, 2), draws=1)
    with pytest.raises(NumericsError, match="distinct"):
        suggest_k(torch.zeros(50, 2))
    with pytest.raises(NumericsError, match="finite"):
        suggest_k(torch.full((50, 2), torch.nan))


def test_a_row_that_is_not_finite_is_named_as_it_was_given():
    rows = torch.randn(300, 4, generator=torch.Generator().manual_seed(0))
    rows[7, 1] = torch.nan
    with pytest.raises(NumericsError, match=r"1 of 300 rows .* \(row 7\)"):
        suggest_k(rows)


def test_features_that_are_no_matrix():
    with pytest.raises(UsageError, match=r"shape \(40,\)"):
        suggest_k(torch.zeros(40))
    with pytest.raises(UsageError, match="whole number"):
        suggest_k(torch.randn(40, 2), classes=2.5)
