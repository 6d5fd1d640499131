"""The features of every image: row i is image i."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import torch
from torch import Tensor, nn

from deepcluster.features.moments import Moments
from deepcluster.features.raw_rows import Keep, RawRows, RecomputedRows, chosen_place
from deepcluster.images.crops import normalize
from deepcluster.images.loader import Images
from deepcluster.runtime import faults, interruption
from deepcluster.runtime.errors import NumericsError
from deepcluster.runtime.world import World


@dataclass(frozen=True)
class RawFeatures:
    """This process's raw features, with the moments of the finite rows of all processes."""

    rows: RawRows | RecomputedRows
    moments: Moments
    finite: Tensor  # n_local, bool, CPU: which of this process's rows are finite


@dataclass(frozen=True)
class Looking:
    """How the pass over the images is made; none of it changes the features."""

    batch: int = 256
    workers: int = 2
    keep: Keep = "auto"
    scratch: Path | None = None
    key: str = ""  # names the network's state, so that an interrupted pass can be continued
    autocast: torch.dtype | None = None
    advance: Callable[[int], None] = lambda count: None
    due: Callable[[], bool] = lambda: False  # whether it is time to save


def extract(trunk: nn.Module, images: Images, world: World, how: Looking) -> RawFeatures:
    """The raw features of this process's share of the images: centre crop, evaluation mode."""
    ids = world.share(len(images))
    told = 0  # a second pass over the same images is no progress

    def passes(start: int = 0) -> Iterator[Tensor]:
        nonlocal told
        for pixels in images.seen(ids, batch=how.batch, workers=how.workers, start=start):
            inputs = normalize(pixels.to(world.device, non_blocking=True))
            with (
                _looking(trunk),
                torch.autocast(world.device.type, how.autocast, enabled=how.autocast is not None),
            ):
                features = trunk(inputs)
            yield features.float()
            new = min(len(pixels), len(ids) - told)
            told += new
            how.advance(new)

    width = _width(trunk, images, world.device)
    place = chosen_place(how.keep, len(ids), width, world.device, how.scratch)
    if any(world.counts(int(place == "recompute"))):  # all processes the same way
        rows: RawRows | RecomputedRows = RecomputedRows(passes, len(ids), width, world.device)
    else:
        path = how.scratch / f"features-{world.rank}-of-{world.size}.f16" if how.scratch else None
        rows = RawRows(len(ids), width, place, world.device, path=path, key=how.key)  # type: ignore[arg-type]
        _fill(rows, passes, world, how)
    return _measured(rows, width, world)


def _fill(
    rows: RawRows, passes: Callable[[int], Iterator[Tensor]], world: World, how: Looking
) -> None:
    """Keep every row, continuing after those that an interrupted pass has left."""
    taken_up = rows.done
    if world.any(taken_up == 0 and rows.count > 0):  # the frame is common: all start or none
        rows.done = taken_up = 0
    how.advance(taken_up)
    stream = passes(taken_up)
    first = next(stream, torch.empty(0, rows.width, device=world.device)) if not taken_up else None
    if first is not None:
        rows.set_frame(first, world)
        stream = chain([first], stream)
    for block in stream:
        rows.append(block)
        faults.point("features.batch")
        if interruption.asked() or how.due():
            rows.flush()
            interruption.raise_if_asked()
    rows.flush()


def _measured(rows: RawRows | RecomputedRows, width: int, world: World) -> RawFeatures:
    moments = Moments(width, world.device)
    finite = []
    for block in rows.blocks():
        good = block.isfinite().all(dim=1)
        moments.add(block[good])
        finite.append(good.cpu())
    together = moments.over(world)
    if together.count == 0:
        raise NumericsError(
            "no image gave a finite feature: the network's weights have overflowed; "
            "start again with --fresh and a smaller --training.step"
        )
    return RawFeatures(rows, together, torch.cat(finite) if finite else torch.empty(0).bool())


def _width(trunk: nn.Module, images: Images, device: torch.device) -> int:
    """The number of features, by asking the network about nothing in particular."""
    blank = torch.zeros(1, 3, images.size, images.size, device=device)
    with _looking(trunk):
        return int(trunk(blank).shape[1])


@contextmanager
def _looking(trunk: nn.Module) -> Iterator[None]:
    """While open, the network computes and does not learn; its mode is put back."""
    was_training = trunk.training
    trunk.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        trunk.train(was_training)
