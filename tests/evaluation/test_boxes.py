"""Boxes: offsets lead back, flips undo themselves."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from deepcluster.evaluation.boxes import DEVIATIONS, flipped, moved, offsets, within

side = st.floats(1, 500)
corner = st.floats(-50, 900)
box = st.tuples(corner, corner, side, side).map(lambda b: (b[0], b[1], b[0] + b[2], b[1] + b[3]))


def test_offsets_by_hand():
    # A region of 10 x 20 around (5, 10), its object of 20 x 20 around (10, 12).
    found = offsets(torch.tensor([[0.0, 0, 10, 20]]), torch.tensor([[0.0, 2, 20, 22]]))
    raw = torch.tensor([[0.5, 0.1, float(np.log(2)), 0.0]])
    torch.testing.assert_close(found, raw / torch.tensor(DEVIATIONS))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(box, box), min_size=1, max_size=5))
def test_offsets_lead_from_the_region_to_the_box(pairs):
    regions, boxes = (
        torch.tensor(column, dtype=torch.float64) for column in zip(*pairs, strict=True)
    )
    growth = (boxes[:, 2:] - boxes[:, :2]) / (regions[:, 2:] - regions[:, :2])
    kept = (growth < 60).all(dim=1)  # beyond that a region is not allowed to grow
    regions, boxes = regions[kept], boxes[kept]
    found = moved(regions, offsets(regions, boxes)[:, None])[:, 0]
    torch.testing.assert_close(found, boxes, rtol=1e-9, atol=1e-6)


def test_every_class_has_its_own_offsets():
    region = torch.tensor([[0.0, 0, 10, 10]])
    by = torch.zeros(1, 2, 4)
    by[0, 1, 0] = 1 / DEVIATIONS[0]
    assert moved(region, by).tolist() == [[[0, 0, 10, 10], [10, 0, 20, 10]]]


def test_a_wild_offset_stays_finite():
    found = moved(torch.tensor([[0.0, 0, 10, 10]]), torch.full((1, 1, 4), 1e4))
    assert found.isfinite().all()


def test_flips_undo_themselves_and_cover_the_mirrored_pixels():
    boxes = np.array([[0, 3, 4, 9.0], [2, 0, 10, 1]])
    assert flipped(boxes, 10).tolist() == [[6, 3, 10, 9], [0, 0, 8, 1]]
    assert (flipped(flipped(boxes, 10), 10) == boxes).all()


def test_boxes_are_cut_to_the_image():
    found = within(torch.tensor([[[-3.0, 2, 30, 40]]]), 20, 10)
    assert found.tolist() == [[[0, 2, 20, 10]]]
