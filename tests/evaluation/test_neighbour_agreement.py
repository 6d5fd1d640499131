"""How often an image's nearest neighbour is of its own kind, by hand."""

import math

import pytest
import torch

from deepcluster.evaluation import neighbour_agreement as module
from deepcluster.evaluation.neighbour_agreement import neighbour_agreement


def on_circle(*degrees: float) -> torch.Tensor:
    angles = [math.radians(angle) for angle in degrees]
    return torch.tensor([[math.cos(angle), math.sin(angle)] for angle in angles])


# Nearest: 0 <-> 10, 25 -> 10, 180 <-> 200.
ROWS = on_circle(0, 10, 25, 180, 200)


def test_five_rows_by_hand():
    assert neighbour_agreement(ROWS, torch.tensor([0, 0, 0, 1, 1])) == 1.0
    assert neighbour_agreement(ROWS, torch.tensor([0, 0, 1, 1, 1])) == pytest.approx(4 / 5)
    assert neighbour_agreement(ROWS, torch.tensor([0, 1, 0, 1, 0])) == 0.0


def test_a_row_is_not_its_own_neighbour():
    assert neighbour_agreement(on_circle(0, 90), torch.tensor([0, 1])) == 0.0


def test_rows_that_may_not_be_paired_look_further():
    pairs = torch.zeros(5, 5, dtype=torch.bool)
    pairs[0, 1] = pairs[1, 0] = True  # now 0 -> 25 and 10 -> 25
    classes = torch.tensor([0, 0, 1, 2, 2])
    assert neighbour_agreement(ROWS, classes) == pytest.approx(4 / 5)
    assert neighbour_agreement(ROWS, classes, lambda block: pairs[block]) == pytest.approx(2 / 5)


def test_a_row_that_may_be_paired_with_none_agrees_with_none():
    nobody = torch.ones(5, 5, dtype=torch.bool)
    assert neighbour_agreement(ROWS, torch.zeros(5), lambda block: nobody[block]) == 0.0


def test_the_size_of_the_blocks_does_not_matter(monkeypatch):
    source = torch.Generator().manual_seed(0)
    rows = torch.nn.functional.normalize(torch.randn(100, 4, generator=source))
    classes = torch.randint(3, (100,), generator=source)
    pairs = torch.rand(100, 100, generator=source) < 0.3
    whole = neighbour_agreement(rows, classes, lambda block: pairs[block])
    monkeypatch.setattr(module, "_BLOCK", 7)
    assert neighbour_agreement(rows, classes, lambda block: pairs[block]) == whole
