"""Images and their nearest neighbours, as in the paper's figure of retrieved images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Retrieved(NamedTuple):
    """Queries and their nearest images by the untrained and the trained network; image numbers."""

    queries: list[int]
    untrained: list[list[int]]
    trained: list[list[int]]
    among: int
    """How many images there were to choose from."""


def nearest_images(rows: Tensor, queries: Sequence[int], count: int = 3) -> Tensor:
    """(queries x count) the rows most aligned with each query, itself left out.

    Args:
        rows: Features of unit length (n x d).
        queries: Which rows ask.
        count: How many answers, fewer than n.
    """
    likeness = rows[list(queries)] @ rows.T
    likeness[torch.arange(len(queries)), torch.tensor(list(queries))] = -torch.inf
    return likeness.sort(dim=1, descending=True, stable=True).indices[:, :count]
