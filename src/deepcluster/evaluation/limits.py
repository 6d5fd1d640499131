"""Which numbers the settings of a protocol may be."""

from __future__ import annotations

from deepcluster.runtime.errors import UsageError


def refuse_beyond(*limits: tuple[str, object, object, str]) -> None:
    """Raise for the first flag that is out of bounds: flag, value, whether it is good, bounds."""
    for flag, value, good, bounds in limits:
        if not good:
            given = [str(value)]
            if isinstance(value, tuple):  # as it was typed: 0 has become 0.0
                given = [str(one).removesuffix(".0") for one in value]
            raise UsageError(f"{' '.join([flag, *given])}: use {bounds}")
