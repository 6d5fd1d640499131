"""Choosing a step size where each one tried is a training of its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence

Reached = float | None
"""How good a step is on images that were not learnt from; None where learning diverged."""


def searched(
    steps: Sequence[float], judged: Callable[[float], Reached], farther: int
) -> dict[float, Reached]:
    """What every step reaches, and some beyond them where the best is an outermost one.

    A network whose best step lies outside of the given ones would be judged too low.

    Args:
        steps: Those that are tried in any case.
        judged: What a step reaches.
        farther: How many more are tried at the most, each half a decade farther out.
    """
    reached = {step: judged(step) for step in steps}
    for _ in range(farther):
        best = best_step(reached)
        if best is None or min(reached) < best < max(reached):
            break
        beyond = half_decade_from(best, 1 if best == max(reached) else -1)
        reached[beyond] = judged(beyond)
    return reached


def best_step(reached: Mapping[float, Reached]) -> float | None:
    """The step that reaches most, the smallest of equal ones; None where all have diverged."""
    finite = [(value, -step) for step, value in reached.items() if value is not None]
    return -max(finite)[1] if finite else None


def remark(step: float, tried: Collection[float]) -> list[str]:
    """What is to be said where the best step is still an outermost one."""
    if min(tried) < step < max(tried):
        return []
    return [
        f"the best step, {step:g}, is at the edge of those tried; others may do better (--steps, "
        "--farther)"
    ]


def half_decade_from(step: float, places: int) -> float:
    """The step so many places on among ..., 0.01, 0.03, 0.1, 0.3, ..., from the nearest of them."""
    decade, half = divmod(round(2 * math.log10(step)) + places, 2)
    return float(f"{3 if half else 1}e{decade}")
