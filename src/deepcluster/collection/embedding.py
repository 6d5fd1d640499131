"""Features and groups of any images, streamed into a table: memory does not grow with them."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from deepcluster.collection.groups import CentroidGroups, NeighbourGroups
from deepcluster.collection.model import Model, Wanted
from deepcluster.collection.sight import Block, Sight, sight_of
from deepcluster.collection.table import ImageTable, Row
from deepcluster.images.source import Source
from deepcluster.images.store import Store
from deepcluster.runtime import interruption
from deepcluster.runtime.display import Display
from deepcluster.runtime.errors import DataError

_GROUP = {"cluster": pa.int32(), "distance": pa.float32(), "margin": pa.float32()}

_NAMED = 3  # files that a complaint tells of

Groups = CentroidGroups | NeighbourGroups
Computed = dict[str, Tensor]


@dataclass(frozen=True)
class Work:
    """How the images are gone through; none of it changes what comes out."""

    batch: int
    workers: int
    display: Display


@dataclass(frozen=True)
class Outcome:
    """What a table has come to."""

    images: int
    unusable: list[tuple[str, str]]
    """Path and reason."""
    seconds: float
    """Without the writing."""
    looked: int
    """Images that this command has seen; the others were done before."""
    written_seconds: float
    written_bytes: int


def embed(
    model: Model,
    images: Source | Store,
    out: Path,
    wanted: Wanted,
    groups: Groups | None,
    how: Work,
) -> Outcome:
    """Write the features of all images, and their groups where those are given."""

    def compute(crops: Tensor) -> Computed:
        if groups is None:
            return {"vector": model.vectors(crops, wanted)}
        feature = model.activations(crops)
        own = wanted.layer is None
        vector = model.shaped(feature, wanted) if own else model.vectors(crops, wanted)
        members = groups.members(feature)
        return {"vector": vector, **{name: getattr(members, name) for name in _GROUP}}

    columns = {} if groups is None else _GROUP
    table = ImageTable(
        out, model.width(wanted), columns, _key(model, "embed", asdict(wanted), columns)
    )
    return _carried_out(sight_of(images, model.preprocessing, model.device), table, compute, how)


def predict(
    model: Model, images: Source | Store, out: Path, groups: Groups, how: Work
) -> tuple[Outcome, int]:
    """Write the group of every image, with distance, margin and whether it is in none of them.

    Also gives how many of those looked at are in none.
    """
    strange = 0

    def compute(crops: Tensor) -> Computed:
        nonlocal strange
        found = groups.members(model.activations(crops))
        strange += int(found.none.sum())
        return found._asdict()

    columns = {**_GROUP, "none": pa.bool_()}
    table = ImageTable(out, 0, columns, _key(model, "predict", columns))
    sight = sight_of(images, model.preprocessing, model.device)
    return _carried_out(sight, table, compute, how), strange


def _key(model: Model, *what: Any) -> str:
    """Names what is computed: rows of another network or kind are not gone on with."""
    hashes = None if model.folder is None else model.folder.closing["sha256"]
    return json.dumps([hashes, *what], default=str, sort_keys=True)


def _carried_out(
    sight: Sight, table: ImageTable, compute: Callable[[Tensor], Computed], how: Work
) -> Outcome:
    seconds: dict[str, float] = {}
    table.opened(sight.mark, len(sight))
    try:
        before = table.usable
        with how.display.phase("looking", len(sight) - table.done, seconds, "look") as phase:
            blocks = sight.blocks(how.batch, how.workers, table.done)
            with closing(_one_behind(blocks, compute)) as computed:
                for rows, found in computed:
                    table.add(_told(rows, found, table, sight), _vectors(found))
                    phase.advance(len(rows))
                    interruption.raise_if_asked()  # what was added is kept
            while_looking = table.seconds
        looked = table.usable - before
        if not table.usable:
            raise DataError(_nothing_usable(table.discarded()))
        unusable = table.finish()
    finally:
        if table.partial.exists():
            table.close()
    return Outcome(
        table.usable,
        unusable,
        seconds["look"] - while_looking,
        looked,
        table.seconds,
        table.bytes,
    )


def _nothing_usable(unusable: list[tuple[str, str]]) -> str:
    if not unusable:
        return "there are no images in what was given; nothing was written"
    told = "; ".join(f"{path}: {reason}" for path, reason in unusable[:_NAMED])
    more = f"; and {len(unusable) - _NAMED:,} more" if len(unusable) > _NAMED else ""
    return f"none of the {len(unusable):,} files is a usable image ({told}{more}); nothing written"


def _one_behind(
    blocks: Generator[Block, None, None], compute: Callable[[Tensor], Computed]
) -> Generator[tuple[list[Row], Computed], None, None]:
    """Each block's rows with what is computed of it, on the host.

    The next block is given to a GPU before the last one is waited for, so that it need not wait
    while rows are written.
    """
    last: tuple[list[Row], Computed, torch.cuda.Event | None] | None = None
    with closing(blocks) as all_blocks:
        for block in all_blocks:
            found = compute(block.crops) if len(block.crops) else {}
            arriving, event = _sent_home(found)
            if last is not None:
                yield _arrived(*last)
            last = block.rows, arriving, event
    if last is not None:
        yield _arrived(*last)


def _sent_home(found: Computed) -> tuple[Computed, torch.cuda.Event | None]:
    if not any(tensor.is_cuda for tensor in found.values()):
        return found, None
    home = {}
    for name, tensor in found.items():
        home[name] = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        home[name].copy_(tensor, non_blocking=True)
    event = torch.cuda.Event()
    event.record()
    return home, event


def _arrived(
    rows: list[Row], found: Computed, event: torch.cuda.Event | None
) -> tuple[list[Row], Computed]:
    if event is not None:
        event.synchronize()
    return rows, found


def _vectors(found: Computed) -> np.ndarray:
    return found["vector"].numpy() if "vector" in found else np.empty((0, 0), np.float32)


def _told(rows: list[Row], found: Computed, table: ImageTable, sight: Sight) -> list[Row]:
    """What the table keeps of each file: the usable ones have a value in every column."""
    values = zip(*(found[name].tolist() for name in table.columns if name in found), strict=True)
    told = []
    for at, row in enumerate(rows):
        kept = {"mark": sight.mark(table.done + at), "path": row["path"], "reason": row["reason"]}
        if row["reason"] is None and table.columns:
            kept |= dict(zip(table.columns, next(values), strict=True))
        told.append(kept)
    return told
