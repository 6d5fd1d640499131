"""Exact neighbours: against scikit-learn, and where float32 alone would fail."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.neighbors import NearestNeighbors

from deepcluster.clusters import nearest, nearest_others
from deepcluster.clusters import neighbours as room
from deepcluster.clusters.neighbours import Prepared
from deepcluster.runtime.errors import NumericsError, UsageError


def by_brute_force(queries, rows, count, skip_self_from=None):
    squared = (queries.double()[:, None] - rows.double()[None]).square().sum(dim=2)
    if skip_self_from is not None:
        own = torch.arange(len(queries))
        squared[own, own + skip_self_from] = torch.inf
    values, index = squared.sort(dim=1, stable=True)
    return index[:, :count], values[:, :count]


def check(queries, rows, count, **keywords):
    found = nearest(queries, rows, count, **keywords)
    index, distance = by_brute_force(queries, rows, count, **keywords)
    assert torch.equal(found.index, index)
    torch.testing.assert_close(found.distance, distance, rtol=1e-12, atol=0)


def test_like_scikit_learn():
    source = torch.Generator().manual_seed(0)
    rows = torch.randn(700, 32, generator=source)
    reference = NearestNeighbors(n_neighbors=6, algorithm="brute").fit(rows.double().numpy())
    distance, index = reference.kneighbors(rows.double().numpy())
    found = nearest(rows, rows, 5, skip_self_from=0)
    assert torch.equal(found.index, torch.from_numpy(index[:, 1:]))
    torch.testing.assert_close(found.distance.sqrt(), torch.from_numpy(distance[:, 1:]))


def test_the_row_itself_is_left_out_by_number_and_its_duplicates_are_not():
    rows = torch.tensor([[1.0], [1.0], [5.0], [1.0]])
    found = nearest(rows[2:], rows, 3, skip_self_from=2)
    assert found.index.tolist() == [[0, 1, 3], [0, 1, 2]]
    assert found.distance.tolist() == [[16, 16, 16], [0, 0, 16]]


@settings(deadline=None, max_examples=60, derandomize=True)
@given(
    seed=st.integers(0, 1000),
    kind=st.sampled_from(["plain", "offset", "duplicates", "outlier", "near", "tiny", "huge"]),
    count=st.integers(1, 6),
    skip=st.booleans(),
)
def test_exact_whatever_the_numbers(seed, kind, count, skip):
    source = torch.Generator().manual_seed(seed)
    rows = torch.randn(60, 3, generator=source)
    match kind:
        case "offset":
            rows = rows + 1e4
        case "duplicates":
            rows = rows[torch.randint(6, (60,), generator=source)]
        case "outlier":
            rows[7] = 1e18
        case "near":
            rows = 1e3 * torch.sign(rows[:, :1]) + 1e-3 * torch.round(3 * rows)
        case "tiny":
            rows = rows * 1e-35
        case "huge":
            rows = rows * 1e30
    if skip:
        check(rows[20:45], rows, count, skip_self_from=20)
    else:
        check(torch.randn(20, 3, generator=source), rows, count)


@pytest.mark.parametrize("skip", [False, True])
def test_neither_blocks_nor_parts_change_the_answer(monkeypatch, skip):
    monkeypatch.setattr(room, "_ROWS", 16)
    monkeypatch.setattr(room, "_SCORES", {"cpu": 200})
    source = torch.Generator().manual_seed(0)
    rows = torch.randint(0, 3, (70, 3), generator=source).float()  # full of ties
    check(rows[5:], rows, 5, **({"skip_self_from": 5} if skip else {}))


@pytest.mark.parametrize("kind", ["plain", "tiny", "broken"])
def test_rows_are_made_ready_in_parts_as_in_one(monkeypatch, kind):
    rows = torch.randn(70, 3, generator=torch.Generator().manual_seed(0))
    if kind == "tiny":
        rows = rows * 1e-9
    if kind == "broken":
        rows[40] = torch.nan
    centre = rows[:40].mean(dim=0)
    whole = Prepared.of(rows, centre)
    monkeypatch.setattr(room, "_ROWS", 16)
    parts = Prepared.of(rows, centre)
    assert parts.scale == whole.scale
    torch.testing.assert_close(parts.rows, whole.rows, rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(parts.norms, whole.norms, equal_nan=True)
    norms = ((rows.double() - centre) * whole.scale).square().sum(dim=1).float()
    torch.testing.assert_close(whole.norms, norms, equal_nan=True)


def test_ordinary_rows_do_not_take_the_slow_path(monkeypatch):
    def fail(*_):
        raise AssertionError("measured against every row")

    monkeypatch.setattr(room, "_candidates_by_direct_measure", fail)
    rows = torch.randn(400, 64, generator=torch.Generator().manual_seed(0))
    nearest(torch.nn.functional.normalize(rows) + 1e3, rows + 1e3, 2)


def test_products_keep_their_digits_and_the_setting_is_put_back():
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        rows = torch.randn(50, 8, generator=torch.Generator().manual_seed(0))
        check(rows, rows, 3, skip_self_from=0)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)


def test_misuse_and_no_queries():
    rows = torch.randn(4, 2)
    with pytest.raises(UsageError, match="4 neighbours were asked for, and 3 rows"):
        nearest(rows, rows, 4, skip_self_from=0)
    assert nearest(rows[:0], rows, 2).index.shape == (0, 2)


def test_what_cannot_be_compared():
    rows = torch.randn(5000, 3, generator=torch.Generator().manual_seed(0))
    with pytest.raises(UsageError, match="queries of 2 columns cannot be compared with rows of 3"):
        nearest(rows[:4, :2], rows, 1)
    with pytest.raises(UsageError, match=r"shape \(3,\)"):
        nearest(rows[0], rows, 1)
    rows[[7, 4500]] = torch.tensor([torch.nan, torch.inf, -torch.inf])
    for ask in (lambda: nearest(rows, rows, 1), lambda: nearest_others(rows, 1)):
        with pytest.raises(NumericsError, match=r"2 of 5000 rows .*rows 7, 4500"):
            ask()
    with pytest.raises(NumericsError, match="1 of 1 rows"):
        nearest(torch.tensor([[1e300, 0.0, 0.0]], dtype=torch.float64), rows, 1)
    found = nearest(rows[:1], rows, 4998).index[0].tolist()
    assert sorted(found) == [i for i in range(5000) if i not in (7, 4500)]


def test_arrays_are_compared_as_tensors_are():
    rows = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    found = nearest(rows.numpy()[:5], rows.numpy(), 3)
    assert torch.equal(found.index, nearest(rows[:5], rows, 3).index)
    assert torch.equal(nearest_others(rows.numpy(), 2).index, nearest_others(rows, 2).index)
