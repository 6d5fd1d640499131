"""What k-means can be asked for beyond k: directions, starts, repeats, samples, rows on disk."""

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans as Reference
from sklearn.cluster import kmeans_plusplus

from deepcluster.clusters import KMeans, assign
from deepcluster.clusters.gate import checked
from deepcluster.clusters.rows import Rows
from deepcluster.clusters.start import _far_apart, some_of
from deepcluster.runtime.errors import NumericsError, UsageError
from deepcluster.runtime.world import World


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def blobs(n=600, d=8, k=12, seed=0):
    source = generator(seed)
    centres = 3 * torch.randn(k, d, generator=source)
    return centres[torch.arange(n) % k] + torch.randn(n, d, generator=source)


def test_directions_are_grouped_as_unit_rows_are_and_lengths_do_not_matter():
    rows = blobs()
    lengths = torch.rand(len(rows), 1, generator=generator(1)) * 100 + 0.01
    start = rows[:12]
    by_direction = KMeans(k=12, metric="spherical")(lengths * rows, centroids=start)
    same = KMeans(k=12, metric="spherical")(rows, centroids=start)
    assert (by_direction.labels == same.labels).float().mean() > 0.995
    torch.testing.assert_close(by_direction.centroids.norm(dim=1), torch.ones(12))
    unit = torch.nn.functional.normalize(rows, dim=1)
    cosine = unit.double() @ same.centroids.double().T
    assert torch.equal(cosine.argmax(dim=1), same.labels)
    assert same.objective[-1] == pytest.approx(2 - 2 * float(cosine.amax(dim=1).mean()), rel=1e-5)
    for before, after in zip(same.objective, same.objective[1:], strict=False):
        assert after <= before * (1 + 1e-6)


def test_directions_in_scikit_learns_manner():
    rows = blobs().numpy()
    model = KMeans(k=12, metric="spherical").fit(rows)
    labels, distance, margin = model.predict_with_margin(5 * rows)
    assert np.array_equal(labels, model.labels_)
    assert np.array_equal(model.transform(5 * rows).argmin(axis=1), labels)
    assert np.allclose(np.sort(model.transform(rows), axis=1)[:, 0], distance, atol=1e-3)
    assert (margin >= 0).all()


def test_a_row_without_direction_has_a_group_all_the_same():
    rows = blobs()
    rows[3] = 0
    clusters = KMeans(k=5, metric="spherical")(rows)
    assert clusters.centroids.isfinite().all()
    assert float(clusters.distances[3]) == pytest.approx(1)


def test_far_apart_starts_have_the_distribution_of_k_means_plus_plus():
    """On a line of unequal gaps, how often each pair is drawn can be computed."""
    points = torch.tensor([0.0, 1.0, 3.0, 7.0])[:, None]
    squared = torch.cdist(points, points).square()
    expected = (squared / squared.sum(dim=1, keepdim=True)) / 4
    source, found, draws = generator(), torch.zeros(4, 4), 4000
    for _ in range(draws):
        first, second = _far_apart(points, 2, source).tolist()
        found[first, second] += 1 / draws
    assert (found - expected).abs().max() < 0.02
    # Three of four, drawn in a batch with rejection: the last two given the first.
    third = torch.zeros(4)
    for _ in range(draws):
        chosen = set(_far_apart(points, 3, source).tolist())
        third[({0, 1, 2, 3} - chosen).pop()] += 1
    left = torch.zeros(4)
    for first in range(4):
        for second in range(4):
            if first == second:
                continue
            nearest = torch.minimum(squared[first], squared[second])
            for last in {0, 1, 2, 3} - {first, second}:
                missing = ({0, 1, 2, 3} - {first, second, last}).pop()
                left[missing] += expected[first, second] * nearest[last] / nearest.sum()
    assert (third / draws - left).abs().max() < 0.03


def test_far_apart_starts_are_as_good_as_scikit_learns_and_better_than_even_ones():
    rows = blobs(n=4000, d=8, k=150)

    def objective(start):
        return float(assign(rows, start)[1].square().mean())

    ours = [objective(rows[_far_apart(rows, 150, generator(s))]) for s in range(5)]
    # With one trial each, as k-means++ was published; by default scikit-learn takes the best
    theirs = []
    for seed in range(5):
        start, _ = kmeans_plusplus(rows.numpy(), 150, random_state=seed, n_local_trials=1)
        theirs.append(objective(torch.from_numpy(start)))
    even = [objective(rows[torch.randperm(4000, generator=generator(s))[:150]]) for s in range(5)]
    assert np.mean(ours) == pytest.approx(np.mean(theirs), rel=0.08)
    assert np.mean(ours) < 0.9 * np.mean(even)
    found = KMeans(k=150, start="k-means++", iterations=3)(rows)
    assert found.objective[0] < 0.95 * np.mean(even)


def test_rows_that_hardly_differ_still_give_k_distinct_starts():
    rows = torch.ones(50, 3) + 1e-7 * torch.arange(50)[:, None]
    distinct = torch.unique(rows, dim=0)
    chosen = _far_apart(distinct, len(distinct), generator())
    assert len(set(chosen.tolist())) == len(distinct)


def test_the_best_of_several_starts_is_kept():
    rows = blobs(n=400, d=2, k=9, seed=3)
    once = [KMeans(k=9)(rows, generator=generator(s)).objective[-1] for s in range(6)]
    assert max(once) > 1.05 * min(once)  # so that there is something to choose
    best = KMeans(k=9, redo=10)(rows, generator=generator(0))
    assert best.objective[-1] <= once[0]
    assert best.objective[-1] < max(once)


def test_a_tolerance_ends_it_early():
    rows = blobs(n=2000, k=40)
    full = KMeans(k=30, iterations=50)(rows)
    early = KMeans(k=30, iterations=50, tolerance=0.01)(rows)
    steps = [1 - b / a for a, b in zip(full.objective, full.objective[1:], strict=False)]
    stop = next(i for i, step in enumerate(steps) if step < 0.01)
    assert len(early.objective) == stop + 3  # its own two figures, and the final one
    assert early.objective[:-1] == full.objective[: stop + 2]


def test_a_sample_moves_the_centroids_and_all_rows_are_labelled():
    rows = blobs(n=6000, d=4, k=10)
    sampled = KMeans(k=10, rows_per_centroid=50, start="k-means++")(rows)
    assert len(sampled.labels) == 6000
    assert torch.equal(sampled.labels, assign(rows, sampled.centroids)[0])
    assert int(sampled.sizes.sum()) == 6000
    everything = KMeans(k=10, start="k-means++")(rows)
    assert sampled.objective[-1] == pytest.approx(everything.objective[-1], rel=0.1)
    assert sampled.objective[-1] != everything.objective[-1]


@pytest.mark.parametrize("kind", ["float16", "float32", "float64"])
def test_rows_in_a_mapped_file_are_read_where_they_are(tmp_path, kind):
    rows = blobs(n=500).numpy().astype(kind)
    np.save(tmp_path / "rows.npy", rows)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    assert torch.equal(KMeans(k=7)(mapped).labels, KMeans(k=7)(rows.astype(np.float32)).labels)
    assert Rows.of(mapped).source.data_ptr() == mapped.ctypes.data  # no copy
    assert np.array_equal(mapped, rows)


def test_blocks_hold_all_rows_in_order():
    rows = blobs(n=103)
    read = Rows.of(rows.numpy().astype(np.float16))
    parts = list(read.blocks(10))
    assert [place.start for place, _ in parts] == list(range(0, 103, 10))
    assert torch.equal(torch.cat([block for _, block in parts]), rows.half().float())
    assert torch.equal(read.at(torch.tensor([102, 0])), rows.half().float()[[102, 0]])


def test_one_group_is_the_mean():
    rows = blobs()
    clusters = KMeans(k=1)(rows)
    torch.testing.assert_close(clusters.centroids[0], rows.mean(dim=0))
    assert clusters.margins.isinf().all()
    assert KMeans(k=1).fit(rows.numpy()).predict(rows.numpy()).tolist() == [0] * len(rows)


def test_how_it_was_searched_is_told():
    assert KMeans(k=3)(blobs()).search == "float32 products on cpu"


def test_rows_that_are_not_finite_are_named():
    rows = blobs()
    rows[[5, 17, 300], 2] = torch.nan
    with pytest.raises(NumericsError, match=r"3 of 600 rows .* \(rows 5, 17, 300\)"):
        checked(rows, World())
    rows[400:] = torch.inf
    with pytest.raises(NumericsError, match=r"203 of 600 .*\(rows 5, 17, 300, 400, 401, \.\.\.\)"):
        checked(rows, World())
    half = torch.full((20, 2), 1e5).half()  # overflows to infinity
    with pytest.raises(NumericsError, match="20 of 20"):
        KMeans(k=2)(half)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (torch.ones(5), r"shape \(5,\)"),
        (torch.ones(5, 2, 2), "matrix"),
        (torch.ones(5, 2, dtype=torch.bool), "rows of bool"),
        (torch.ones(5, 2, dtype=torch.complex64), "rows of complex64"),
        (torch.ones(5, 0), r"shape \(5, 0\)"),
        (torch.ones(5, 2).to_sparse(), "sparse float32.*give a dense matrix"),
        ([[1.0, 2.0], [3.0]], "no matrix"),
    ],
)
def test_what_is_no_matrix_of_numbers(rows, words):
    with pytest.raises(UsageError, match=words):
        KMeans(k=2)(rows)


@pytest.mark.parametrize(
    "setting", [{"redo": 0}, {"iterations": -1}, {"tolerance": -1.0}, {"rows_per_centroid": 0}]
)
def test_settings_out_of_range(setting):
    with pytest.raises(UsageError, match=f"{next(iter(setting))} = .*at least"):
        KMeans(k=2, **setting)(blobs())


def test_integers_one_column_and_constant_columns_are_fine():
    rows = torch.arange(30)[:, None] // 10
    assert KMeans(k=3)(rows).objective[-1] == 0
    constant = torch.cat([blobs(), torch.full((600, 3), 7.0)], dim=1)
    assert torch.equal(KMeans(k=5)(constant).labels, KMeans(k=5)(blobs()).labels)


def test_a_million_rows_to_choose_from_is_the_same_search_in_parts(monkeypatch):
    from deepcluster.clusters import neighbours

    rows = blobs(n=900, k=300)
    whole = KMeans(k=300, iterations=4)(rows)
    monkeypatch.setattr(neighbours, "_ROWS", 70)
    monkeypatch.setattr(neighbours, "_SCORES", {"cpu": 70 * 40})
    parts = KMeans(k=300, iterations=4)(rows)
    assert torch.equal(whole.labels, parts.labels)
    assert torch.equal(whole.centroids, parts.centroids)


def test_like_scikit_learn_with_an_offset_a_thousand_times_the_spread():
    rows = blobs(n=1500, d=16, k=20) + 3000
    start = rows[:20]
    ours = KMeans(k=20, iterations=10)(rows, centroids=start)
    exact = Reference(20, init=start.double().numpy(), n_init=1, max_iter=10, tol=0)
    theirs = exact.fit(rows.double().numpy())
    assert ours.objective[-1] == pytest.approx(theirs.inertia_ / len(rows), rel=1e-3)
    assert (ours.labels.numpy() == theirs.labels_).mean() > 0.995


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"metric": "cosine"}, "metric = 'cosine': use euclidean or spherical"),
        ({"start": "Random"}, "use random or k-means"),
        ({"precision": "fp8"}, "use float32 or tf32 or bfloat16"),
        ({"k": 3.0}, "k = 3.0: a whole number"),
        ({"k": "3"}, "whole number"),
        ({"redo": 1.5}, "whole number"),
    ],
)
def test_mistyped_settings_are_refused(setting, words):
    with pytest.raises(UsageError, match=words):
        KMeans(**{"k": 2, **setting})(blobs())


@pytest.mark.parametrize("factor", [1e-20, 1e20])
def test_directions_of_very_short_and_very_long_rows(factor):
    rows = blobs()
    expected = KMeans(k=12, metric="spherical")(rows, centroids=rows[:12]).labels
    found = KMeans(k=12, metric="spherical")(rows * factor, centroids=rows[:12]).labels
    assert (found == expected).float().mean() > 0.99


@pytest.mark.parametrize("factor", [1e-39, 1e37])
def test_far_apart_starts_of_extreme_rows(factor):
    rows = blobs() * factor
    assert KMeans(k=9, start="k-means++", iterations=2)(rows).count == 9


def test_distances_between_tight_clusters_far_apart_keep_their_digits():
    source = np.random.default_rng(0)
    centres = 1000 * source.normal(size=(5, 6))
    rows = centres[np.arange(200) % 5] + 0.01 * source.normal(size=(200, 6))
    model = KMeans(k=20).fit(rows)
    exact = np.linalg.norm(
        rows.astype(np.float32).astype(float)[:, None] - model.cluster_centers_[None], axis=2
    )
    assert np.allclose(model.transform(rows), exact, rtol=1e-5)
    assert np.array_equal(model.transform(rows).argmin(axis=1), model.predict(rows))


def test_arrays_that_run_backwards_or_are_of_the_other_byte_order():
    rows = blobs().numpy()
    expected = KMeans(k=5)(rows).labels.numpy()
    assert np.array_equal(KMeans(k=5)(rows.astype(">f4")).labels, expected)
    backwards = KMeans(k=5)(rows[::-1], centroids=torch.from_numpy(rows[:5]))
    assert np.array_equal(
        backwards.labels.numpy()[::-1],
        KMeans(k=5)(rows, centroids=torch.from_numpy(rows[:5])).labels,
    )
    with pytest.raises(UsageError, match="rows of <U1 cannot be grouped"):
        KMeans(k=2)(np.array([["a", "b"]]))


def test_centroids_that_are_no_numbers():
    with pytest.raises(UsageError, match="no matrix of numbers"):
        KMeans(k=3)(blobs(), centroids="abc")


def test_centroids_may_be_parameters():
    start = torch.nn.Parameter(blobs()[:5])
    assert KMeans(k=5)(blobs(), centroids=start).count == 5


def test_few_centroids_need_little_memory():
    from deepcluster.clusters.neighbours import Prepared

    assert Prepared.of(torch.randn(2, 1)).room().numel() <= 2**21


def test_opposite_directions_leave_the_centroid_a_direction():
    rows = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    found = KMeans(k=1, metric="spherical")(rows)
    assert float(found.centroids.norm()) == pytest.approx(1)


def test_few_of_many_are_drawn_once_each_and_evenly():
    drawn = torch.stack([some_of(100_000, 20_000, generator(seed)) for seed in range(20)])
    assert all(len(set(some.tolist())) == 20_000 for some in drawn)
    assert torch.equal(drawn[3], some_of(100_000, 20_000, generator(3)))
    # A tenth of the numbers is drawn 40,000 times in all, with a deviation of about 180.
    tenths = torch.bincount(drawn.flatten() // 10_000, minlength=10)
    assert (tenths - 40_000).abs().max() < 1_000
    first = torch.bincount(drawn[:, :2000].flatten() // 50_000, minlength=2)
    assert (first - 20_000).abs().max() < 600  # the order is random, too
    assert sorted(some_of(7, 9, generator()).tolist()) == list(range(7))
