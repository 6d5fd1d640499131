"""Average precision as Oxford's own program defines it, and precision as the revisited one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepcluster.evaluation.ranking import Ranking


def compute_ap(ranked: list[int], positive: set[int], junk: set[int]) -> float:
    """The definition walked through image by image: recall and precision after each."""
    area, recall, precision = 0.0, 0.0, 1.0
    seen = hits = 0
    for image in ranked:
        if image in junk:
            continue
        seen += 1
        hits += image in positive
        new_recall, new_precision = hits / len(positive), hits / seen
        area += (new_recall - recall) * (precision + new_precision) / 2
        recall, precision = new_recall, new_precision
    return area


def test_by_hand():
    # Junk 9 does not count; 1 and 2 stand at ranks 0 and 2 of what is left.
    ranking = Ranking.of(np.array([9, 1, 5, 2, 6]), {1, 2}, {9})
    assert ranking.ranks.tolist() == [0, 2]
    # First step: precision 1 before and after. Second: 1/2 before, 2/3 after.
    assert ranking.average_precision == pytest.approx(0.5 * 1 + 0.5 * (1 / 2 + 2 / 3) / 2)
    assert ranking.precision_at(1) == 1
    assert ranking.precision_at(2) == 1 / 2
    # The last one that counts is third: only three images are judged.
    assert ranking.precision_at(10) == pytest.approx(2 / 3)


def test_the_first_image_being_wrong_costs_half_of_what_follows():
    assert Ranking.of(np.array([0, 1]), {1}, set()).average_precision == pytest.approx(0.25)


@given(st.permutations(range(12)), st.sets(st.integers(0, 11), min_size=1), st.data())
def test_equal_to_the_definition(order, positive, data):
    junk = data.draw(st.sets(st.sampled_from(sorted(set(range(12)) - positive) or [99])))
    ranking = Ranking.of(np.array(order), positive, junk)
    assert ranking.average_precision == pytest.approx(compute_ap(order, positive, junk), abs=1e-12)


def test_an_image_that_counts_and_is_missing_is_no_figure():
    with pytest.raises(ValueError, match="must be in the order"):
        Ranking.of(np.array([0, 1]), {1, 2}, set())
