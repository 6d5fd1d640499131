"""Maps of features: what lies near each other stays near, and nothing hides anything."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from deepcluster.visuals import feature_map
from deepcluster.visuals.feature_map import SIDE, cells_of, colour, drawn, mapped


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 120),
    st.sampled_from(["spread", "heap", "line", "point"]),
    st.integers(0, 1000),
)
def test_every_image_has_a_cell_to_itself(count: int, kind: str, seed: int):
    randomness = np.random.default_rng(seed)
    places = randomness.normal(size=(count, 2))
    if kind == "heap":
        places = np.round(places)
    elif kind == "line":
        places[:, 1] = 3
    elif kind == "point":
        places[:] = 7
    cells = cells_of(places)
    assert cells.shape == (count, 2)
    assert cells.min() >= 0
    assert len({tuple(cell) for cell in cells.tolist()}) == count
    assert np.array_equal(cells, cells_of(places))


def test_places_that_are_cells_already_stay_where_they_are():
    grid = np.stack(np.meshgrid(np.arange(6), np.arange(6)), -1).reshape(-1, 2).astype(float)
    cells = cells_of(grid)
    # One scale for both axes, and the order of rows and columns kept.
    for axis in (0, 1):
        by_place = [cells[grid[:, axis] == value, axis] for value in range(6)]
        assert all(len(set(same.tolist())) == 1 for same in by_place)
        assert (np.diff([same[0] for same in by_place]) > 0).all()


def test_far_groups_stay_apart():
    randomness = np.random.default_rng(0)
    near, far = randomness.normal(size=(2, 100, 2))
    cells = cells_of(np.concatenate([near, far + 40]))
    # Together they need more room than they have: each heap spreads, and neither passes the middle
    # of the other.
    along = cells.sum(axis=1)
    assert along[:100].max() < along[100:].mean() - 5
    assert along[100:].min() > along[:100].mean() + 5


def test_the_map_is_the_same_for_the_same_seed_and_keeps_neighbours(monkeypatch):
    monkeypatch.setattr(feature_map, "method", lambda: "t-SNE")
    randomness = np.random.default_rng(0)
    centres = randomness.normal(size=(3, 16))
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    groups = np.arange(60) % 3
    rows = (centres[groups] + randomness.normal(0, 0.05, (60, 16))).astype(np.float32)
    places = mapped(rows, seed=1)
    assert np.array_equal(places, mapped(rows, seed=1))
    distances = np.linalg.norm(places[:, None] - places[None], axis=2) + 1e9 * np.eye(60)
    assert (groups[distances.argmin(axis=1)] == groups).all()


def test_the_smallest_map(monkeypatch):
    monkeypatch.setattr(feature_map, "method", lambda: "t-SNE")
    rows = np.eye(feature_map.LEAST, dtype=np.float32)
    assert np.isfinite(mapped(rows, seed=0)).all()


def test_every_picture_is_on_the_map_in_the_colour_of_its_group():
    randomness = np.random.default_rng(3)
    count = 40
    cells = cells_of(randomness.normal(size=(count, 2)))
    shades = [(6 * number, 255 - 6 * number, 77) for number in range(count)]
    pictures = [Image.new("RGB", (50, 70), shade) for shade in shades]
    page = np.asarray(drawn(pictures, cells, np.arange(count)))
    for number, shade in enumerate(shades):
        shown = (page == shade).all(axis=2)
        assert shown.sum() == SIDE * SIDE  # whole: nothing lies over it
        rows, columns = np.nonzero(shown)
        frame = page[rows.min() - 1, columns.min() - 1]
        assert tuple(frame) == colour(number)


def test_colours_of_neighbouring_groups_differ():
    colours = np.array([colour(number) for number in range(24)], dtype=int)
    apart = np.abs(colours[:, None] - colours[None]).sum(axis=2) + 999 * np.eye(24, dtype=int)
    assert apart.min() > 25
    assert colour(-1) == (200, 200, 200)


def test_a_umap_that_cannot_be_loaded_is_none(monkeypatch):
    monkeypatch.setitem(sys.modules, "umap", None)  # so that importing it fails
    assert feature_map.method() == "t-SNE"


@pytest.mark.skipif(feature_map.method() != "UMAP", reason="umap-learn is not installed")
def test_umap_is_the_same_for_the_same_seed():
    rows = np.random.default_rng(0).normal(size=(60, 8)).astype(np.float32)
    assert np.array_equal(mapped(rows, 0), mapped(rows, 0))
