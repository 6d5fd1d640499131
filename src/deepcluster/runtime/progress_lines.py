"""Lines of progress beside data that grows: what they tell of is on the disk, whatever happens."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any


def whole_lines(path: Path) -> Iterator[tuple[dict[str, Any], int]]:
    """The lines of progress that were written to the end, and where each ends."""
    if not path.exists():
        return
    length = 0
    with path.open("rb") as file:
        for text in file:
            length += len(text)
            if not text.endswith(b"\n"):
                return
            try:
                yield json.loads(text), length
            except ValueError:
                return


def on_disk(file: IO[bytes]) -> None:
    """Return when all that was written to the file is on the disk."""
    file.flush()
    os.fsync(file.fileno())
