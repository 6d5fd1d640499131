"""Whitening: against scikit-learn, its laws, and what it does with poor features."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import decomposition

from deepcluster.features import Features, Looking, Whitening, extract
from deepcluster.features.moments import Moments
from deepcluster.features.whiten import PCA, fitted
from deepcluster.runtime.errors import DimensionsShrunk, NumericsError, RowsExcluded
from deepcluster.runtime.world import World

ALONE = World()


def fit(rows: torch.Tensor, dimensions: int) -> PCA:
    moments = Moments(rows.shape[1], rows.device)
    moments.add(rows)
    return fitted(moments, dimensions, ALONE)


@pytest.fixture
def whitened(lookup):
    """The features of images whose raw features are the given rows."""

    def whiten(rows: torch.Tensor, dimensions: int, keep: str = "device") -> Features:
        trunk, images = lookup(rows)
        return Whitening(dimensions)(extract(trunk, images, ALONE, Looking(keep=keep)), ALONE)

    return whiten


def test_as_scikit_learn_does_up_to_sign(mixed_rows):
    rows = mixed_rows(600, 20, mean=5.0)
    ours = fit(rows, 8).whitened(rows).numpy()
    reference = decomposition.PCA(8, whiten=True, svd_solver="full").fit(rows.double().numpy())
    theirs = reference.transform(rows.double().numpy())
    theirs *= np.sqrt(600 / 599)  # it divides by N - 1
    signs = np.sign((ours * theirs).sum(axis=0))
    np.testing.assert_allclose(ours, theirs * signs, atol=2e-4)


@pytest.mark.parametrize("keep", ["device", "recompute"])
def test_without_pca_rows_are_as_the_network_gives_them_of_unit_length(lookup, mixed_rows, keep):
    rows = mixed_rows(200, 12, mean=5.0)
    trunk, images = lookup(rows)
    raw = extract(trunk, images, ALONE, Looking(keep=keep))
    features = Whitening(kind="none")(raw, ALONE)
    expected = (rows / rows.norm(dim=1, keepdim=True)).numpy()
    np.testing.assert_allclose(features.matrix.numpy(), expected, atol=2e-3)  # kept as float16
    np.testing.assert_allclose(features.pca(rows).numpy(), expected, atol=1e-5)


@given(seed=st.integers(0, 10**6), width=st.integers(2, 12), mean=st.sampled_from([0.0, 1.0, 1e3]))
@settings(deadline=None, max_examples=30)
def test_the_whitened_covariance_is_the_identity(seed, width, mean):
    source = torch.Generator().manual_seed(seed)
    basis = torch.linalg.qr(torch.randn(width, width, generator=source))[0]
    rows = mean + torch.randn(400, width, generator=source) * torch.logspace(0, -2, width) @ basis
    pca = fit(rows, width)
    covariance = np.cov(pca.whitened(rows).double().numpy().T, bias=True)
    np.testing.assert_allclose(covariance.reshape(width, width), np.eye(width), atol=0.02)


@given(seed=st.integers(0, 10**6), shift=st.floats(-100, 100), stretch=st.floats(0.01, 100))
@settings(deadline=None, max_examples=20)
def test_shifting_and_stretching_the_features_changes_nothing(seed, shift, stretch):
    rows = torch.randn(300, 6, generator=torch.Generator().manual_seed(seed))
    moved = (stretch * rows.double() + shift).float()
    torch.testing.assert_close(fit(moved, 6)(moved), fit(rows, 6)(rows), atol=0.02, rtol=0)


def test_rows_have_unit_length(whitened, mixed_rows):
    matrix = whitened(mixed_rows(400, 16), 12).matrix
    torch.testing.assert_close(matrix.norm(dim=1), torch.ones(400))
    assert matrix.shape == (400, 12)


def test_an_eigenvectors_sign_is_that_of_its_largest_component(mixed_rows):
    projection = fit(mixed_rows(400, 10), 5).projection
    largest = projection.gather(0, projection.abs().argmax(dim=0, keepdim=True))
    assert bool((largest > 0).all())


def test_a_row_at_the_mean_stays_finite(whitened):
    rows = torch.randn(199, 6, generator=torch.Generator().manual_seed(0))
    rows = torch.cat([rows, -rows, torch.zeros(1, 6)])
    matrix = whitened(rows, 6).matrix
    assert bool(matrix.isfinite().all())


def test_the_exact_mean_becomes_zero():
    rows = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]).repeat(20, 1)
    assert not fit(rows, 2)(torch.zeros(1, 2)).any()


@pytest.mark.parametrize("width", [24, 128])
@pytest.mark.parametrize("largest", [1.0, 30.0])
@pytest.mark.parametrize("keep", ["device", "recompute"])
def test_only_independent_directions_are_kept(whitened, width, largest, keep):
    source = torch.Generator().manual_seed(0)
    basis = torch.randn(5, width, generator=source)
    basis[0] *= largest
    rows = torch.randn(1000, 5, generator=source) @ basis
    with pytest.warns(DimensionsShrunk, match="5 dimensions instead of 20: .* 5 independent"):
        features = whitened(rows, 20, keep)
    assert features.matrix.shape == (1000, 5)
    assert bool(features.matrix.isfinite().all())


def test_rounding_in_few_active_dimensions_is_no_direction(whitened):
    source = torch.Generator().manual_seed(0)
    rows = torch.zeros(2000, 256)
    rows[:, :25] = torch.randn(2000, 4, generator=source) @ torch.randn(4, 25, generator=source)
    with pytest.warns(DimensionsShrunk, match="4 independent"):
        assert whitened(rows, 20).matrix.shape == (2000, 4)


@pytest.mark.parametrize(("count", "kept"), [(100, 8), (159, 8), (180, 9), (400, 20)])
def test_few_images_bear_few_dimensions(whitened, mixed_rows, count, kept):
    with pytest.warns(DimensionsShrunk, match=f"{count} images bear one for every 20"):
        assert whitened(mixed_rows(count, 40), 32).matrix.shape == (count, kept)


@pytest.mark.parametrize("rank", [59, 3])
def test_few_rows_in_many_dimensions_are_whitened_as_many_are(rank):
    """Their directions are found in a smaller space, and are those of the whole covariance."""
    source = torch.Generator().manual_seed(0)
    basis = torch.randn(rank, 400, generator=source) * torch.logspace(0, -2, rank)[:, None]
    rows = (torch.randn(60, rank, generator=source) @ basis + 7).double()
    with pytest.warns(DimensionsShrunk, match="bear one" if rank > 8 else "3 independent"):
        ours = fit(rows, 16)
    centred = rows - rows.mean(dim=0)
    values, vectors = torch.linalg.eigh(centred.T @ centred / 60)
    kept = ours.projection.shape[1]
    whole = (vectors / values.sqrt()).flip(1)[:, :kept]
    assert kept == min(rank, 8)
    signs = (whole * ours.projection).sum(dim=0).sign()
    torch.testing.assert_close(ours.projection.double(), whole * signs, rtol=1e-6, atol=1e-7)
    assert torch.equal(fit(rows, kept).projection, ours.projection)  # drawn the same every time


def test_enough_images_bear_what_was_asked(whitened, mixed_rows):
    assert whitened(mixed_rows(640, 40), 32).matrix.shape == (640, 32)


@pytest.mark.parametrize("value", [0.0, 3.0, -1e6])
@pytest.mark.parametrize("keep", ["device", "recompute"])
def test_constant_features_are_refused(whitened, value, keep):
    with pytest.raises(NumericsError, match="no information"):
        whitened(torch.full((300, 8), value), 4, keep)


def test_few_rows_that_are_not_finite_are_left_out_and_keep_their_place(whitened, mixed_rows):
    rows = mixed_rows(400, 10)
    clean = whitened(rows[torch.arange(400) != 77], 8)
    rows[77, 3] = torch.nan
    with pytest.warns(RowsExcluded, match="1 images"):
        features = whitened(rows, 8)
    assert features.finite.shape == (400,)
    assert (~features.finite).nonzero().flatten().tolist() == [77]
    assert features.matrix.shape == (399, 8)
    torch.testing.assert_close(features.matrix, clean.matrix, atol=0.02, rtol=0)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("keep", ["device", "recompute"])
def test_nothing_but_finite_rows_leaves_the_room(whitened, mixed_rows, bad, keep):
    rows = mixed_rows(300, 10)
    rows[0], rows[299, 9] = bad, bad
    with pytest.warns(RowsExcluded, match="2 images"):
        features = whitened(rows, 8, keep)
    assert bool(features.matrix.isfinite().all())
    assert len(features.matrix) == 298


@pytest.mark.parametrize("keep", ["device", "recompute"])
def test_many_rows_that_are_not_finite_are_refused(whitened, mixed_rows, keep):
    rows = mixed_rows(300, 10)
    rows[100:104] = torch.nan
    with pytest.raises(NumericsError, match="4 of 300 images"):
        whitened(rows, 8, keep)


def test_no_finite_row_at_all_is_refused(whitened):
    with pytest.raises(NumericsError, match="no image gave a finite feature"):
        whitened(torch.full((50, 4), torch.nan), 2)


def test_features_at_the_edge_of_float32_are_still_told_apart(whitened, mixed_rows):
    rows = mixed_rows(300, 10)
    torch.testing.assert_close(
        whitened(1e30 * rows, 8, "recompute").matrix, whitened(rows, 8).matrix, atol=0.02, rtol=0
    )


def test_the_saved_map_gives_the_same_features_from_raw_rows(whitened, mixed_rows):
    rows = mixed_rows(500, 12, mean=40.0)
    features = whitened(rows, 8)
    torch.testing.assert_close(features.pca(rows), features.matrix, atol=0.01, rtol=0)
