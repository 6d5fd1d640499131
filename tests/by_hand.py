"""What tests compute the plain way, to hold the product against."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]


def distances_to_own_and_other(rows: Numbers, labels: NDArray[np.int64]) -> tuple[Numbers, Numbers]:
    """From each row to the nearest other of its group (0 if it is alone), and of all others."""
    apart = np.linalg.norm(rows[:, None] - rows, axis=2)
    np.fill_diagonal(apart, np.inf)
    same = labels[:, None] == labels
    own = np.where(same, apart, np.inf).min(axis=1)
    own[np.isinf(own)] = 0
    return own, np.where(same, np.inf, apart).min(axis=1)
