"""A tiny network and an easy problem."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

from deepcluster.networks import Network, build_network, fresh_head
from deepcluster.pseudolabels import Batch
from deepcluster.runtime import faults
from deepcluster.runtime.seeds import generator


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Threads that wait for each other on a busy machine take longer than one alone."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def tiny() -> Callable[..., Network]:
    """Makes a network with a head for `count` clusters; the same one every time."""

    def make(count: int = 2, dropout: float = 0.5) -> Network:
        network = build_network(
            "alexnet", "sobel", 64, dropout=dropout, width=16, generator=generator(0, "network")
        )
        network.head = fresh_head(network.width, count, generator(0, "head"))
        return network

    return make


@pytest.fixture
def stripes() -> Callable[..., list[Batch]]:
    """Makes batches of images with lines across (0) or lines down (1)."""

    def make(steps: int, size: int = 8, first: int = 0) -> list[Batch]:
        source = torch.Generator().manual_seed(0)
        batches = []
        for step in range(steps):
            labels = torch.arange(size) % 2
            lines = 200 * ((torch.arange(64) // 4) % 2).float()
            across, down = lines[:, None].expand(64, 64), lines[None, :].expand(64, 64)
            images = torch.stack([down if label else across for label in labels])
            noisy = images[:, None] + 40 * torch.rand(size, 3, 64, 64, generator=source)
            batches.append(Batch(step, noisy.byte(), labels, torch.ones(size), size))
        return batches[first:]

    return make


@pytest.fixture
def fault() -> Iterator[Callable[[str], None]]:
    """Asks for a fault; no test leaves one behind."""
    yield faults.ask
    faults.ask("")
