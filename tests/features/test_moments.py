"""Mean and covariance of rows that stream past, against numpy in float64."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from deepcluster.features.moments import Moments

CPU = torch.device("cpu")


def moments_of(rows: torch.Tensor, lengths: list[int]) -> Moments:
    moments = Moments(rows.shape[1], CPU)
    for block in rows.split(lengths):
        moments.add(block)
    return moments


def random_rows(count: int, width: int, mean: float = 0.0, spread: float = 1.0) -> torch.Tensor:
    source = torch.Generator().manual_seed(count + width)
    return (mean + spread * torch.randn(count, width, generator=source).double()).float()


@pytest.mark.parametrize(
    ("mean", "spread"), [(0, 1), (1e4, 0.1), (1e5, 1), (1e6, 0.5), (-1e6, 1), (1e6, 1e3)]
)
def test_a_large_mean_costs_no_digits(mean, spread):
    rows = random_rows(900, 6, mean, spread)
    moments = moments_of(rows, [256, 256, 256, 132])
    exact = rows.numpy().astype(np.float64)
    np.testing.assert_allclose(moments.mean, exact.mean(axis=0), rtol=1e-14)
    covariance = np.cov(exact.T, bias=True)
    np.testing.assert_allclose(
        moments.covariance, covariance, rtol=1e-9, atol=1e-9 * covariance.max()
    )
    assert moments.count == 900


def test_directions_without_variance_are_given_none():
    source = torch.Generator().manual_seed(0)
    rows = torch.randn(2000, 2, generator=source) @ torch.randn(2, 64, generator=source)
    values = torch.linalg.eigvalsh(moments_of(rows, [1000, 1000]).covariance)
    assert values[-3] < 1e-12 * values[-1]


@given(st.permutations(range(5)))
@settings(deadline=None, max_examples=20)
def test_the_order_of_the_blocks_does_not_matter(order):
    blocks = random_rows(100, 4, 1e4).split([1, 30, 9, 50, 10])
    in_order, shuffled = Moments(4, CPU), Moments(4, CPU)
    for place, other in enumerate(order):
        in_order.add(blocks[place])
        shuffled.add(blocks[other])
    torch.testing.assert_close(shuffled.mean, in_order.mean, rtol=1e-14, atol=0)
    torch.testing.assert_close(shuffled.scatter, in_order.scatter, rtol=1e-10, atol=1e-10)


def test_an_empty_block_changes_nothing():
    rows = random_rows(50, 3)
    with_empty, without = moments_of(rows, [0, 20, 0, 30, 0]), moments_of(rows, [20, 30])
    assert torch.equal(with_empty.mean, without.mean)
    assert torch.equal(with_empty.scatter, without.scatter)
    assert with_empty.count == 50


def test_one_row_has_no_covariance():
    moments = moments_of(torch.tensor([[3.0, -4.0]]), [1])
    assert moments.mean.tolist() == [3.0, -4.0]
    assert not moments.covariance.any()


def test_no_rows_have_no_covariance():
    assert not Moments(3, CPU).covariance.any()


def test_four_points_by_hand():
    moments = moments_of(torch.tensor([[0.0, 0.0], [2.0, 0.0], [0.0, 4.0], [2.0, 4.0]]), [3, 1])
    assert moments.mean.tolist() == [1.0, 2.0]
    torch.testing.assert_close(
        moments.covariance, torch.tensor([[1.0, 0.0], [0.0, 4.0]], dtype=torch.float64)
    )
