"""The tree of groups against scipy's, against the definition, and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.cluster.hierarchy import fcluster, linkage

from deepcluster.explorer import merge_tree
from deepcluster.explorer.merge_tree import MergeTree


def partition(parts: list) -> set[frozenset[int]]:
    return {frozenset(np.asarray(part).tolist()) for part in parts}


def test_groups_of_one_image_are_joined_as_scipy_does():
    middles = np.random.default_rng(0).normal(size=(40, 5)) + 100  # an offset costs no digits
    tree = MergeTree.of(middles, np.ones(40, dtype=np.int64))
    theirs = linkage(middles, "ward")
    # scipy's height of a step is the root of twice what it adds.
    np.testing.assert_allclose(np.sqrt(2 * tree.costs), theirs[:, 2], rtol=1e-9)
    for count in (1, 2, 7, 20, 39, 40):
        labels = fcluster(theirs, count, "maxclust")
        expected = [np.flatnonzero(labels == label) for label in np.unique(labels)]
        assert partition(tree.cut(count)) == partition(expected)


def test_what_is_left_out_once_it_is_joined_changes_nothing(monkeypatch):
    randomness = np.random.default_rng(3)
    middles, sizes = randomness.normal(size=(300, 6)), randomness.integers(1, 50, 300)
    tree = MergeTree.of(middles, sizes)
    monkeypatch.setattr(merge_tree, "_CROWDED", 0)
    every = MergeTree.of(middles, sizes)
    np.testing.assert_array_equal(tree.joined, every.joined)
    np.testing.assert_allclose(tree.costs, every.costs, rtol=1e-9)


def test_larger_groups_weigh_as_their_images_do():
    randomness = np.random.default_rng(1)
    middles, sizes = randomness.normal(size=(12, 3)), randomness.integers(1, 9, 12)
    tree = MergeTree.of(middles, sizes)
    # As many points as there are images, of which those of one group are joined at no cost.
    theirs = linkage(np.repeat(middles, sizes, axis=0), "ward")
    heights = theirs[sizes.sum() - len(sizes) :, 2]
    np.testing.assert_allclose(np.sqrt(2 * tree.costs), heights, rtol=1e-9)
    owner = np.repeat(np.arange(12), sizes)
    for count in (2, 5, 9):
        labels = fcluster(theirs, count, "maxclust")
        expected = [np.unique(owner[labels == label]) for label in np.unique(labels)]
        assert partition(tree.cut(count)) == partition(expected)


def test_what_is_kept_is_the_spread_between_groups():
    randomness = np.random.default_rng(2)
    labels = np.repeat(np.arange(8), 5)
    rows = randomness.normal(size=(8, 4))[labels] + 0.2 * randomness.normal(size=(40, 4))
    middles = np.stack([rows[labels == group].mean(axis=0) for group in range(8)])
    within = sum(np.square(rows[labels == g] - middles[g]).sum() for g in range(8))
    tree = MergeTree.of(middles, np.bincount(labels), within)
    total = np.square(rows - rows.mean(axis=0)).sum()
    for count in (1, 3, 8):
        inside = 0.0
        for leaves in tree.cut(count):
            own = rows[np.isin(labels, leaves)]
            inside += np.square(own - own.mean(axis=0)).sum()
        assert tree.kept(count) == pytest.approx(1 - inside / total, abs=1e-12)
    assert tree.kept(1) == pytest.approx(0, abs=1e-12)


def test_three_groups_by_hand():
    tree = MergeTree.of(np.array([[0.0], [1.0], [5.0]]), np.array([1, 3, 4]))
    assert tree.joined.tolist() == [[0, 1], [2, 3]]
    # 1 * 3 / 4 * 1 squared; the middle of the first two is at 0.75: 4 * 4 / 8 * 4.25 squared.
    assert tree.costs.tolist() == pytest.approx([0.75, 2 * 4.25**2])
    assert [some.tolist() for some in tree.cut(2)] == [[0, 1], [2]]  # equal sizes: the first first
    assert [some.tolist() for some in tree.cut(3)] == [[2], [1], [0]]


@pytest.mark.parametrize("most", [1, 2, 5, 30])
def test_the_crown_is_the_upper_part_without_crossings(most: int):
    middles = np.random.default_rng(3).normal(size=(30, 2))
    tree = MergeTree.of(middles, np.ones(30, dtype=np.int64))
    ends, steps = tree.crown(most)
    assert partition(ends) == partition(tree.cut(most))
    spans = [{number} for number in range(most)]
    for one, other, _ in steps:
        together = spans[one] | spans[other]
        assert together == set(range(min(together), max(together) + 1))  # side by side
        spans.append(together)
    assert spans[-1] == set(range(most))


def test_equal_middles_and_a_single_group():
    tree = MergeTree.of(np.zeros((5, 2)), np.ones(5, dtype=np.int64))
    assert tree.costs.tolist() == [0] * 4
    assert len(tree.cut(2)) == 2
    assert tree.kept(1) == 0
    alone = MergeTree.of(np.ones((1, 2)), np.array([7]))
    assert [some.tolist() for some in alone.cut(1)] == [[0]]
    assert alone.crown(9)[1] == []
