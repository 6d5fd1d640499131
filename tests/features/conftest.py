"""Images that are their own features: a stand-in for the index, the decoder and the convnet."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Threads that wait for each other on a busy machine take longer than one alone."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class RowsAsImages:
    """The face of `Images`, where image i shows nothing but its own number."""

    size = 2

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def seen(self, ids: range, batch: int, workers: int, start: int = 0) -> Iterator[Tensor]:
        left = ids[start:]
        for first in range(0, len(left), batch):
            numbers = torch.tensor(list(left[first : first + batch]))
            pixels = torch.zeros(len(numbers), 3, 2, 2, dtype=torch.uint8)
            pixels[:, 0, 0, 0], pixels[:, 0, 0, 1] = numbers // 256, numbers % 256
            yield pixels


class LookupTrunk(nn.Module):
    """A network whose feature of image i is row i of a table."""

    def __init__(self, table: Tensor, at_batch: Callable[[int], None] = lambda batch: None) -> None:
        super().__init__()
        self.table = table
        self.batches = 0
        self.modes: list[bool] = []
        self._at_batch = at_batch

    def forward(self, images: Tensor) -> Tensor:
        if len(images) == 1 and not images.any():  # asked for the width
            return self.table[:1]
        self.modes.append(self.training)
        self.batches += 1
        self._at_batch(self.batches)
        pixels = (images[:, 0, 0, :2] * (0.229 * 255) + 0.485 * 255).round().long()
        return self.table[pixels[:, 0] * 256 + pixels[:, 1]]


@pytest.fixture
def lookup() -> Callable[..., tuple[LookupTrunk, RowsAsImages]]:
    """Makes a network and images whose features are the given rows."""

    def make(
        table: Tensor, at_batch: Callable[[int], None] = lambda batch: None
    ) -> tuple[LookupTrunk, RowsAsImages]:
        return LookupTrunk(table, at_batch), RowsAsImages(len(table))

    return make


@pytest.fixture
def mixed_rows() -> Callable[..., Tensor]:
    """Makes correlated rows."""

    def make(count: int, width: int, mean: float = 0.0, seed: int = 0) -> Tensor:
        source = torch.Generator().manual_seed(seed)
        mixing = torch.randn(width, width, generator=source)
        return mean + torch.randn(count, width, generator=source) @ mixing

    return make
