"""A map of features in the plane, and thumbnails on it that do not hide each other."""

from __future__ import annotations

import colorsys
import importlib
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy.spatial import cKDTree
from threadpoolctl import threadpool_limits

from deepcluster.visuals.thumbnails import centred_square

LEAST = 4
"""Fewer images make no map."""

SIDE = 40
"""Of a thumbnail, in pixels."""

_FREE = 1.7  # cells for every image: what is empty shows where the groups end
_FRAME = 3
_GOLDEN = 0.618033988749895  # hues that far apart repeat last


def method() -> str:
    """What maps here: UMAP where it is installed and can be loaded, else t-SNE."""
    return "t-SNE" if _umap() is None else "UMAP"


def _umap() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of parts of it that we do not use
            return importlib.import_module("umap")
    except ImportError:
        return None


def mapped(rows: NDArray[np.float32], seed: int) -> NDArray[np.float64]:
    """Where every row lies in the plane (n x 2); the same seed gives the same map.

    The rows are whitened already, all of their directions count alike, and so none is left out
    before.
    """
    if method() == "UMAP":
        neighbours = min(15, len(rows) - 1)
        found = (
            _umap().UMAP(n_neighbors=neighbours, random_state=seed, n_jobs=1).fit_transform(rows)
        )
    else:
        from sklearn.manifold import TSNE

        tsne = TSNE(perplexity=min(30.0, (len(rows) - 1) / 3), init="pca", random_state=seed)
        # The sums of two threads round otherwise than those of one, and the map unfolds otherwise.
        with threadpool_limits(1):
            found = tsne.fit_transform(rows)
    return np.asarray(found, dtype=np.float64)


def cells_of(places: NDArray[np.float64]) -> NDArray[np.int64]:
    """The cell (column, row) of a grid for every place, each to itself, near where it lies.

    Everyone asks for the nearest free cell; the nearest of those who ask for it has it, and the
    others ask again.
    """
    count = len(places)
    low, extent = places.min(axis=0), np.ptp(places, axis=0)
    extent = np.maximum(extent, max(float(extent.max()) / 4, 1e-9))  # no ribbon
    side = float(np.sqrt(extent.prod() / (_FREE * count)))
    across, down = (int(n) for n in np.ceil(extent / side))
    cells = np.stack(np.meshgrid(np.arange(across), np.arange(down), indexing="ij"), -1)
    cells = cells.reshape(-1, 2)
    wanted = (places - low) / extent * (across - 1, down - 1)
    taken = np.full(count, -1)
    free = np.ones(len(cells), dtype=bool)
    while len(waiting := np.flatnonzero(taken < 0)):
        open_cells = np.flatnonzero(free)
        distance, choice = cKDTree(cells[open_cells]).query(wanted[waiting])
        # By cell, and of those who ask for one cell the nearest first; of equals the first.
        order = np.lexsort((waiting, distance, choice))
        winners = order[np.unique(choice[order], return_index=True)[1]]
        taken[waiting[winners]] = open_cells[choice[winners]]
        free[open_cells[choice[winners]]] = False
    return np.asarray(cells[taken], dtype=np.int64)


def drawn(
    pictures: Sequence[Image.Image],
    cells: NDArray[np.int64],
    groups: NDArray[np.int64],
    side: int = SIDE,
) -> Image.Image:
    """The map: every picture in its cell, in a frame of its group's colour."""
    cell = side + 2 * _FRAME + 1
    across, down = (cells.max(axis=0) + 1).tolist()
    whole = Image.new("RGB", (across * cell + 1, down * cell + 1), "white")
    for picture, (column, row), group in zip(pictures, cells.tolist(), groups, strict=True):
        frame = Image.new("RGB", (side + 2 * _FRAME,) * 2, colour(int(group)))
        # Rows count from the top of the picture, places from its foot.
        corner = (1 + column * cell, 1 + (down - 1 - row) * cell)
        small = centred_square(picture, side).resize((side, side)).convert("RGB")
        frame.paste(small, (_FRAME, _FRAME))
        whole.paste(frame, corner)
    return whole


def colour(group: int) -> tuple[int, int, int]:
    """Of a group; the first ones differ most, and no group is grey."""
    if group < 0:
        return 200, 200, 200
    light = (0.48, 0.32, 0.66)[group // 8 % 3]
    red, green, blue = colorsys.hls_to_rgb(group * _GOLDEN % 1, light, 0.75)
    return round(255 * red), round(255 * green), round(255 * blue)
