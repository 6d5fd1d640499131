"""What the last head knew, carried over to the clusters that continue its own."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from deepcluster.clusters import Contingency
from deepcluster.training.course import Course


def carry_over(course: Course, head: nn.Linear, labels: Tensor) -> int:
    """Give the new head the rows of the last one for the clusters that continue; how many do.

    A cluster continues the one of the last epoch with which the best one-to-one matching pairs it:
    the matching under which most images keep their label. The momentum of each row goes with it.
    The rows of other clusters stay as fresh as they are.

    Args:
        course: Its network has the last head, its labels are the last.
        head: The new one, on the CPU; changed in place.
        labels: The new ones of all images.
    """
    last = course.network.head
    if course.labels is None or not isinstance(last, nn.Linear):
        return 0  # the first epoch
    table = Contingency.of(labels, course.labels)
    partner = torch.from_numpy(table.matching())
    continues = partner >= 0
    now, before = torch.from_numpy(table.labels_a)[continues], partner[continues]

    def moved(old: Tensor, new: Tensor) -> Tensor:
        new[now] = old.detach().cpu()[before]
        return new

    with torch.no_grad():
        for new, old in zip(head.parameters(), last.parameters(), strict=True):
            moved(old, new)
    course.head_momenta = {
        place: moved(momentum, torch.zeros(head.out_features, *momentum.shape[1:]))
        for place, momentum in course.head_momenta.items()
    }
    return len(now)
