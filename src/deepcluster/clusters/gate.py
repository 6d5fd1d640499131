"""What rows must be before they can be grouped: finite, and not all the same."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from deepcluster.clusters.rows import Rows
from deepcluster.runtime.errors import NumericsError, UsageError
from deepcluster.runtime.world import World

_BLOCK = {"cpu": 2**17, "cuda": 2**25}  # numbers hashed at once
_NAMED = 5  # of the rows that are not finite
# How many times their spread rows may be away from zero and be read as float32 as they are. Farther
# away, what float32 leaves out would be more than a ten-thousandth of the spread.
_FAR = 1000
_MORE_DIGITS = {torch.float64, torch.int32, torch.int64, torch.uint32, torch.uint64}


def checked(rows: Any, world: World, *, unit: bool = False) -> tuple[Rows, Tensor]:
    """The rows, and the global numbers of the distinct ones, on the CPU.

    Of equal rows the first counts. Every process raises the same error, so that none waits.

    Args:
        rows: (n_local, d): a tensor, or anything that numpy takes for an array.
        world: The processes. Alone, rows on a GPU stay there; else all work on the world's device.
        unit: Whether only the direction of a row counts.
    """
    read, problem = _read(rows, world)
    # Nobody goes on, to wait in vain for one that did not.
    if world.any(problem is not None):
        raise problem or UsageError("the rows of another process cannot be grouped")
    assert read is not None
    widths = world.counts(read.width)
    if len(set(widths)) > 1:
        raise UsageError(f"the rows of the processes have different widths: {widths}")
    read = read.directions() if unit else _moved_if_far(read, world)
    # Room for all results beforehand: small ones left between large blocks would hold the memory
    # of these.
    prints = torch.zeros(len(read), dtype=torch.int64, device=read.device)
    finite = torch.ones(len(read), dtype=torch.bool, device=read.device)
    for place, block in read.blocks(_block_of(read)):
        finite[place] = block.isfinite().all(dim=1)
        prints[place] = fingerprints(block)
    total = sum(world.counts(len(read)))
    refuse_nonfinite((~finite).nonzero()[:, 0], len(read), total, world)
    distinct = first_of_each(world.gather(prints))
    if len(distinct) < 2:
        raise NumericsError(
            f"the {total} rows hold {len(distinct)} distinct value(s), so there is nothing to "
            "group: give more images, or check that the network's features differ between them"
        )
    return read, distinct


def _read(rows: Any, world: World) -> tuple[Rows | None, UsageError | None]:
    """The rows, or why they are none."""
    try:
        read = Rows.of(rows, world.device)
    except UsageError as error:
        return None, error
    problem = _not_a_matrix(read.source)
    return (read, None) if problem is None else (None, problem)


def matrix(values: Any) -> Tensor:
    """The values as a tensor, if they are a matrix of real numbers."""
    source = Rows.of(values).source
    problem = _not_a_matrix(source)
    if problem is not None:
        raise problem
    return source


def _not_a_matrix(source: Tensor) -> UsageError | None:
    real = not (source.dtype.is_complex or source.dtype == torch.bool)
    dense = source.layout == torch.strided
    if source.ndim == 2 and source.shape[1] and real and dense:
        return None
    kind = ("" if dense else "sparse ") + str(source.dtype).removeprefix("torch.")
    return UsageError(
        f"rows of {kind} in the shape {tuple(source.shape)} cannot be grouped: "
        f"give a {'' if dense else 'dense '}matrix (rows, columns) of real numbers"
    )


def _moved_if_far(rows: Rows, world: World) -> Rows:
    """The rows, read about their mean where float32 would leave out too much of how they differ."""
    if not world.any(rows.source.dtype in _MORE_DIGITS):
        return rows
    total = max(1, sum(world.counts(len(rows))))
    block = _block_of(rows)
    parts = [rows.source[p : p + block] for p in range(0, len(rows), block)]
    zero = torch.zeros(rows.width, dtype=torch.float64, device=rows.device)
    sums = sum((p.to(rows.device).double().sum(dim=0) for p in parts), zero)
    mean = world.sum(sums) / total
    squares = sum(((p.to(rows.device).double() - mean).square().sum(dim=0) for p in parts), zero)
    spread = (world.sum(squares).sum() / total).sqrt()
    return rows.about(mean) if bool(mean.norm() > _FAR * spread) else rows


def fingerprints(rows: Tensor) -> Tensor:
    """(n,) int64: equal for equal rows, and otherwise different but for one chance in 2**64."""
    width = (rows.shape[1] + 1) // 2
    place = torch.arange(1, width + 1, device=rows.device) * -0x61C8864680B583EB
    # Adding 0.0 makes -0.0 the same bits as 0.0; two numbers are then read as one.
    numbers = F.pad(rows + 0.0, (0, rows.shape[1] % 2))
    return _mixed(numbers.view(torch.int64) + place).sum(dim=1)


def _block_of(rows: Rows) -> int:
    return max(1, _BLOCK.get(rows.device.type, 2**20) // max(1, rows.width))


def refuse_nonfinite(broken: Tensor, count: int, total: int, world: World) -> None:
    """Every process names the same rows, by their numbers among all."""
    found = sum(world.counts(len(broken)))
    if not found:
        return
    first = world.gather(broken[:_NAMED].cpu() + world.offset(count))[:_NAMED].tolist()
    named = ", ".join(map(str, first)) + (", ..." if found > _NAMED else "")
    raise NumericsError(
        f"{found} of {total} rows hold numbers that are not finite in float32 "
        f"({'row' if found == 1 else 'rows'} {named}): leave these rows out, or, if a network "
        "made them, train it with a smaller learning rate"
    )


def _mixed(x: Tensor) -> Tensor:
    """The finaliser of splitmix64; the masks make the arithmetic shifts logical ones."""
    x = (x ^ ((x >> 30) & 0x3FFFFFFFF)) * -0x40A7B892E31B1A47
    x = (x ^ ((x >> 27) & 0x1FFFFFFFFF)) * -0x6B2FB644ECCEEE15
    return x ^ ((x >> 31) & 0x1FFFFFFFF)


def first_of_each(values: Tensor) -> Tensor:
    """The places, in order and on the CPU, where a value is met for the first time."""
    ordered, order = values.sort(stable=True)
    first = torch.ones_like(ordered, dtype=torch.bool)
    first[1:] = ordered[1:] != ordered[:-1]
    return order[first].sort().values.cpu()
