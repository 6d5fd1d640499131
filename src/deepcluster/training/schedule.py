"""How the step size changes over a run, as a function of what of the run is behind.

Every epoch has a part of the schedule, from one share to another, that is laid down when it begins
to learn and written into the journal, so that an epoch that was interrupted goes on within its
part. It begins at the share of the epochs, or of the time, that is behind; what is left is divided
among the epochs to come: with minutes, among those that will fit if they take as long as the last.
So the step reaches zero with the last epoch either way, and an epoch that took unusually long (the
first on a GPU does) misleads one other at most.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

Schedule = Literal["constant", "cosine"]

_CLOSING = 0.5  # of an epoch, which the closing pass may take


def step_factor(
    schedule: Schedule, warmup: float, *, epochs_done: float, share: float, fall: float = 1.0
) -> float:
    """What the step size is multiplied by, from 0 to 1.

    Args:
        schedule: Constant, or half a period of the cosine.
        warmup: Epochs over which the step rises.
        epochs_done: With the part of the one under way.
        share: How much of the schedule is behind, from 0 to 1.
        fall: The last share of the schedule, in which the step falls; until then it stays.
    """
    risen = 1.0 if epochs_done >= warmup else epochs_done / warmup
    fallen = max(0.0, share - (1 - fall)) / fall
    return risen if schedule == "constant" else risen * (1 + math.cos(math.pi * fallen)) / 2


def part_of_schedule(
    journal: Sequence[Mapping[str, Any]], epochs: int, minutes: float | None
) -> tuple[float, float]:
    """The part, from one share to another, of the epoch that follows those of the journal."""
    begin, left = len(journal) / epochs, epochs - len(journal)
    if minutes is not None:
        left = min(left, epochs_that_fit(journal, minutes))
        spent = _seconds(journal)
        if sum(spent) > 0:
            begin = sum(spent) / (sum(spent) + left * spent[-1])
    return begin, begin + (1 - begin) / max(1, left)


def epochs_that_fit(journal: Sequence[Mapping[str, Any]], minutes: float) -> int:
    """How many more epochs, and a closing pass, fit into the minutes given; without any, many."""
    spent = _seconds(journal)
    if not spent:
        return 2**31
    left = 60 * minutes - sum(spent)
    return max(0, math.floor(left / max(1e-3, spent[-1]) - _CLOSING))


def _seconds(journal: Sequence[Mapping[str, Any]]) -> list[float]:
    return [sum(entry["seconds"].values()) for entry in journal]
