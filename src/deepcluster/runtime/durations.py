"""Durations as people say them."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """45 s, 3 min 20 s, 5 h 10 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
