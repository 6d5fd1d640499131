"""Which numbers the settings of a protocol may be."""

from __future__ import annotations

import math

from deepcluster.runtime.errors import UsageError


def refuse_beyond(*limits: tuple[str, object, object, str]) -> None:
    """Raise for the first flag that is out of bounds: flag, value, whether it is good, bounds.

    What is infinite or no number is out of all bounds.
    """
    for flag, value, good, bounds in limits:
        every = value if isinstance(value, tuple) else (value,)
        if not good or not all(math.isfinite(one) for one in every if isinstance(one, float)):
            given = [str(value)]
            if isinstance(value, tuple):  # as it was typed: 0 has become 0.0
                given = [str(one).removesuffix(".0") for one in value]
            raise UsageError(f"{' '.join([flag, *given])}: use {bounds}")
