"""A head that outlives its clusters."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from deepcluster.networks import fresh_head
from deepcluster.runtime.run_folder import RunFolder
from deepcluster.runtime.seeds import generator
from deepcluster.runtime.world import World
from deepcluster.training.carried_head import carry_over
from deepcluster.training.course import Course
from deepcluster.training.optimizers import Optimization, momenta, restore_momenta

OPTIMIZATION = Optimization(head="matched", head_momentum=0.9)


@pytest.fixture
def course(tmp_path, tiny):
    """A run after an epoch on three clusters of two images each."""
    network = tiny(3)
    made = Course(
        RunFolder(tmp_path), network, OPTIMIZATION.for_trunk(network), World(), keeps_head=True
    )
    made.labels = np.array([0, 0, 1, 1, 2, 2])
    made.head_momenta = {
        "0": torch.arange(3.0)[:, None].expand(3, 16).clone(),
        "1": torch.arange(3.0),
    }
    return made


def new_head(count: int) -> torch.nn.Linear:
    return fresh_head(16, count, generator(1, "head"))


def test_rows_follow_their_images_to_renamed_clusters(course):
    last = course.network.head.weight.detach().clone()
    head = new_head(3)
    assert carry_over(course, head, torch.tensor([2, 2, 0, 0, 1, 1])) == 3
    assert torch.equal(head.weight, last[[1, 2, 0]])
    assert course.head_momenta["1"].tolist() == [1, 2, 0]
    assert torch.equal(course.head_momenta["0"][:, 0], torch.tensor([1.0, 2.0, 0.0]))


def test_a_cluster_that_continues_none_has_a_fresh_row(course):
    last, fresh = course.network.head.weight.detach().clone(), new_head(4).weight
    head = new_head(4)
    # The images of the last cluster 0 are parted: its row goes with one of them.
    assert carry_over(course, head, torch.tensor([0, 3, 1, 1, 2, 2])) == 3
    assert torch.equal(head.weight[1:3], last[1:])
    alone = [row for row in (0, 3) if torch.equal(head.weight[row], fresh[row])]
    assert len(alone) == 1
    assert course.head_momenta["0"][alone].abs().sum() == 0


def test_fewer_clusters_than_before(course):
    last = course.network.head.weight.detach().clone()
    head = new_head(2)
    assert carry_over(course, head, torch.tensor([1, 1, 1, 0, 0, 0])) == 2
    assert torch.equal(head.weight, last[[2, 0]])
    assert course.head_momenta["1"].shape == (2,)


def test_images_without_a_label_have_no_say(course):
    course.labels = np.array([0, -1, -1, 1, 2, 2])
    head = new_head(3)
    last = course.network.head.weight.detach().clone()
    assert carry_over(course, head, torch.tensor([1, 0, 0, 0, -1, 2])) == 3
    assert torch.equal(head.weight, last[[1, 0, 2]])


def test_the_first_head_of_all_is_fresh(course):
    course.network.head = torch.nn.Identity()
    head = new_head(3)
    assert carry_over(course, head, torch.tensor([0, 1, 2, 0, 1, 2])) == 0
    assert torch.equal(head.weight, new_head(3).weight)


def test_what_is_carried_is_kept_between_epochs(course, tiny, tmp_path):
    course.complete(0, {"epoch": 0, "seconds": {}})
    course.settle()
    network = tiny(2)
    after = Course(
        RunFolder(tmp_path), network, OPTIMIZATION.for_trunk(network), World(), keeps_head=True
    )
    after.take_up()
    assert torch.equal(after.network.head.weight, course.network.head.weight)
    optimizer = OPTIMIZATION.for_head(after.network)
    restore_momenta(optimizer, after.head_momenta)
    assert momenta(optimizer)["1"].tolist() == [0, 1, 2]
