"""A few labels spread to all images: by nearest neighbours, and by a linear probe."""

from __future__ import annotations

import csv
import math
import warnings
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepcluster.collection.known_paths import KnownPaths
from deepcluster.images.folder import encoded
from deepcluster.images.list_file import csv_lines, places_of_columns
from deepcluster.runtime.errors import DataError, UsageError
from deepcluster.runtime.spreadsheet import as_it_was

NEIGHBOURS = 5
_FOLDS = 5
_SHORTLIST = 10  # times as many doubtful images as are asked about
_C = 10.0  # of the probe: rows of unit length want less shrinking than rows of unit variance


@dataclass(frozen=True)
class Spread:
    """What one way of spreading says of every image."""

    name: str
    labels: NDArray[np.str_]
    confidence: NDArray[np.float64]
    margin: NDArray[np.float64]
    """How far the second-best label is behind."""
    accuracy: float | None
    """Of labels that were held back, over all folds; None where a class has one label only."""
    doubted: bool
    """Whether always saying the most frequent label may well be right as often."""


def read_labels(path: Path, names: list[str], place: Path) -> dict[int, str]:
    """The label of each image that a CSV file (path, label) names.

    Args:
        path: The file, read as a list of images is: of spreadsheets too.
        names: Every image's path, as the run has it.
        place: What the run was made of, for paths that are given whole.
    """
    try:
        head, *rows = list(csv_lines(path)) or [[]]
    except (OSError, ValueError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"--labels {path}: {reason.lower()}") from error
    path_at, label_at = places_of_columns(head)
    if path_at is None or label_at is None:
        raise DataError(f"{path} must have the columns path and label; it has {head or 'no rows'}")
    known = KnownPaths(names, place)
    labels: dict[int, str] = {}
    unknown: list[str] = []
    asked = 0
    for row in rows:
        given, label = (row[at].strip() if at < len(row) else "" for at in (path_at, label_at))
        label = as_it_was(label)
        if not given or not label:
            continue
        asked += 1
        number = known.number(given)
        if number is None:
            unknown.append(given)
        elif not _is_text(label):
            raise DataError(f"{path}: the label of {encoded(given)} is not UTF-8; save it as UTF-8")
        elif labels.setdefault(number, label) != label:
            two = f"{labels[number]} and {label}"
            raise DataError(f"{path} gives {encoded(given)} two labels: {two}")
    if unknown:
        how = "write them as in clusters.parquet, or name the files"
        if not all(map(_is_text, unknown)):
            how = "they are not UTF-8: save the file as UTF-8"
        raise DataError(
            f"{path}: {len(unknown):,} of {asked:,} paths are no images of the run, such as "
            f"{encoded(unknown[0])}; {how}"
        )
    counts = Counter(labels.values())
    if len(counts) < 2:
        raise DataError(f"{path} has {len(counts)} different labels; give at least two")
    return labels


def spread(rows: NDArray[np.float32], labels: dict[int, str]) -> list[Spread]:
    """The labels of all images by each way, with the accuracy on labels held back.

    Args:
        rows: N x d, of unit length; row i is image i.
        labels: Of some of them.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.neighbors import KNeighborsClassifier

    numbers = np.array(sorted(labels))
    values = np.array([labels[number] for number in numbers.tolist()])
    count = min(NEIGHBOURS, len(numbers))
    ways = {
        "neighbours": KNeighborsClassifier(count, weights="distance", algorithm="brute"),
        "probe": LogisticRegression(C=_C, max_iter=2000),
    }
    return [_by(name, way, rows, numbers, values) for name, way in ways.items()]


def most_helpful(
    rows: NDArray[np.float32], doubt: NDArray[np.float64], count: int
) -> NDArray[np.int64]:
    """The images to label next: doubtful, and far from each other, so that each tells more.

    Args:
        rows: N x d.
        doubt: How doubtful each image's label is; -inf where it is known.
        count: How many.
    """
    open_ones = np.flatnonzero(np.isfinite(doubt))
    order = open_ones[np.argsort(-doubt[open_ones], kind="stable")]
    shortlist = order[: _SHORTLIST * count]
    if not len(shortlist):
        return shortlist
    chosen = [0]
    apart = np.linalg.norm(rows[shortlist] - rows[shortlist[0]], axis=1)
    while len(chosen) < min(count, len(shortlist)):
        apart[chosen] = -1
        chosen.append(int(apart.argmax()))
        new = np.linalg.norm(rows[shortlist] - rows[shortlist[chosen[-1]]], axis=1)
        apart = np.minimum(apart, new)
    return shortlist[chosen]


def _by(
    name: str,
    way: Any,
    rows: NDArray[np.float32],
    numbers: NDArray[np.int64],
    values: NDArray[np.str_],
) -> Spread:
    from sklearn.base import clone
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    counts = Counter(values.tolist()).values()
    folds = min(_FOLDS, *counts)
    accuracy = None
    if folds >= 2:
        # A fold leaves fewer labels than neighbours where there are very few.
        tested = clone(way)
        if name == "neighbours":
            left = len(numbers) * (folds - 1) // folds - 1
            tested.set_params(n_neighbors=max(1, min(NEIGHBOURS, left)))
        split = StratifiedKFold(folds, shuffle=True, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # few labels: a probe may not have converged
            guessed = cross_val_predict(tested, rows[numbers], values, cv=split)
        accuracy = float((guessed == values).mean())
    way.fit(rows[numbers], values)
    shares = way.predict_proba(rows).astype(np.float64)  # whose four digits are four in a file
    order = np.sort(shares, axis=1)
    return Spread(
        name,
        way.classes_[shares.argmax(axis=1)],
        order[:, -1],
        order[:, -1] - order[:, -2],
        accuracy,
        accuracy is not None and accuracy < _chance(max(counts) / len(values), len(values)),
    )


def _is_text(label: str) -> bool:
    """Whether all of it could be read: the reader keeps bytes of other encodings as they are."""
    try:
        label.encode()
    except UnicodeEncodeError:
        return False
    return True


def _chance(share: float, labels: int) -> float:
    """How often guesses that are right with this share are right at the most, but for bad luck."""
    return min(1.0, share + 2 * math.sqrt(share * (1 - share) / labels))
