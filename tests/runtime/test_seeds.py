"""Named randomness."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from deepcluster.runtime.seeds import generator, stream, uniforms


def numbers(draws, seed=0, purpose="crop", epoch=0, count=4):
    return uniforms(seed, purpose, epoch, np.array(draws, dtype=np.int64), count)


def test_a_stream_is_the_same_on_every_machine():
    assert stream(0, "cluster", 3) == 2438414458634309949
    assert numbers([5], count=2).tolist() == [[0.8507775643679606, 0.43347223793728173]]


@given(st.integers(), st.text(max_size=8), st.lists(st.integers(0, 1000), max_size=3))
def test_a_stream_is_a_63_bit_number(seed, purpose, where):
    assert 0 <= stream(seed, purpose, *where) < 2**63


def test_streams_of_other_seeds_purposes_and_places_differ():
    names = [
        (seed, purpose, *where)
        for seed in (0, 1, 11)
        for purpose in ("draw", "crop", "head")
        for where in ((), (0,), (1,), (0, 1), (1, 0), (11,), (1, 1))
    ]
    assert len({stream(*name) for name in names}) == len(names)


def test_a_generator_starts_at_the_start_of_its_stream():
    first = torch.rand(5, generator=generator(1, "head", 2))
    torch.rand(3)
    assert torch.equal(torch.rand(5, generator=generator(1, "head", 2)), first)
    assert not torch.equal(torch.rand(5, generator=generator(1, "head", 3)), first)


@given(st.lists(st.integers(0, 2**40), min_size=1, max_size=20), st.data())
def test_a_draw_does_not_depend_on_the_others(draws, data):
    place = data.draw(st.integers(0, len(draws) - 1))
    assert numbers(draws)[place].tolist() == numbers([draws[place]])[0].tolist()


@pytest.mark.parametrize("other", [{"seed": 1}, {"purpose": "flip"}, {"epoch": 1}])
def test_other_names_give_unrelated_numbers(other):
    here, there = numbers(range(5000)).ravel(), numbers(range(5000), **other).ravel()
    assert abs(np.corrcoef(here, there)[0, 1]) < 0.03  # 4 standard deviations


@pytest.mark.parametrize("count", [1, 4, 23])
def test_numbers_are_uniform_within_chance(count):
    found = numbers(range(40_000 // count), count=count)
    assert found.min() >= 0
    assert found.max() < 1
    assert stats.kstest(found.ravel(), "uniform").pvalue > 1e-4


def test_neighbouring_numbers_are_unrelated():
    found = numbers(range(20_000), count=2)
    assert abs(np.corrcoef(found[:, 0], found[:, 1])[0, 1]) < 0.03
    assert abs(np.corrcoef(found[1:, 0], found[:-1, 0])[0, 1]) < 0.03


def test_no_draws_have_no_numbers():
    assert numbers([]).shape == (0, 4)
