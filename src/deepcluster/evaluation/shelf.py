"""What several evaluations of one process need alike: read or made once, and then kept."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

Kind = TypeVar("Kind")


class Shelf:
    """Things by name; whoever asks for one first brings it."""

    def __init__(self) -> None:
        self._things: dict[Hashable, Any] = {}

    def __call__(self, name: Hashable, make: Callable[[], Kind]) -> Kind:
        """The thing of that name, which must say all that it depends on."""
        if name not in self._things:
            self._things[name] = make()
        found: Kind = self._things[name]
        return found
