"""Choosing a step: those given, and those beyond the edge."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepcluster.evaluation.step_search import best_step, half_decade_from, remark, searched


def best_at(peak: float):
    """What a step reaches that is the worse the farther it is from the best one."""
    return lambda step: -abs(math.log10(step / peak))


def test_nothing_more_is_tried_where_the_best_is_inside():
    assert list(searched((0.003, 0.01, 0.03), best_at(0.01), 2)) == [0.003, 0.01, 0.03]


def test_larger_steps_are_tried_until_one_is_worse():
    reached = searched((0.003, 0.01), best_at(0.03), 2)

    assert list(reached) == [0.003, 0.01, 0.03, 0.1]
    assert best_step(reached) == 0.03


def test_smaller_steps_too():
    assert list(searched((0.03, 0.003), best_at(0.001), 2)) == [0.03, 0.003, 0.001, 3e-4]


def test_no_more_than_asked_for():
    assert list(searched((0.003, 0.01), best_at(10.0), 2)) == [0.003, 0.01, 0.03, 0.1]
    assert list(searched((0.003, 0.01), best_at(10.0), 0)) == [0.003, 0.01]


def test_a_step_that_diverges_is_never_the_best():
    def judged(step: float) -> float | None:
        return None if step > 0.02 else step

    reached = searched((0.003, 0.01), judged, 3)

    assert reached == {0.003: 0.003, 0.01: 0.01, 0.03: None}  # once is enough: it is the edge
    assert best_step(reached) == 0.01


def test_where_all_diverge_nothing_more_is_tried():
    reached = searched((0.1, 0.3), lambda step: None, 2)

    assert reached == {0.1: None, 0.3: None}
    assert best_step(reached) is None


def test_of_equal_steps_the_smallest_is_best():
    assert best_step({0.03: 0.5, 0.01: 0.5, 0.1: 0.2}) == 0.01


def test_an_outermost_best_step_is_said():
    assert remark(0.01, (0.003, 0.01, 0.03)) == []
    for step in (0.003, 0.03):
        assert f"{step:g}, is at the edge" in remark(step, (0.003, 0.01, 0.03))[0]


@pytest.mark.parametrize(
    ("step", "places", "expected"),
    [(0.01, 1, 0.03), (0.03, 1, 0.1), (0.003, -1, 0.001), (1.0, 1, 3.0), (0.02, 1, 0.1)],
)
def test_half_decades(step, places, expected):
    assert half_decade_from(step, places) == expected


@given(st.floats(1e-6, 1e3))
def test_the_next_one_is_always_farther(step):
    assert half_decade_from(step, -1) < step < half_decade_from(step, 1)
