"""Rows shared among threads: the same result, and everything is left as it was."""

import pytest
import torch

from deepcluster.clusters import KMeans, shares
from deepcluster.clusters.rows import Rows
from deepcluster.clusters.shares import for_each_share


@pytest.fixture
def three_threads(monkeypatch):
    monkeypatch.setattr(shares, "_LEAST", 50)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def rows():
    source = torch.Generator().manual_seed(0)
    centres = 3 * torch.randn(12, 8, generator=source)
    return centres[torch.arange(601) % 12] + torch.randn(601, 8, generator=source)


@pytest.mark.usefixtures("three_threads")
def test_three_threads_group_as_one_does():
    assert len(for_each_share(Rows.of(rows()), lambda share, first: (len(share), first))) == 3
    shared = KMeans(k=20)(rows())
    assert torch.get_num_threads() == 3
    torch.set_num_threads(1)
    alone = KMeans(k=20)(rows())
    assert torch.equal(shared.labels, alone.labels)
    torch.testing.assert_close(shared.centroids, alone.centroids)
    torch.testing.assert_close(shared.distances, alone.distances)


@pytest.mark.usefixtures("three_threads")
def test_shares_are_consecutive_and_whole():
    found = for_each_share(Rows.of(rows()), lambda share, first: (first, share.whole()))
    assert [first for first, _ in found] == [0, 201, 402]
    assert torch.equal(torch.cat([part for _, part in found]), rows())


@pytest.mark.usefixtures("three_threads")
def test_a_failure_in_one_share_is_heard_and_the_threads_are_given_back():
    def fail(share, first):
        if first:
            raise ArithmeticError("in a thread")

    with pytest.raises(ArithmeticError, match="in a thread"):
        for_each_share(Rows.of(rows()), fail)
    assert torch.get_num_threads() == 3


@pytest.mark.usefixtures("three_threads")
def test_shares_that_would_hold_much_are_one():
    assert len(for_each_share(Rows.of(rows()), lambda *_: None, each_holds=2**25)) == 2
    assert len(for_each_share(Rows.of(rows()), lambda *_: None, each_holds=2**26)) == 1


@pytest.mark.usefixtures("three_threads")
def test_the_precision_of_products_is_put_back():
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        KMeans(k=20, iterations=5)(rows())
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.usefixtures("three_threads")
def test_it_works_where_nothing_is_differentiated():
    with torch.inference_mode():
        inside = KMeans(k=20)(rows())
    assert torch.equal(inside.labels, KMeans(k=20)(rows()).labels)
