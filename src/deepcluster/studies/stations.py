"""The stations of a run that grows from row to row: the network of each is kept to be judged.

The run's own folder has only the last one, and a row may be judged long after it was passed: on a
data set that is added later, or anew where a part was deleted.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deepcluster.runtime.errors import ResumeError
from deepcluster.runtime.run_folder import RunFolder

_JUDGED = ("settings.json", "model.safetensors", "groups.safetensors", "closing.json")
"""What judging a network takes; the last one says that the others are there."""


@dataclass(frozen=True)
class Station:
    """A row of a growing run."""

    row: str
    epochs: int
    run: RunFolder
    kept: RunFolder
    """Where what judging takes is kept of it."""

    def keep(self, training: dict[str, Any]) -> None:
        """Keep the network that training came to, if it is not kept and is still in the run."""
        if self.kept.finished or not self._is_last(training):
            return
        for name in _JUDGED:
            source = self.run.path / name
            if source.is_file():
                self.kept.write(name, lambda path, source=source: shutil.copyfile(source, path))  # type: ignore[misc]

    def judged(self) -> RunFolder:
        """Where its network is; raises where the run has gone on and it was not kept."""
        if not self.kept.finished:
            raise ResumeError(
                f"the network of {self.row!r} is not there: {self.run.path} has gone on since, and "
                "an older version kept the last one only; choose another --out"
            )
        return self.kept

    def refuse_judged_late(self, part: Path) -> None:
        """Raise where an older version judged the row when the run had gone on already."""
        following = self.run.path / "assignments" / f"epoch-{self.epochs:04d}.npy"
        if self.kept.finished or not (part.is_file() and following.is_file()):
            return
        if part.stat().st_mtime_ns > following.stat().st_mtime_ns:
            raise ResumeError(
                f"{part} was made by an older version when {self.run.path} had gone on already, so "
                f"that its figures are not those of {self.row!r}; choose another --out"
            )

    def _is_last(self, training: dict[str, Any]) -> bool:
        """Whether the run has left what this training came to, and nothing longer."""
        made = training["closing"].get("sha256")
        return self.run.finished and made is not None and self.run.closing["sha256"] == made
