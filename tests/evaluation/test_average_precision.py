"""Average precision by hand, beside other computations, and by laws."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics import average_precision_score

from deepcluster.evaluation.average_precision import average_precision
from deepcluster.runtime.errors import NumericsError

# Few values, so that many are equal.
RANKED = st.integers(1, 40).flatmap(
    lambda count: st.tuples(
        arrays(np.float64, count, elements=st.integers(-4, 4).map(float)),
        arrays(np.bool_, count),
    )
)
DISTINCT = st.integers(1, 40).flatmap(
    lambda count: st.tuples(
        st.permutations(range(count)).map(lambda order: np.array(order, dtype=np.float64)),
        arrays(np.bool_, count),
    )
)


def test_four_entries_by_hand():
    # Right, wrong, right, wrong: precision 1 at recall 1/2, 2/3 at recall 1.
    found = average_precision([4, 3, 2, 1], [True, False, True, False])
    assert found is not None
    assert found.plain == pytest.approx((1 + 2 / 3) / 2)
    assert found.all_point == pytest.approx(1 / 2 + 1 / 2 * 2 / 3)
    assert found.eleven_point == pytest.approx((6 * 1 + 5 * 2 / 3) / 11)


def test_a_dip_is_interpolated_by_hand():
    # Wrong, right, right: precisions 0, 1/2, 2/3; from every recall on the best is 2/3.
    found = average_precision([3, 2, 1], [False, True, True])
    assert found is not None
    assert found.plain == pytest.approx((1 / 2 + 2 / 3) / 2)
    assert found.all_point == pytest.approx(2 / 3)
    assert found.eleven_point == pytest.approx(2 / 3)


def test_what_is_never_found_counts():
    # One of four positives is found, first: recall stops at 1/4.
    found = average_precision([2, 1], [True, False], positives=4)
    assert found is not None
    assert found.plain == found.all_point == 1 / 4
    assert found.eleven_point == pytest.approx(3 / 11)  # at 0, 0.1 and 0.2
    nothing = average_precision([], [], positives=4)
    assert nothing is not None
    assert (nothing.eleven_point, nothing.all_point, nothing.plain) == (0, 0, 0)


def test_three_of_ten_reach_a_recall_of_three_tenths():
    """3 * 0.1 is more than 0.3 in floating point, which costs careless programs a level."""
    found = average_precision([3, 2, 1], [True] * 3, positives=10)
    assert found is not None
    assert found.eleven_point == pytest.approx(4 / 11)


def test_nothing_to_find_and_what_is_refused():
    assert average_precision([1.0, 2.0], [False, False]) is None
    assert average_precision([], []) is None
    with pytest.raises(NumericsError):
        average_precision([np.nan, 1.0], [True, False])
    with pytest.raises(ValueError, match="2 hits of 1"):
        average_precision([1.0, 2.0], [True, True], positives=1)
    with pytest.raises(ValueError, match="two equal rows"):
        average_precision([1.0, 2.0], [True])


@given(RANKED)
def test_the_plain_one_is_scikit_learns(ranked):
    scores, hits = ranked
    found = average_precision(scores, hits)
    if found is None:
        assert not hits.any()
    else:
        assert found.plain == pytest.approx(average_precision_score(hits, scores))


def _as_the_devkit_does(scores, hits, total):
    """VOC's programs, transcribed from their definition entry by entry."""
    order = np.argsort(-scores)
    hits = hits[order]
    recalls = [hits[: n + 1].sum() / total for n in range(len(hits))]
    precisions = [hits[: n + 1].sum() / (n + 1) for n in range(len(hits))]
    points = [
        max((p for r, p in zip(recalls, precisions, strict=True) if r >= t - 1e-12), default=0)
        for t in np.linspace(0, 1, 11)
    ]
    area, last = 0.0, 0.0
    for n, recall in enumerate(recalls):
        area += (recall - last) * max(precisions[n:])
        last = recall
    return sum(points) / 11, area


@given(DISTINCT, st.integers(0, 5))
def test_without_ties_both_are_the_devkits(ranked, missed):
    scores, hits = ranked
    total = int(hits.sum()) + missed
    found = average_precision(scores, hits, total)
    if found is None:
        assert total == 0
        return
    eleven, area = _as_the_devkit_does(scores, hits, total)
    assert found.eleven_point == pytest.approx(eleven)
    assert found.all_point == pytest.approx(area)


@given(RANKED, st.randoms(use_true_random=False))
def test_laws(ranked, random):
    scores, hits = ranked
    found = average_precision(scores, hits)
    if found is None:
        return
    order = list(range(len(scores)))
    random.shuffle(order)
    assert average_precision(scores[order], hits[order]) == found  # ties have no order
    assert average_precision(2 * scores - 3, hits) == found  # only the ranking counts
    assert 0 < found.plain <= found.all_point + 1e-12
    assert found.all_point <= 1 + 1e-12
    assert 0 < found.eleven_point <= 1 + 1e-12
    assert average_precision(hits.astype(float), hits).all_point == pytest.approx(1)
    constant = average_precision(np.zeros(len(hits)), hits)
    for figure in (constant.eleven_point, constant.all_point, constant.plain):
        assert figure == pytest.approx(hits.mean())
