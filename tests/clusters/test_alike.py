"""Rows that are joined by alike pairs: the same as by comparing every row with every other."""

import numpy as np
import pytest
import torch

from deepcluster.clusters import alike, joined


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(alike, "_BLOCK", 32)
    monkeypatch.setattr(alike, "_MEETINGS", 2)
    monkeypatch.setattr(alike, "_PART", 24)
    monkeypatch.setattr(alike, "_DIRECTIONS", 5)


def by_hand(rows, least):
    """By differences of all pairs, from the first row on."""
    wide = rows.double().numpy()
    apart = np.square(wide[:, None] - wide).sum(axis=2)
    near = (apart <= 2 - 2 * least) & wide.any(axis=1) & wide.any(axis=1)[:, None]
    first = np.full(len(rows), -1)
    for start in range(len(rows)):
        waiting = [start] if first[start] < 0 else []
        while waiting:
            row = waiting.pop()
            first[row] = start
            waiting += [n for n in np.flatnonzero(near[row]).tolist() if first[n] < 0]
            first[near[row]] = start
    return first.tolist()


def rows_of(kind, count):
    source = torch.Generator().manual_seed(count)
    rows = torch.randn(count, 16, generator=source)
    match kind:
        case "copies":
            rows = rows[torch.randint(count // 3, (count,), generator=source)]
            rows[::5] += 0.1 * torch.randn(rows[::5].shape, generator=source)
        case "chains":  # each a little farther along an arc
            angle = torch.arange(count)[:, None] * 0.3 + 2 * (torch.arange(count)[:, None] // 40)
            rows = torch.cat([angle.cos(), angle.sin(), rows[:, :14] * 1e-2], dim=1)
        case "all alike":
            rows = rows[:1] + 0.01 * rows
        case "zeros":
            rows[torch.rand(count, generator=source) < 0.5] = 0
            rows[3] = rows[4]
    return torch.nn.functional.normalize(rows)


@pytest.mark.parametrize("kind", ["plain", "copies", "chains", "all alike", "zeros"])
@pytest.mark.parametrize("count", [2, 33, 64, 250])
@pytest.mark.parametrize("least", [0.4, 0.93, 1.0])
def test_as_by_comparing_all_pairs(kind, count, least):
    rows = rows_of(kind, max(count, 6))[-count:]
    assert joined(rows, least).tolist() == by_hand(rows, least)


def test_rounding_does_not_decide():
    """Pairs at the very limit, a last digit on either side of it."""
    angle = torch.full((200,), 0.93, dtype=torch.float64).arccos()
    angle += 3e-8 * torch.arange(-100, 100)
    one = torch.nn.functional.normalize(torch.randn(200, 40, generator=torch.Generator()))
    one = torch.linalg.qr(one.double().T @ one.double()).Q.repeat(5, 1)[:200]
    other = angle.cos()[:, None] * one + angle.sin()[:, None] * one.roll(1, dims=0)
    for some in range(0, 200, 20):
        rows = torch.cat([one[some : some + 20], other[some : some + 20]]).float()
        assert joined(rows, 0.93).tolist() == by_hand(rows, 0.93)


def test_what_is_joined_is_left_alone(monkeypatch):
    compared = []
    join = alike._Groups.join
    monkeypatch.setattr(
        alike._Groups, "join", lambda groups, a, b: (compared.append(len(a)), join(groups, a, b))
    )
    rows = rows_of("all alike", 250)
    assert joined(rows, 0.9).tolist() == [0] * 250
    assert sum(compared) < 5 * 250


def test_progress_comes_to_all_rows_and_can_end_the_work():
    told = []
    joined(rows_of("plain", 250), 0.93, told.append)
    assert sum(told) == 250
    assert (
        len([count for count in told if count]) == 8 * 3
    )  # eight blocks that meet five each, two at a time

    class StoppedError(Exception):
        pass

    def stop(count):
        raise StoppedError

    with pytest.raises(StoppedError):
        joined(rows_of("plain", 250), 0.93, stop)
