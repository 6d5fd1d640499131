"""What rows must be before they can be grouped: finite, and not all the same."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from deepcluster.runtime.errors import NumericsError
from deepcluster.runtime.world import World

_BLOCK = {"cpu": 2**16, "cuda": 2**24}  # numbers hashed at once


def checked(rows: Tensor, world: World) -> tuple[Tensor, Tensor]:
    """The rows as float32, and the global numbers of the distinct ones.

    Alone, a tensor stays on its device; in a world of many all work on the world's.

    Of equal rows the first counts. Every process raises the same error, so that none waits.
    """
    stays = isinstance(rows, Tensor) and world.size == 1
    device = rows.device if stays else world.device
    rows = torch.as_tensor(rows, dtype=torch.float32, device=device).contiguous()
    total = sum(world.counts(len(rows)))
    broken = sum(world.counts(int((~rows.isfinite().all(dim=1)).sum())))
    if broken:
        raise NumericsError(
            f"{broken} of {total} rows hold numbers that are not finite: leave these rows out, or, "
            "if a network made them, train it with a smaller learning rate"
        )
    distinct = _first_of_each(world.gather(fingerprints(rows)))
    if len(distinct) < 2:
        raise NumericsError(
            f"the {total} rows hold {len(distinct)} distinct value(s), so there is nothing to "
            "group: give more images, or check that the network's features differ between them"
        )
    return rows, distinct


def fingerprints(rows: Tensor) -> Tensor:
    """(n,) int64: equal for equal rows, and otherwise different but for one chance in 2**64."""
    width = (rows.shape[1] + 1) // 2
    place = torch.arange(1, width + 1, device=rows.device) * -0x61C8864680B583EB
    prints = torch.zeros(len(rows), dtype=torch.int64, device=rows.device)
    block = max(1, _BLOCK.get(rows.device.type, 2**20) // max(1, width))
    for start in range(0, len(rows), block):
        # Adding 0.0 makes -0.0 the same bits as 0.0; two numbers are then read as one.
        numbers = F.pad(rows[start : start + block].float() + 0.0, (0, rows.shape[1] % 2))
        prints[start : start + block] = _mixed(numbers.view(torch.int64) + place).sum(dim=1)
    return prints


def _mixed(x: Tensor) -> Tensor:
    """The finaliser of splitmix64; the masks make the arithmetic shifts logical ones."""
    x = (x ^ ((x >> 30) & 0x3FFFFFFFF)) * -0x40A7B892E31B1A47
    x = (x ^ ((x >> 27) & 0x1FFFFFFFFF)) * -0x6B2FB644ECCEEE15
    return x ^ ((x >> 31) & 0x1FFFFFFFF)


def _first_of_each(values: Tensor) -> Tensor:
    """The places, in order and on the CPU, where a value is met for the first time."""
    values = values.cpu()
    kinds, which = torch.unique(values, return_inverse=True)
    first = torch.full((len(kinds),), len(values))
    first.scatter_reduce_(0, which, torch.arange(len(values)), "amin")
    return first.sort().values
