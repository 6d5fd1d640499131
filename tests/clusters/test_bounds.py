"""Rows passed over keep their centroid: the same groups as when every row is searched."""

import pytest
import torch

from deepcluster.clusters import KMeans
from deepcluster.clusters.bounds import Bounds
from deepcluster.clusters.rows import Rows
from deepcluster.clusters.search import ExactSearch
from deepcluster.runtime.world import World


def rows_of(kind):
    source = torch.Generator().manual_seed(0)
    centres = 3 * torch.randn(90, 12, generator=source)
    rows = centres[torch.randint(90, (6000,), generator=source)]
    rows += torch.randn(6000, 12, generator=source)
    match kind:
        case "offset":
            return rows + 1e4
        case "tiny":
            return rows * 1e-25
        case "huge":
            return rows * 1e17
        case "duplicates":
            return rows[torch.randint(300, (6000,), generator=source)]
        case "on a grid":  # many ties
            return rows.round()
    return rows


@pytest.fixture
def watched(monkeypatch):
    """How many rows were in question, search by search."""
    seen = []
    fastest, in_question = Bounds.fastest, Bounds.in_question

    def fastest_seen(bounds, prepared, doubted):
        seen.append(int(doubted.sum()))
        return fastest(bounds, prepared, doubted)

    def in_question_seen(bounds, *about):
        still = in_question(bounds, *about)
        seen[-1] -= int((~still).sum())
        return still

    monkeypatch.setattr(Bounds, "fastest", fastest_seen)
    monkeypatch.setattr(Bounds, "in_question", in_question_seen)
    return seen


@pytest.mark.parametrize("metric", ["euclidean", "spherical"])
@pytest.mark.parametrize("kind", ["plain", "offset", "tiny", "huge", "duplicates", "on a grid"])
def test_the_same_groups_as_when_every_row_is_searched(kind, metric, watched, monkeypatch):
    rows = rows_of(kind)
    kmeans = KMeans(k=80, iterations=25, metric=metric, redo=2)
    quick = kmeans(rows)
    assert min(watched) < len(rows)
    monkeypatch.setattr(Bounds, "renewed", lambda bounds, centroids, labels: labels > -2)
    monkeypatch.setattr(Bounds, "fastest", lambda bounds, prepared, doubted: None)
    plain = kmeans(rows)
    assert torch.equal(quick.labels, plain.labels)
    assert torch.equal(quick.centroids, plain.centroids)
    assert quick.objective == pytest.approx(plain.objective)


def test_most_rows_are_passed_over_in_the_end(watched):
    KMeans(k=80, iterations=25)(rows_of("plain"))
    assert watched[0] == 6000
    assert watched[-1] < 2000


def test_a_centroid_that_jumps_is_noticed():
    """Towards the rows of another, from far away: no bound on the others' moves tells of it."""
    source = torch.Generator().manual_seed(0)
    rows = torch.randn(4000, 8, generator=source)
    first = rows[:100].clone()
    search = ExactSearch(Rows.of(rows), World())
    search.totals(first)
    for jump in range(20):
        first[jump] = rows[-1 - jump] + 0.01
        first[50:] += 1e-4
        known = search.totals(first.clone())
        anew = ExactSearch(Rows.of(rows), World()).totals(first)
        assert torch.equal(known.sizes, anew.sizes)
        torch.testing.assert_close(known.means, anew.means, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("far", [1.0, 1e8, 1e12])
def test_a_far_row_that_leaves_a_cluster_leaves_no_rounding_behind(far, monkeypatch):
    rows = torch.randn(600, 6, generator=torch.Generator().manual_seed(0))
    rows[7] *= far
    kmeans = KMeans(k=9, redo=4)
    found = kmeans(rows)
    plain, totals = ExactSearch, ExactSearch.totals
    monkeypatch.setattr(
        ExactSearch, "totals", lambda _, centroids: totals(plain(Rows.of(rows), World()), centroids)
    )
    anew = kmeans(rows)
    assert torch.equal(found.labels, anew.labels)
    assert torch.equal(found.centroids, anew.centroids)


def test_bounds_hold_after_many_steps_too_small_for_their_last_digit():
    """A centroid that comes nearer by one last digit a thousand times."""
    rows = torch.linspace(-0.7502, -0.7498, 4000)[:, None]
    centroids = torch.tensor([[-1.95], [0.45]])
    search = ExactSearch(Rows.of(rows), World())
    for step in range(1500):
        centroids[1] = torch.nextafter(centroids[1], torch.tensor(-10.0))
        known = search.totals(centroids)
        if step % 100 == 99:
            anew = ExactSearch(Rows.of(rows), World()).totals(centroids)
            assert torch.equal(known.sizes, anew.sizes)
