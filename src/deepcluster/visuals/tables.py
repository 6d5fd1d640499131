"""The data of pictures, for other programs: columns and rows."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from deepcluster.runtime.spreadsheet import harmless
from deepcluster.visuals.neighbours import Retrieved
from deepcluster.visuals.purity import Pure
from deepcluster.visuals.top_images import TopImages

Table = tuple[list[str], list[tuple[object, ...]]]


def csv_of(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> bytes:
    """A table as a file."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(map(harmless, rows))
    return text.getvalue().encode()


def sizes(of_runs: Mapping[str, NDArray[np.int64]]) -> Table:
    """The size of every group of every run."""
    rows: list[tuple[object, ...]] = [
        (name, group, int(size))
        for name, some in of_runs.items()
        for group, size in enumerate(some)
    ]
    return ["run", "group", "images"], rows


def top(of_layers: Mapping[str, TopImages], names: Sequence[str]) -> Table:
    """The best images of every filter."""
    rows: list[tuple[object, ...]] = [
        (layer, number, rank, image, names[image], f"{value:.6g}")
        for layer, best in of_layers.items()
        for number, (some, values) in enumerate(
            zip(best.images.tolist(), best.values.tolist(), strict=True)
        )
        for rank, (image, value) in enumerate(zip(some, values, strict=True), 1)
    ]
    return ["layer", "filter", "rank", "id", "path", "activation"], rows


def neighbours(found: Retrieved, names: Sequence[str]) -> Table:
    """The nearest images of every query, untrained and trained."""
    rows: list[tuple[object, ...]] = [
        (names[query], network, rank, number, names[number])
        for query, one, other in zip(found.queries, found.untrained, found.trained, strict=True)
        for network, some in (("untrained", one), ("trained", other))
        for rank, number in enumerate(some, 1)
    ]
    return ["query", "network", "rank", "id", "path"], rows


def purity(bars: Sequence[Pure]) -> Table:
    """Every synset, or class, that was looked at."""
    rows: list[tuple[object, ...]] = [
        (
            bar.synset,
            bar.name,
            "" if bar.depth is None else bar.depth,
            " ".join(bar.within),
            bar.images,
            bar.pure,
            f"{bar.share:.6g}",
            f"{bar.chance:.6g}",
        )
        for bar in bars
    ]
    columns = ["synset", "name", "depth", "within", "images", "in_pure_clusters", "share", "chance"]
    return columns, rows
