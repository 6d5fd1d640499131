"""The regions of R-MAC by hand, and its vectors in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from deepcluster.evaluation.rmac import Region, region_vectors, regions, rmac
from deepcluster.features import PCA


def test_the_regions_of_a_4_by_6_map_by_hand():
    # Two squares of side 4 along 6 share 50%, three would share 75%: two is nearer to 40%.
    first = [Region(0, 0, 4), Region(0, 2, 4)]
    # Side 8 / 3, so 2: two down and 2 + 1 across, evenly from edge to edge.
    second = [Region(top, left, 2) for top in (0, 2) for left in (0, 2, 4)]
    # Side 8 / 4 = 2: three down at 0, 1, 2; four across at 0, 4/3, 8/3, 4.
    third = [Region(top, left, 2) for top in (0, 1, 2) for left in (0, 1, 2, 4)]
    assert regions(4, 6, levels=3) == [*first, *second, *third]


def test_a_standing_map_has_the_regions_of_the_lying_one_turned():
    turned = {Region(left, top, side) for top, left, side in regions(9, 14, 3)}
    assert {*regions(14, 9, 3)} == turned


def test_a_square_map_has_level_times_level_regions():
    assert [len(regions(12, 12, levels)) for levels in (1, 2, 3)] == [1, 5, 14]


@pytest.mark.parametrize(("height", "width"), [(1, 1), (1, 9), (2, 3), (48, 64), (7, 100), (3, 3)])
def test_regions_lie_within_the_map_and_reach_its_edges(height, width):
    for levels in (1, 2, 3):
        found = regions(height, width, levels)
        assert all(r.top >= 0 and r.top + r.side <= height for r in found)
        assert all(r.left >= 0 and r.left + r.side <= width for r in found)
        assert max(r.left + r.side for r in found) == width
        assert max(r.top + r.side for r in found) == height


@pytest.mark.parametrize("long", [70, 80, 96, 120, 180])
def test_no_other_number_of_regions_shares_nearer_to_forty_percent(long):
    short = 60
    lefts = [r.left for r in regions(short, long, 1)]

    def off(count: int) -> float:
        return abs((short - (long - short) / (count - 1)) / short - 0.4)

    assert off(len(lefts)) == min(off(count) for count in range(2, 8))


def test_vectors_by_plain_arithmetic():
    randomness = np.random.default_rng(0)
    maps = randomness.random((2, 3, 4, 6))
    mean, projection = randomness.random(3), randomness.random((3, 2))
    expected = []
    for image in maps:
        total = np.zeros(2)
        for top, left, side in regions(4, 6, 3):
            vector = image[:, top : top + side, left : left + side].reshape(3, -1).max(axis=1)
            white = (vector / np.linalg.norm(vector) - mean) @ projection
            total += white / np.linalg.norm(white)
        expected.append(total / np.linalg.norm(total))
    pca = PCA(torch.tensor(mean).float(), torch.tensor(projection).float())
    vectors = region_vectors(torch.from_numpy(maps), 3)
    assert vectors.shape == (2, 20, 3)
    np.testing.assert_allclose(rmac(vectors, pca), expected, atol=1e-5)
    plain = vectors.sum(dim=1)
    np.testing.assert_allclose(rmac(vectors, None), plain / plain.norm(dim=1, keepdim=True))


def test_maps_without_any_activation_give_no_direction_and_no_nan():
    assert rmac(region_vectors(torch.zeros(1, 4, 3, 5), 3), None).tolist() == [[0, 0, 0, 0]]
