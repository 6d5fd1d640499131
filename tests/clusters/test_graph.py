"""Nearest others by meetings of blocks: the same as by a search for each row."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deepcluster.clusters import graph, nearest, nearest_others


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(graph, "_BLOCK", 128)
    monkeypatch.setattr(graph, "_PART", 64)


def rows_of(kind, count):
    source = torch.Generator().manual_seed(count)
    rows = torch.randn(count, 16, generator=source)
    if kind == "duplicates":
        return rows[torch.randint(count // 3, (count,), generator=source)]
    if kind == "offset":
        return rows + 1000
    if kind == "tight":
        centres = torch.randn(9, 16, generator=source)
        return 1e-3 * rows + centres[torch.randint(9, (count,), generator=source)]
    if kind == "two rows":
        return rows[:2].repeat(count // 2, 1)
    return rows


@pytest.mark.parametrize("kind", ["plain", "duplicates", "offset", "tight", "two rows"])
@pytest.mark.parametrize("count", [256, 258, 700, 1153])  # with last blocks of 128, 2, 60 and 1
def test_as_by_a_search_for_each_row(kind, count):
    rows = rows_of(kind, count)
    found, expected = nearest_others(rows, 5), nearest(rows, rows, 5, skip_self_from=0)
    assert torch.equal(found.index, expected.index)
    assert torch.equal(found.distance, expected.distance)


def test_each_pair_of_blocks_meets_once_and_none_with_itself(monkeypatch):
    met = []
    meet = graph._Board.meet
    monkeypatch.setattr(
        graph._Board, "meet", lambda board, pair: (met.append(pair), meet(board, pair))
    )
    nearest_others(rows_of("plain", 700), 3)
    assert sorted(tuple(sorted(pair)) for pair in met) == [
        (a, b) for a in range(6) for b in range(a, 6)
    ]


def test_progress_comes_to_all_rows_and_can_end_the_work():
    told = []
    nearest_others(rows_of("plain", 700), 3, told.append)
    assert sum(told) == 700
    assert len(told) == 15 + 6 + 6  # meetings of two blocks, of one, and what is settled in the end

    class StoppedError(Exception):
        pass

    def stop(count):
        raise StoppedError

    with pytest.raises(StoppedError):
        nearest_others(rows_of("plain", 700), 3, stop)


@given(st.integers(1, 40))
def test_in_a_round_nobody_plays_twice(count):
    played = set()
    for pairs in graph.rounds(count):
        names = [name for pair in pairs for name in pair]
        assert len(names) == len(set(names))
        played |= {frozenset(pair) for pair in pairs}
    assert len(played) == count * (count - 1) // 2


def test_numbers_whose_squares_overflow():
    rows = 10 * rows_of("plain", 700)
    rows[100] = 0
    rows[100, 0] = 2e38
    rows[600] = -rows[100]
    found, expected = nearest_others(rows, 3), nearest(rows, rows, 3, skip_self_from=0)
    assert torch.equal(found.index, expected.index)
