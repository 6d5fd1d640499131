from __future__ import annotations

import pytest
import torch

from deepcluster.evaluation.accuracy import Counted, best
from deepcluster.runtime.world import World

CPU = torch.device("cpu")


def test_the_first_guess_and_the_first_five_by_hand():
    falling = torch.tensor([7.0, 6, 5, 4, 3, 2, 1])  # class 0 is the first guess, class 6 the last
    # One layer, images of classes 0, 1, 4 and 5, and two candidates: the second guesses backwards.
    scores = torch.stack([falling, falling.flip(0)]).expand(1, 4, 2, 7)
    counted = Counted(1, 2, CPU)
    counted.add(scores, torch.tensor([0, 1, 4, 5]))
    accuracy = counted.over(World())
    assert accuracy.top1 == [[0.25, 0.0]]  # class 0; of the second it would be class 6
    assert accuracy.top5 == [[0.75, 0.5]]  # not class 5, the sixth guess; of the second 4 and 5
    counted.add(scores[:, :1], torch.tensor([6]))
    accuracy = counted.over(World())
    assert accuracy.top1 == [[0.2, 0.2]]
    assert accuracy.top5 == [[0.6, 0.6]]


def test_of_fewer_classes_than_five_every_guess_counts():
    counted = Counted(2, 1, CPU)
    scores = torch.tensor([[3.0, 2, 1], [1, 2, 3]])[:, None, None].expand(2, 2, 1, 3)
    counted.add(scores, torch.tensor([0, 1]))
    accuracy = counted.over(World())
    assert accuracy.top1 == [[0.5], [0.0]]
    assert accuracy.top5 == [[1.0], [1.0]]


@pytest.mark.parametrize(("values", "place"), [([0.2, 0.7, 0.5], 1), ([0.7, 0.1, 0.7], 0)])
def test_of_equals_the_first_is_the_best(values: list[float], place: int):
    assert best(iter(values)) == place
