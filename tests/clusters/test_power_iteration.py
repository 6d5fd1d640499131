"""Power iteration clustering: two triangles by hand, its laws, and real features."""

from collections import defaultdict
from decimal import Decimal, localcontext

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from deepcluster.clusters import PowerIteration, nearest, normalized_mutual_information
from deepcluster.clusters.power_iteration import in_order_of_appearance, steepest_edges
from deepcluster.runtime.errors import ManySingletons, NumericsError, UsageError


def two_triangles():
    """Two triangles, ten apart, with sides of 3, 4 and 5, in mixed order."""
    triangle = torch.tensor([[0.0, 0.0], [3.0, 0.0], [0.0, 4.0]])
    return torch.stack([triangle, triangle + 10], dim=1).flatten(0, 1)


@pytest.mark.parametrize("update", ["paper", "released"])
def test_two_triangles(update):
    clusters = PowerIteration(neighbours=2, sigma=5.0, update=update)(two_triangles())
    assert clusters.labels.tolist() == [0, 1, 0, 1, 0, 1]
    assert clusters.count == 2
    assert clusters.sizes.tolist() == [3, 3]
    torch.testing.assert_close(clusters.centroids[0], torch.tensor([1.0, 4 / 3]))
    # Squared distances to (1, 4/3): 25/9, 52/9, 73/9.
    assert clusters.objective == pytest.approx([50 / 9])
    assert clusters.distances[0] == pytest.approx(5 / 3)
    assert clusters.margins[0] == pytest.approx((11**2 + (34 / 3) ** 2) ** 0.5 - 5 / 3)
    assert clusters.repaired == 0


def test_the_steepest_edge_by_hand():
    # 0 - 1 - 2 in a row, 1 highest; 3 is joined to 2 alone, and is not lower than it.
    weights = csr_array(
        np.array([[0, 1.0, 0, 0], [1.0, 0, 1.0, 0], [0, 0.5, 0, 0.5], [0, 0, 1.0, 0]])
    )
    heights = torch.tensor([0.1, 0.4, 0.2, 0.2], dtype=torch.float64)
    assert steepest_edges(weights, heights).tolist() == [1, -1, 1, -1]


def test_one_iteration_of_the_paper_by_hand():
    # 0 and 1 are each other's neighbour and 2's is 1: with w = exp(-1), 1 is met three times, 0
    # twice and 2 once, so all climb to 1.
    rows = torch.tensor([[0.0], [1.0], [2.0]])
    settings_by_hand = PowerIteration(neighbours=1, sigma=1.0, alpha=0.5, iterations=1)
    both_ways = csr_array(np.exp(-1) * np.array([[0, 2, 0], [2, 0, 1], [0, 1, 0]]))
    v = np.exp(-1) * np.array([2, 3, 1]) + 1
    heights = settings_by_hand._heights(both_ways).numpy()
    np.testing.assert_allclose(np.diff(heights), np.diff(3 * v / v.sum()))
    assert settings_by_hand(rows).labels.tolist() == [0, 0, 0]
    assert settings_by_hand(rows).margins.tolist() == [torch.inf] * 3


@settings(deadline=None, max_examples=30, derandomize=True)
@given(seed=st.integers(0, 10_000), update=st.sampled_from(["paper", "released"]))
def test_the_steepest_edges_close_no_cycle_and_every_component_has_one_peak(seed, update):
    n = 80
    source = torch.Generator().manual_seed(seed)
    rows = torch.randint(0, 9, (n, 2), generator=source).float()  # many ties and duplicates
    pic = PowerIteration(sigma=2.0, update=update)
    graph = nearest(rows, rows, pic.neighbours, skip_self_from=0)
    weights = torch.zeros(n, n, dtype=torch.float64)
    weights.scatter_(1, graph.index, torch.exp(-graph.distance / pic.sigma**2))
    heights = pic._heights(csr_array((weights + weights.T).numpy()))
    followed = weights if update == "paper" else weights + weights.T
    uphill = steepest_edges(csr_array(followed.numpy()), heights)
    climbs = uphill >= 0
    assert (heights[uphill[climbs]] > heights[climbs]).all()
    peak = torch.where(climbs, uphill, torch.arange(n))
    for _ in range(7):  # 2^7 steps: a walk without cycles has ended
        peak = peak[peak]
    assert not climbs[peak].any()
    # The components are those of the rows that end at the same peak.
    labels = pic.components(graph)
    assert torch.equal(in_order_of_appearance(labels), in_order_of_appearance(peak))


def test_numbers_follow_first_appearance():
    assert in_order_of_appearance(torch.tensor([7, 2, 7, 9, 2])).tolist() == [0, 1, 0, 2, 1]


def test_singletons_join_their_nearest_neighbour_in_a_group():
    # The last row is far from the rest, so its weights vanish and it stays alone.
    rows = torch.cat([two_triangles(), torch.tensor([[500.0, 500.0]])])
    alone = PowerIteration(neighbours=2, sigma=5.0)(rows)
    merged = PowerIteration(neighbours=2, sigma=5.0, merge_singletons=True)(rows)
    assert alone.labels.tolist() == [0, 1, 0, 1, 0, 1, 2]
    assert merged.labels.tolist() == [0, 1, 0, 1, 0, 1, 1]


def test_the_nearest_neighbour_is_joined_not_the_first_of_the_rows():
    # The last row is nearer to the group of the fourth row than to that of the first.
    rows = torch.tensor([0.0, 0.1, 0.2, 10.0, 10.1, 10.2, 5.5])[:, None]
    merged = PowerIteration(neighbours=5, sigma=0.1, merge_singletons=True)(rows)
    assert merged.labels.tolist() == [0, 0, 0, 1, 1, 1, 1]


def whitened_digits(dimensions, unit_length=True):
    images, digits = load_digits(return_X_y=True)
    rows = PCA(dimensions, whiten=True, random_state=0).fit_transform(images)
    if unit_length:
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return torch.from_numpy(rows).float(), torch.from_numpy(digits)


@pytest.mark.parametrize("update", ["paper", "released"])
def test_a_sigma_far_below_the_distances_leaves_rows_alone_and_says_so(update):
    # Neighbours are 2.6 apart: exp(-2.6^2 / 0.05^2) is zero in float64.
    rows, _ = whitened_digits(16, unit_length=False)
    with pytest.warns(ManySingletons, match='sigma = 0.05 is small.*use sigma="auto"'):
        clusters = PowerIteration(sigma=0.05, update=update)(rows)
    assert (clusters.sizes == 1).sum() > len(rows) / 3


@pytest.mark.parametrize(("dimensions", "unit_length"), [(16, True), (16, False), (48, True)])
@pytest.mark.parametrize("update", ["paper", "released"])
def test_the_automatic_sigma_finds_digits(dimensions, unit_length, update):
    rows, digits = whitened_digits(dimensions, unit_length)
    clusters = PowerIteration(sigma="auto", update=update)(rows)  # a warning would be an error
    shuffled = clusters.labels[torch.randperm(len(rows), generator=torch.Generator())]
    chance = normalized_mutual_information(shuffled, digits)
    assert normalized_mutual_information(clusters.labels, digits) > chance + 0.2


def test_nothing_is_random_and_few_rows_are_enough():
    rows = torch.tensor([[0.0], [1.0], [1.0]])
    first = PowerIteration(sigma="auto")(rows, generator=torch.Generator().manual_seed(1))
    again = PowerIteration(sigma="auto")(rows, generator=torch.Generator().manual_seed(2))
    assert torch.equal(first.labels, again.labels)


def test_misuse():
    with pytest.raises(NumericsError, match="nothing to group"):
        PowerIteration()(torch.ones(9, 3))
    with pytest.raises(NumericsError, match="not finite"):
        PowerIteration()(torch.full((9, 3), torch.nan))
    for wrong in ({"neighbours": 0}, {"sigma": 0.0}, {"alpha": 2.0}):
        with pytest.raises(UsageError, match=next(iter(wrong))):
            PowerIteration(**wrong)(two_triangles())


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"neighbours": 0}, "neighbours = 0: at least 1"),
        ({"neighbours": 2.5}, "neighbours = 2.5: a whole number"),
        ({"iterations": -1}, "iterations = -1: at least 0"),
        ({"update": "mine"}, "update = 'mine': use paper or released"),
        ({"sigma": 0}, "sigma = 0: it must be above 0"),
        ({"sigma": "wide"}, "sigma = 'wide': it must be above 0"),
        ({"alpha": 1.5}, "alpha = 1.5: it must be from 0 to 1"),
    ],
)
def test_settings_that_make_no_sense(settings, said):
    with pytest.raises(UsageError, match=said):
        PowerIteration(**settings)(torch.randn(10, 2))


def climbed(graph, pic):
    """The component of each row in numbers of 80 digits, as paper and released code have it."""
    with localcontext(prec=80):
        n, width = len(graph.index), Decimal(repr(pic.sigma)) ** 2
        to, both = [{} for _ in range(n)], [defaultdict(Decimal) for _ in range(n)]
        for i, (near, far) in enumerate(zip(graph.index.tolist(), graph.distance, strict=True)):
            for j, squared in zip(near, far.tolist(), strict=True):
                w = (-Decimal(squared) / width).exp()
                to[i][j] = w
                both[i][j] += w
                both[j][i] += w
        alpha = Decimal(repr(pic.alpha))
        v = [Decimal(1) / n] * n
        for _ in range(pic.iterations):
            came = [alpha * sum(w * v[j] for j, w in row.items()) for row in both]
            stays = v if pic.update == "paper" else [Decimal(1) / n] * n
            v = [c + (1 - alpha) * s for c, s in zip(came, stays, strict=True)]
            total = sum(v)
            v = [height / total for height in v]
        peak = list(range(n))
        for i, row in enumerate(to if pic.update == "paper" else both):
            gain, j = max(((w * (v[j] - v[i]), -j) for j, w in row.items()), default=(0, 0))
            if gain > 0:
                peak[i] = -j
    for _ in range(n):
        peak = [peak[j] for j in peak]
    return in_order_of_appearance(torch.tensor(peak))


@pytest.mark.parametrize("update", ["paper", "released"])
@pytest.mark.parametrize(("sigma", "alpha"), [(0.2, 1e-3), (1.0, 1e-3), (0.2, 0.5)])
def test_groups_are_those_of_eighty_digits(update, sigma, alpha):
    """Of unit rows in many dimensions, whose neighbours are 1.1 apart: much, beside sigma.

    Weights are 1e-13 there: heights differ by less than a float64 can add to them, and yet by much
    of what they have risen.
    """
    rows = torch.randn(60, 40, generator=torch.Generator().manual_seed(3))
    rows = torch.nn.functional.normalize(rows)
    pic = PowerIteration(sigma=sigma, alpha=alpha, update=update, iterations=30)
    graph = nearest(rows, rows, pic.neighbours, skip_self_from=0)
    before = graph.index.clone()
    labels = in_order_of_appearance(pic.components(graph))
    assert torch.equal(graph.index, before)  # nearest first, still
    assert torch.equal(labels, climbed(graph, pic))
    assert 1 < int(labels.max()) + 1 < 30


def test_heights_stay_numbers_however_often_they_are_updated():
    rows = torch.randn(60, 2, generator=torch.Generator().manual_seed(0))
    for update in ("paper", "released"):
        for alpha in (0.5, 1.0):
            pic = PowerIteration(sigma=10.0, alpha=alpha, update=update, iterations=2000)
            assert 1 <= pic(rows).count < 30


@pytest.mark.filterwarnings("ignore::deepcluster.runtime.errors.ManySingletons")
def test_a_sigma_whose_square_is_no_number():
    """Of equal rows the weight is one even then. 0 and 1 are met three times, 2 twice, 3 never."""
    rows = torch.tensor([0.0, 0.0, 0.0, 0.0, 1.0, 2.0, 3.0])[:, None]
    tiny = PowerIteration(neighbours=2, sigma=1e-200)(rows)
    assert tiny.labels.tolist() == [0, 1, 0, 0, 2, 3, 4]
    wide, wider = (PowerIteration(neighbours=2, sigma=sigma)(rows) for sigma in (1e100, 1e200))
    assert torch.equal(wide.labels, wider.labels)


def test_centroids_of_float64_rows_far_from_zero():
    rows = two_triangles().double()
    near, far = (PowerIteration(neighbours=2, sigma=5.0)(rows + at) for at in (0, 1e9))
    assert torch.equal(near.labels, far.labels)
    torch.testing.assert_close(far.centroids - 1e9, near.centroids.double(), atol=1e-5, rtol=0)
