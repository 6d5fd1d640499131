"""k-means: by hand, against scikit-learn, and the laws it must keep."""

import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans as Reference
from sklearn.exceptions import ConvergenceWarning

from deepcluster.clusters import KMeans, assign
from deepcluster.clusters.kmeans import _split_into_empty
from deepcluster.clusters.totals import Totals
from deepcluster.runtime.errors import ClustersShrunk, NumericsError, UsageError

few = settings(deadline=None, max_examples=25, derandomize=True)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def blobs(n=600, d=8, k=12, seed=0):
    source = generator(seed)
    centres = 3 * torch.randn(k, d, generator=source)
    which = torch.randint(k, (n,), generator=source)
    return centres[which] + torch.randn(n, d, generator=source)


def distances_by_brute_force(rows, centroids):
    return (rows.double()[:, None] - centroids.double()[None]).square().sum(dim=2)


def check_whole(clusters, rows, k):
    """What every result promises."""
    squared = distances_by_brute_force(rows, clusters.centroids)
    own = squared.gather(1, clusters.labels[:, None])[:, 0]
    assert torch.equal(clusters.labels, squared.argmin(dim=1))
    assert clusters.count == k == len(clusters.sizes) == len(clusters.centroids)
    assert torch.equal(clusters.sizes, torch.bincount(clusters.labels, minlength=k))
    assert (clusters.sizes > 0).all()
    assert clusters.objective[-1] == pytest.approx(float(own.mean()), rel=1e-9, abs=1e-300)
    torch.testing.assert_close(clusters.distances, own.sqrt().float())
    second = squared.scatter(1, clusters.labels[:, None], torch.inf).amin(dim=1)
    torch.testing.assert_close(clusters.margins, (second.sqrt() - own.sqrt()).float())


def test_four_points_by_hand():
    rows = torch.tensor([[0.0, 0.0], [0.0, 2.0], [10.0, 0.0], [10.0, 2.0]])
    start = torch.tensor([[0.0, 0.0], [10.0, 2.0]])
    clusters = KMeans(k=2, iterations=3)(rows, centroids=start)
    assert clusters.labels.tolist() == [0, 0, 1, 1]
    assert clusters.centroids.tolist() == [[0.0, 1.0], [10.0, 1.0]]
    assert clusters.sizes.tolist() == [2, 2]
    # First two rows lie on a centroid and two are 2 away; then all are 1 away; then nothing moves.
    assert clusters.objective == [2.0, 1.0, 1.0]
    assert clusters.distances.tolist() == [1.0] * 4
    assert clusters.margins.tolist() == pytest.approx([101**0.5 - 1] * 4)
    assert clusters.repaired == 0


def test_a_row_between_two_centroids_belongs_to_the_first():
    rows = torch.tensor([[-1.0], [0.0], [1.0]])
    labels, distances, margins = assign(rows, torch.tensor([[1.0], [-1.0], [1.0]]))
    assert labels.tolist() == [1, 0, 0]
    assert distances.tolist() == [0.0, 1.0, 0.0]
    assert margins.tolist() == [2.0, 0.0, 0.0]


def test_assign_to_a_single_centroid_has_no_second():
    labels, distances, margins = assign(torch.tensor([[3.0], [4.0]]), torch.tensor([[0.0]]))
    assert labels.tolist() == [0, 0]
    assert distances.tolist() == [3.0, 4.0]
    assert margins.tolist() == [torch.inf, torch.inf]


def by_scikit_learn(rows, start, iterations=20):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return Reference(len(start), init=start.numpy(), n_init=1, max_iter=iterations, tol=0).fit(
            rows.numpy()
        )


@pytest.mark.parametrize("iterations", [1, 5, 20])
def test_like_scikit_learn_from_the_same_start(iterations):
    rows = blobs(n=1500, d=16, k=30)
    start = rows[:20]
    ours = KMeans(k=20, iterations=iterations)(rows, centroids=start)
    theirs = by_scikit_learn(rows, start, iterations)
    assert ours.objective[-1] == pytest.approx(theirs.inertia_ / len(rows), rel=0.01)
    assert (ours.labels.numpy() == theirs.labels_).mean() > 0.99


def test_the_seed_decides():
    rows = blobs()
    first, again = (KMeans(k=10)(rows, generator=generator(3)) for _ in range(2))
    assert torch.equal(first.labels, again.labels)
    assert torch.equal(first.centroids, again.centroids)
    assert not torch.equal(first.labels, KMeans(k=10)(rows, generator=generator(4)).labels)


def test_the_rows_and_the_start_are_left_as_they_were():
    rows, start = blobs(), torch.full((10, 8), 1e6)  # far from all rows: splits must come
    rows_before, start_before = rows.clone(), start.clone()
    assert KMeans(k=10)(rows, centroids=start).repaired > 0
    assert torch.equal(rows, rows_before)
    assert torch.equal(start, start_before)


@few
@given(seed=st.integers(0, 1000), k=st.integers(2, 20))
def test_permuted_rows_have_permuted_labels(seed, k):
    rows = blobs(n=100, d=3, k=5, seed=seed)
    order = torch.randperm(100, generator=generator(seed))
    start = rows[:k]
    plain = KMeans(k=k, iterations=8)(rows, centroids=start)
    permuted = KMeans(k=k, iterations=8)(rows[order], centroids=start)
    assert torch.equal(permuted.labels, plain.labels[order])


@few
@given(seed=st.integers(0, 1000), k=st.integers(2, 40), offset=st.sampled_from([0.0, 1e4]))
def test_the_objective_never_rises_without_a_repair(seed, k, offset):
    rows = blobs(n=200, d=4, k=6, seed=seed) + offset
    clusters = KMeans(k=k, iterations=12)(rows, generator=generator(seed))
    check_whole(clusters, rows, k)
    rounding = 4 * (float(rows.abs().max()) * 2**-24) ** 2
    for before, after in zip(clusters.objective, clusters.objective[1:], strict=False):
        assert after <= before * (1 + 1e-6) + rounding or clusters.repaired


@st.composite
def awkward_rows(draw):
    """Heavy duplicates, near duplicates, offsets, huge and tiny numbers."""
    source = generator(draw(st.integers(0, 10_000)))
    n, d = draw(st.integers(4, 60)), draw(st.integers(1, 5))
    rows = torch.randn(n, d, generator=source)
    match draw(st.sampled_from(["plain", "duplicates", "near", "far apart", "integers"])):
        case "duplicates":
            rows = rows[torch.randint(max(2, n // 4), (n,), generator=source)]
        case "near":
            rows = rows[:1] + 1e-6 * torch.randint(0, 9, (n, d), generator=source)
        case "far apart":
            rows = rows[:1] + 1e-4 * rows + 1e3 * torch.randint(0, 2, (n, 1), generator=source)
        case "integers":
            rows = torch.randint(0, 3, (n, d), generator=source).float()
    rows = rows * draw(st.sampled_from([1.0, 1e-20, 1e20]))
    return rows + draw(st.sampled_from([0.0, 0.0, 1e4]))


@settings(deadline=None, max_examples=150, derandomize=True)
@given(rows=awkward_rows(), data=st.data())
def test_no_cluster_is_empty_while_there_are_k_distinct_rows(rows, data):
    distinct = len(torch.unique(rows, dim=0))
    if distinct < 2:
        with pytest.raises(NumericsError, match="nothing to group"):
            KMeans(k=2)(rows)
        return
    k = data.draw(st.integers(2, distinct) | st.just(distinct))
    iterations = data.draw(st.sampled_from([0, 1, 2, 6]))
    start = None
    if data.draw(st.booleans()):  # all in one place, or far away: nearly all clusters are empty
        start = rows[:1].expand(k, -1) + data.draw(st.sampled_from([0.0, 1e6]))
    check_whole(KMeans(k=k, iterations=iterations)(rows, centroids=start), rows, k)


def test_the_paper_splits_a_cluster_in_proportion_to_the_rows_it_can_give():
    sizes = torch.tensor([5, 0, 1, 3, 9])
    spread = torch.tensor([1.0, 0.0, 1.0, 1.0, 0.5], dtype=torch.float64)
    within = torch.tensor([1.0, 0.0, 0.0, 1.0, 1e-33], dtype=torch.float64)  # the last: equal rows
    means = torch.tensor([[0.0], [0.0], [2.0], [3.0], [4.0]], dtype=torch.float64)
    donors = []
    source = generator()
    for _ in range(300):
        centroids = means.float()
        assert _split_into_empty(centroids, Totals(sizes, means, spread, within), source) == 1
        moved = (centroids[:, 0] != means[:, 0].float()).nonzero()[:, 0].tolist()
        donor = next(i for i in moved if i != 1)
        # Both stand beside the old centroid, at equal distances on opposite sides.
        assert float(centroids[1] + centroids[donor]) == pytest.approx(2 * float(means[donor]))
        assert 0 < abs(float(centroids[1] - means[donor])) < 0.1
        donors.append(donor)
    assert set(donors) == {0, 3}
    assert 150 < donors.count(0) < 250  # (5 - 1) : (3 - 1) is 200 : 100


def test_a_repair_is_counted_and_lowers_the_objective():
    rows = blobs(n=300, d=2, k=5)
    start = torch.cat([rows[:3], torch.full((3, 2), 1e5)])
    clusters = KMeans(k=6)(rows, centroids=start)
    assert clusters.repaired >= 3
    assert clusters.objective[-1] < clusters.objective[0]
    check_whole(clusters, rows, 6)


def test_fewer_distinct_rows_than_clusters():
    rows = torch.tensor([[0.0], [-0.0], [1.0], [1.0], [2.0]])
    with pytest.warns(ClustersShrunk, match="3 distinct values.*instead of 4"):
        clusters = KMeans(k=4)(rows)
    check_whole(clusters, rows, 3)
    assert clusters.objective[-1] == 0
    with pytest.warns(ClustersShrunk):
        assert KMeans(k=4)(rows, centroids=torch.zeros(4, 1)).count == 3


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_rows_that_are_not_finite(bad):
    rows = blobs()
    rows[5, 2] = bad
    with pytest.raises(
        NumericsError, match=r"1 of 600 rows hold numbers that are not finite in float32 \(row 5\)"
    ):
        KMeans(k=3)(rows)


def test_misuse():
    with pytest.raises(UsageError, match="k = 0: at least 1"):
        KMeans(k=0)(blobs())
    with pytest.raises(UsageError, match="shape"):
        KMeans(k=3)(blobs(), centroids=torch.zeros(2, 8))
    with pytest.raises(NumericsError, match="start from"):
        KMeans(k=2)(blobs(), centroids=torch.full((2, 8), torch.nan))
    with pytest.raises(NumericsError, match="nothing to group"):
        KMeans(k=2)(torch.ones(9, 3))
    with pytest.raises(NumericsError, match="nothing to group"):
        KMeans(k=2)(torch.ones(0, 3))


def test_arrays_are_as_good_as_tensors():
    rows = blobs()
    assert torch.equal(KMeans(k=5)(rows).labels, KMeans(k=5)(rows.double().numpy()).labels)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_rows_to_assign_that_are_not_finite_are_named(value):
    rows = torch.randn(6, 3)
    rows[4, 1] = value
    with pytest.raises(NumericsError, match=r"1 of 6 rows .*row 4"):
        assign(rows, torch.randn(2, 3))


@pytest.mark.parametrize("offset", [0.0, 1e5, 1e6])
def test_a_split_shows_however_far_the_rows_are_from_zero(offset):
    """A hundredth of the spread is less than the last digit of 1e6."""
    rows = blobs(n=300, d=8, k=1) + offset
    clusters = KMeans(k=40)(rows, centroids=torch.full((40, 8), 1e4 + offset))
    check_whole(clusters, rows, 40)
    assert clusters.repaired == 39
    several = [KMeans(k=40)(rows, generator=generator(seed)).objective[-1] for seed in range(3)]
    assert clusters.objective[-1] < 1.05 * max(several)


def test_a_cluster_of_equal_rows_is_split_once_at_most():
    """Once, while it still has others; then the copies are passed over, however many they are."""
    rows = torch.cat([blobs(n=300, d=8, k=1), torch.full((4000, 8), 1 / 3)])
    clusters = KMeans(k=40)(rows, centroids=rows[-1:].expand(40, -1))
    check_whole(clusters, rows, 40)
    assert clusters.repaired <= 42


@pytest.mark.parametrize("kind", [torch.float64, torch.int64])
def test_rows_with_more_digits_than_float32_are_read_about_their_mean(kind):
    rows = (100 * blobs()).round().double()
    far = (rows + 10**11).to(kind)
    expected = KMeans(k=10)(rows, centroids=rows[:10])
    found = KMeans(k=10)(far, centroids=far[:10])
    assert torch.equal(found.labels, expected.labels)
    assert found.centroids.dtype == torch.float64
    torch.testing.assert_close(
        found.centroids - 10**11, expected.centroids.double(), atol=1e-3, rtol=0
    )
    labels, distances, _ = assign(far, found.centroids)
    assert torch.equal(labels, found.labels)
    torch.testing.assert_close(distances, found.distances)
    theirs = by_scikit_learn(far.double(), far[:10].double())
    assert found.objective[-1] * 600 == pytest.approx(theirs.inertia_, rel=1e-4)
