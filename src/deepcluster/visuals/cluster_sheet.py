"""Which images stand for a group: the most central, some at random, the most marginal."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Sheet(NamedTuple):
    """The images of one group that are shown; of a small group, none twice."""

    group: int
    size: int
    central: list[int]
    random: list[int]
    marginal: list[int]


def sheet_of(
    group: int,
    labels: NDArray[np.int64],
    distances: NDArray[np.float32],
    each: int,
    randomness: np.random.Generator,
) -> Sheet:
    """At most `each` images of every kind."""
    members = np.flatnonzero(labels == group)
    members = members[np.argsort(distances[members], kind="stable")]
    central = members[:each]
    marginal = members[max(len(central), len(members) - each) :]
    between = members[len(central) : len(members) - len(marginal)]
    chosen = randomness.permutation(len(between))[:each]
    return Sheet(
        group,
        len(members),
        central.tolist(),
        np.sort(between[chosen]).tolist(),
        marginal[::-1].tolist(),
    )
