"""The features that a run keeps, read from the disk a part at a time, never all in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from deepcluster.runtime.errors import ResumeError
from deepcluster.runtime.run_folder import RunFolder

_ROWS = 32_768  # in memory at once


class Near(NamedTuple):
    """An image of the run, and how far it is."""

    image: int
    distance: float


class KeptFeatures:
    """Row i is image i.

    Args:
        folder: The run.
        count: How many images it has.
    """

    def __init__(self, folder: RunFolder, count: int) -> None:
        path = folder.verified("features.npy")
        rows = np.load(path, mmap_mode="r", allow_pickle=False)
        if rows.ndim != 2 or len(rows) != count:
            raise ResumeError(f"{path} does not have one row for each image of clusters.parquet")
        self.rows: NDArray[np.float16] = rows
        """All of them, in the file."""

    def row(self, image: int) -> NDArray[np.float32]:
        """The feature of one image."""
        return np.asarray(self.rows[image], dtype=np.float32)

    def nearest(
        self,
        query: NDArray[np.float32],
        count: int,
        leave_out: int | None = None,
        progress: Callable[[int], None] = lambda count: None,
    ) -> list[Near]:
        """The images nearest to a feature, nearest first, ties by the lower number.

        Args:
            query: (d,), of unit length, as the rows are.
            count: How many images.
            leave_out: The query's own number, where it is one of the images.
            progress: Is told of so many more images that were looked at.
        """
        best = np.empty(0, dtype=np.int64)
        apart = np.empty(0, dtype=np.float64)
        for start, block in self._blocks():
            # Differences are squared, not products subtracted, so that near ones are told apart.
            distances = np.square(block - query).sum(axis=1, dtype=np.float64)
            distances[~np.isfinite(distances)] = np.inf  # an image without a feature
            if leave_out is not None and start <= leave_out < start + len(block):
                distances[leave_out - start] = np.inf
            some = np.arange(len(block))
            if len(block) > count:
                # All that are as near as the last one wanted, or ties would depend on the blocks.
                limit = np.partition(distances, count - 1)[count - 1]
                some = np.flatnonzero(distances <= limit)
            best = np.concatenate([best, start + some])
            apart = np.concatenate([apart, distances[some]])
            order = np.lexsort((best, apart))[:count]
            best, apart = best[order], apart[order]
            progress(len(block))
        return [
            Near(int(image), float(np.sqrt(distance)))
            for image, distance in zip(best, apart, strict=True)
            if np.isfinite(distance)
        ]

    def middles(
        self, labels: NDArray[np.int64], groups: NDArray[np.int64]
    ) -> tuple[NDArray[np.float64], float]:
        """The mean row of each of the groups (rising), and the squared distances to it, summed."""
        sums = np.zeros((len(groups), self.rows.shape[1]))
        sizes = np.zeros(len(groups))
        squares = 0.0
        for start, block in self._blocks():
            own = labels[start : start + len(block)]
            known = np.flatnonzero(np.isin(own, groups))
            place = np.searchsorted(groups, own[known])
            rows = block[known].astype(np.float64)
            belongs = (np.ones(len(known)), (place, np.arange(len(known))))
            sums += csr_array(belongs, shape=(len(groups), len(known))) @ rows
            sizes += np.bincount(place, minlength=len(groups))
            squares += float(np.square(rows).sum())
        middles = sums / np.maximum(sizes, 1)[:, None]
        within = squares - float((sizes * np.square(middles).sum(axis=1)).sum())
        return middles, max(0.0, within)

    def _blocks(self) -> Iterator[tuple[int, NDArray[np.float32]]]:
        for start in range(0, len(self.rows), _ROWS):
            yield start, np.asarray(self.rows[start : start + _ROWS], dtype=np.float32)
