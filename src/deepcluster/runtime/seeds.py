"""Named randomness: a stream is a function of (seed, purpose, epoch[, draw]) and nothing else.

No generator state is ever saved, and neither order nor crops depend on workers or ranks.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def stream(seed: int, purpose: str, *where: int) -> int:
    """A 63-bit number that names one stream; the same arguments give the same number anywhere."""
    name = "/".join([str(seed), purpose, *map(str, where)])
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big") >> 1


def generator(seed: int, purpose: str, *where: int) -> torch.Generator:
    """A torch generator at the start of the named stream (on the CPU, whatever the device)."""
    import torch

    return torch.Generator().manual_seed(stream(seed, purpose, *where))


def uniforms(
    seed: int, purpose: str, epoch: int, draws: NDArray[np.int64], count: int
) -> NDArray[np.float64]:
    """`count` numbers in [0, 1) for each draw: row d depends on draw d alone.

    A counter-based generator (the finaliser of splitmix64 over key and counter), so that any
    draw of any epoch is reached at once, in any order, by any worker.
    """
    key = np.uint64(stream(seed, purpose, epoch))
    counter = draws.astype(np.uint64)[:, None] * np.uint64(count) + np.arange(count).astype(
        np.uint64
    )
    bits: NDArray[np.uint64] = _mixed(_mixed(counter * _GOLDEN + key) ^ key)
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
