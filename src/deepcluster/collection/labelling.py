"""A few labels spread to all images: by nearest neighbours, and by a linear probe."""

from __future__ import annotations

import csv
import math
import warnings
from collections import Counter
from collections.abc import Callable
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
_HELD = 2**21  # numbers of rows, or of shares of their labels, held at once
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


def spread(
    rows: NDArray[np.floating],
    labels: dict[int, str],
    progress: Callable[[int], None] = lambda count: None,
) -> list[Spread]:
    """The labels of all images by each way, with the accuracy on labels held back.

    Args:
        rows: N x d, of unit length, in memory or in a file; row i is image i.
        labels: Of some of them.
        progress: Is told of so many more images that have labels.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.neighbors import KNeighborsClassifier

    numbers = np.array(sorted(labels))
    values = np.array([labels[number] for number in numbers.tolist()])
    known = rows[numbers].astype(np.float32)
    count = min(NEIGHBOURS, len(numbers))
    ways = {
        "neighbours": KNeighborsClassifier(count, weights="distance", algorithm="brute"),
        "probe": LogisticRegression(C=_C, max_iter=2000),
    }
    spreads = [_by(name, way, known, values, len(rows)) for name, way in ways.items()]
    most = max(1, _HELD // max(rows.shape[1], len({*labels.values()})))
    for start in range(0, len(rows), most):
        some = slice(start, start + most)
        block = rows[some].astype(np.float32)
        for way, said in zip(ways.values(), spreads, strict=True):
            shares = way.predict_proba(block).astype(np.float64)  # four digits are four in a file
            second, best = np.partition(shares, -2, axis=1)[:, -2:].T
            said.labels[some] = way.classes_[shares.argmax(axis=1)]
            said.confidence[some], said.margin[some] = best, best - second
        progress(len(block))
    return spreads


def most_helpful(
    rows: NDArray[np.floating], doubt: NDArray[np.float64], count: int
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
    features = rows[shortlist].astype(np.float32)
    apart = np.linalg.norm(features - features[0], axis=1)
    while len(chosen) < min(count, len(shortlist)):
        apart[chosen] = -1
        chosen.append(int(apart.argmax()))
        new = np.linalg.norm(features - features[chosen[-1]], axis=1)
        apart = np.minimum(apart, new)
    return shortlist[chosen]


def _by(
    name: str, way: Any, known: NDArray[np.float32], values: NDArray[np.str_], images: int
) -> Spread:
    """The way when it knows the labels, with room for what it says of the images."""
    from sklearn.base import clone
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    counts = Counter(values.tolist()).values()
    folds = min(_FOLDS, *counts)
    accuracy = None
    if folds >= 2:
        # A fold leaves fewer labels than neighbours where there are very few.
        tested = clone(way)
        if name == "neighbours":
            left = len(values) * (folds - 1) // folds - 1
            tested.set_params(n_neighbors=max(1, min(NEIGHBOURS, left)))
        split = StratifiedKFold(folds, shuffle=True, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # few labels: a probe may not have converged
            guessed = cross_val_predict(tested, known, values, cv=split)
        accuracy = float((guessed == values).mean())
    way.fit(known, values)
    return Spread(
        name,
        np.empty(images, values.dtype),
        np.empty(images),
        np.empty(images),
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
