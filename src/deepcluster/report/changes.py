"""How the groups changed from epoch to epoch: which stayed, which split, which merged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepcluster.report.run_record import RunRecord

MOST_EPOCHS = 60
MOST_ROWS = 50_000

_STAYED = 0.8  # share of a group that is found together again, both ways
_PART = 0.25  # share of a group that makes one of the parts of a split or merger
_EXAMPLES = 4


@dataclass(frozen=True)
class Changes:
    """What happened between the epochs that were recorded, or some of them."""

    steps: list[dict[str, Any]]
    """How whole the final groups were at each epoch and at the end; after the first, also counts
    and examples of what changed."""
    shown: int
    """How many epochs are among them."""
    epochs: int
    """How many were recorded."""
    rows: int
    """How many images were followed."""


def followed(record: RunRecord, shown: NDArray[np.int64], final: NDArray[np.int64]) -> Changes:
    """The changes over the run.

    Args:
        record: The run.
        shown: Images that have a thumbnail, of which examples are taken.
        final: The groups whose history is told.
    """
    files = record.assignments()
    numbers = list(files)
    chosen = numbers
    if len(numbers) > MOST_EPOCHS:
        places = np.linspace(0, len(numbers) - 1, MOST_EPOCHS).round().astype(int)
        chosen = [numbers[place] for place in np.unique(places)]
    total = len(record.labels)
    rows = np.arange(total)
    if total > MOST_ROWS:
        # Those with thumbnails, so that there are examples, and every n-th of the others.
        rows = np.union1d(rows[:: -(-total // (MOST_ROWS - len(shown)))], shown)
    visible = np.isin(rows, shown)
    ends = record.labels[rows]
    steps: list[dict[str, Any]] = []
    before: NDArray[np.int64] | None = None
    for epoch in chosen:
        try:
            labels = np.load(files[epoch], mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError):
            continue
        if labels.shape != (total,):
            continue
        now = np.asarray(labels[rows], dtype=np.int64)
        step: dict[str, Any] = {"epoch": epoch + 1, "whole": _togetherness(now, ends, final)}
        if before is not None:
            step |= _compared(before, now, rows, visible)
        steps.append(step)
        before = now
    if record.finished and before is not None:
        # The closing pass grouped once more, and people may have moved images since.
        step = {"epoch": "end", "whole": _togetherness(ends, ends, final)}
        steps.append(step | _compared(before, ends, rows, visible))
    return Changes(steps, len(chosen), len(numbers), len(rows))


def _table(
    a: NDArray[np.int64], b: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """The pairs of groups that share rows, and how many; rows without a group are left out."""
    known = (a >= 0) & (b >= 0)
    width = int(b.max(initial=0)) + 1
    pairs, counts = np.unique(a[known] * width + b[known], return_counts=True)
    return pairs // width, pairs % width, counts


def _togetherness(
    now: NDArray[np.int64], ends: NDArray[np.int64], final: NDArray[np.int64]
) -> list[float]:
    """Of each final group, the largest share that shares a group now."""
    group, _, counts = _table(ends, now)
    sizes = np.bincount(group, weights=counts, minlength=int(final.max(initial=0)) + 1)
    largest = np.zeros(len(sizes))
    np.maximum.at(largest, group, counts)
    return [round(float(largest[g] / sizes[g]), 3) if sizes[g] else 0.0 for g in final]


def _compared(
    before: NDArray[np.int64],
    now: NDArray[np.int64],
    rows: NDArray[np.int64],
    visible: NDArray[np.bool_],
) -> dict[str, Any]:
    old, new, counts = _table(before, now)
    old_sizes = np.bincount(old, weights=counts)
    new_sizes = np.bincount(new, weights=counts)
    kept = (counts >= _STAYED * old_sizes[old]) & (counts >= _STAYED * new_sizes[new])
    splits = _parted(old, new, counts, old_sizes)
    mergers = _parted(new, old, counts, new_sizes)

    def example(
        own: NDArray[np.int64], other: NDArray[np.int64], whole: int, parts: list[int]
    ) -> list[list[int]]:
        pictures = []
        for part in parts:
            ids = rows[(own == whole) & (other == part) & visible][:_EXAMPLES]
            pictures.append([int(number) for number in ids])
        return pictures

    return {
        "groups": int((new_sizes > 0).sum()),
        "stayed": int(kept.sum()),
        "split": len(splits),
        "merged": len(mergers),
        "moved": round(1 - _matched_share(new, counts), 3),
        "splits": [example(before, now, whole, parts) for whole, parts in splits[:2]],
        "mergers": [example(now, before, whole, parts) for whole, parts in mergers[:2]],
    }


def _matched_share(new: NDArray[np.int64], counts: NDArray[np.int64]) -> float:
    """The share of images that came to their group along with the largest part of it."""
    largest = np.zeros(int(new.max(initial=0)) + 1)
    np.maximum.at(largest, new, counts)
    return float(largest.sum() / max(1, counts.sum()))


def _parted(
    wholes: NDArray[np.int64],
    parts: NDArray[np.int64],
    counts: NDArray[np.int64],
    sizes: NDArray[Any],
) -> list[tuple[int, list[int]]]:
    """The groups of at least 4 rows of which two or more parts are large, the largest first."""
    large = (counts >= _PART * sizes[wholes]) & (sizes[wholes] >= 4)
    found: dict[int, list[int]] = {}
    for whole, part in zip(wholes[large].tolist(), parts[large].tolist(), strict=True):
        found.setdefault(whole, []).append(part)
    several = [(whole, some) for whole, some in found.items() if len(some) > 1]
    return sorted(several, key=lambda item: (-sizes[item[0]], item[0]))
