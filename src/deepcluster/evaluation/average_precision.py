"""Average precision of a ranked list, three ways: VOC's two and the plain one.

Entries with equal scores are one step of the ranking: no figure depends on the order in which they
come. Recall is compared in whole numbers, so that 3 of 10 reaches 0.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deepcluster.runtime.errors import NumericsError


@dataclass(frozen=True)
class AveragePrecision:
    """Of one class; shares from 0 to 1."""

    eleven_point: float
    """VOC2007's: the mean, over recalls 0, 0.1, ... 1, of the best precision from there on."""
    all_point: float
    """VOC2010's: the area under the best precision from each recall on."""
    plain: float
    """The mean precision at the entries that are right, nothing interpolated (scikit-learn's)."""


def average_precision(
    scores: ArrayLike, hits: ArrayLike, positives: int | None = None
) -> AveragePrecision | None:
    """How well scores rank what is right before what is wrong; nothing where nothing is right.

    Args:
        scores: Of the entries, in any order; the higher, the earlier.
        hits: Whether each entry is right. What is to be ignored must not be among the entries.
        positives: How many could be right, if more than the hits (a detector misses some).
    """
    right, seen = _steps(np.asarray(scores, dtype=np.float64), np.asarray(hits, dtype=bool))
    found = int(right[-1]) if len(right) else 0
    total = found if positives is None else positives
    if found > total:
        raise ValueError(f"{found} hits of {total} positives")
    if total == 0:
        return None
    precision = right / np.maximum(seen, 1)
    best = np.maximum.accumulate(precision[::-1])[::-1]  # from each step on
    gained = np.diff(right, prepend=0) / total
    levels = [best[right * 10 >= tenth * total] for tenth in range(11)]
    return AveragePrecision(
        eleven_point=float(sum(level[0] if len(level) else 0.0 for level in levels) / 11),
        all_point=float((best * gained).sum()),
        plain=float((precision * gained).sum()),
    )


def _steps(
    scores: NDArray[np.float64], hits: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Right entries, and all entries, with at least each of the scores, the highest first."""
    if scores.shape != hits.shape or scores.ndim != 1:
        raise ValueError(f"scores {scores.shape} and hits {hits.shape} must be two equal rows")
    if not np.isfinite(scores).all():
        raise NumericsError("scores to rank by are not finite: the classifier has diverged")
    order = np.argsort(-scores, kind="stable")
    ranked = scores[order]
    lasts = np.flatnonzero(np.append(ranked[1:] != ranked[:-1], True)) if len(ranked) else order
    right: NDArray[np.int64] = np.cumsum(hits[order], dtype=np.int64)
    return right[lasts], lasts + 1
