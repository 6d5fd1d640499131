"""A display that remembers its phases."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from deepcluster.runtime.display import Display


class Phases(Display):
    """Says nothing, and knows of every phase its title, what was done in it, and of how much."""

    def __init__(self) -> None:
        super().__init__(speaks=False)
        self.ended: list[tuple[str, int, int]] = []
        self.open = 0

    @contextmanager
    def phase(self, name: str, total: int, seconds: dict[str, float], key: str) -> Iterator[Any]:
        """As before; one within another would end what is shown of it."""
        assert not self.open, name
        self.open += 1
        try:
            with super().phase(name, total, seconds, key) as phase:
                yield phase
                self.ended.append((phase.label, phase.done, phase.total))
        finally:
            self.open -= 1
