"""A picture from outside: which group it belongs to, and the feature to find its like by.

It is decoded by a process of its own under limits of time and memory, and refused by its header if
it has too many pixels, so that no upload can end or stall the site.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deepcluster.collection.groups import CentroidGroups, NeighbourGroups, groups_of
from deepcluster.collection.model import Model, Wanted, load
from deepcluster.images.crew import Crew
from deepcluster.runtime.errors import DataError
from deepcluster.runtime.run_folder import RunFolder


class Answer(NamedTuple):
    """Where a picture belongs."""

    group: int
    distance: float
    margin: float | None
    """How much farther the second-best group is; None where there is no other."""
    centred: bool
    """Whether distances are to the centre of a group; else to the nearest image in it."""
    none: bool
    """Whether it is so far away that it is in none of the groups."""
    row: NDArray[np.float32]
    """Its feature, as the run's own images have theirs."""


class Query:
    """The network of a run, ready when the first picture comes. One picture at a time."""

    def __init__(self, folder: RunFolder, device: str) -> None:
        self._folder, self._device = folder, device
        self._crew: Crew | None = None

    def answer(self, content: bytes) -> Answer:
        """What the network sees in the content of an image file; raises DataError if none is."""
        model = self._model
        if self._crew is None:
            self._crew = Crew(model.preprocessing.manner, 1)
        about, kept = self._crew.examine(content)
        if kept is None:
            raise DataError(f"that file cannot be used: {about['reason']}")
        activations = model.activations(model.preprocessing.cut(kept)[None])
        found = self._groups.members(activations)
        row = model.shaped(activations, Wanted(whiten=True, normalize=True))[0]
        margin = float(found.margin[0])
        return Answer(
            group=int(found.cluster[0]),
            distance=float(found.distance[0]),
            margin=margin if np.isfinite(margin) else None,
            centred=isinstance(self._groups, CentroidGroups),
            none=bool(found.none[0]),
            row=row.cpu().numpy(),
        )

    def close(self) -> None:
        """End the process that decodes."""
        if self._crew is not None:
            self._crew.close()

    @cached_property
    def _model(self) -> Model:
        return load(self._folder.path, self._device)

    @cached_property
    def _groups(self) -> CentroidGroups | NeighbourGroups:
        return groups_of(self._model)
