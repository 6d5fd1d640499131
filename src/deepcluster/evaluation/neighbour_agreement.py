"""How often an image's nearest neighbour is of its own kind: one number for a feature space."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

_BLOCK = 1024


def neighbour_agreement(
    rows: Tensor,
    classes: Tensor,
    never_paired: Callable[[slice], Tensor] | None = None,
) -> float:
    """The share of rows whose nearest other row has the same class.

    Args:
        rows: Features (n x d); of unit length, so that the nearest is the most aligned.
        classes: The class of each row (n).
        never_paired: For a block of rows, which rows may not count as their neighbours (b x n,
            bool): crops that share pixels would find each other without any learning.
    """
    right = 0
    for start in range(0, len(rows), _BLOCK):
        block = slice(start, min(start + _BLOCK, len(rows)))
        likeness = rows[block] @ rows.T
        likeness[torch.arange(len(likeness)), torch.arange(block.start, block.stop)] = -torch.inf
        if never_paired is not None:
            likeness[never_paired(block)] = -torch.inf
        closest, nearest = likeness.max(dim=1)
        # Where no neighbour is allowed there is none to agree with.
        right += int(((classes[nearest] == classes[block]) & (closest > -torch.inf)).sum())
    return right / len(rows)
