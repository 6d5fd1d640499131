"""The stations of a run that grows from row to row: the network of each is kept to be judged.

The run's own folder has only the last one, and a row may be judged long after it was passed: on a
data set that is added later, or anew where a part was deleted.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from deepcluster.runtime.errors import ResumeError
from deepcluster.runtime.run_folder import RunFolder

_MODEL = "model.safetensors"
_JUDGED = ("settings.json", _MODEL, "groups.safetensors", "closing.json")
"""What judging a network takes; the last one says that the others are there."""


@dataclass(frozen=True)
class Station:
    """A row of a growing run."""

    row: str
    epochs: int
    run: RunFolder
    kept: RunFolder
    """Where what judging takes is kept of it."""
    training: Path
    """The part that says what training it came to."""

    @property
    def weights(self) -> str | None:
        """The SHA-256 of the network that training came to; an older version had none."""
        closing = json.loads(self.training.read_text())["closing"]
        made: str | None = closing.get("sha256", {}).get(_MODEL)
        return made

    def keep(self) -> None:
        """Keep the network that training came to, if it is not kept and is still in the run."""
        if self._is_in(self.kept) or not self._is_in(self.run):
            return
        # Of a training that was done anew: what is cut short here is of neither.
        (self.kept.path / "closing.json").unlink(missing_ok=True)
        for name in _JUDGED:
            source = self.run.path / name
            if source.is_file():
                self.kept.write(name, lambda path, source=source: shutil.copyfile(source, path))  # type: ignore[misc]

    def judged(self) -> RunFolder:
        """Where its network is; raises where the run has gone on and it was not kept."""
        if not self._is_in(self.kept):
            raise ResumeError(
                f"the network of {self.row!r} is not there: {self.run.path} has gone on since, and "
                "an older version kept the last one only, or one of an earlier training; choose "
                "another --out"
            )
        return self.kept

    def refuse_of_another(self, part: Path, weights: str | None) -> None:
        """Raise where the row was judged by another network than training came to.

        Args:
            part: What judging gave.
            weights: Of the network that was judged, as `weights`; an older version did not say.
        """
        if weights is not None:
            if weights != self.weights:
                raise ResumeError(
                    f"{part} was made of another network than {self.row!r} has been trained to "
                    "since; delete that part to have it made anew, or choose another --out"
                )
            return
        following = self.run.path / "assignments" / f"epoch-{self.epochs:04d}.npy"
        if self._is_in(self.kept) or not following.is_file():
            return
        if part.stat().st_mtime_ns > following.stat().st_mtime_ns:
            raise ResumeError(
                f"{part} was made by an older version and, by the times of the files, when "
                f"{self.run.path} had gone on already, so that its figures may not be those of "
                f"{self.row!r} (copying may have changed the times); choose another --out"
            )

    def _is_in(self, folder: RunFolder) -> bool:
        """Whether a finished run has what this training came to, and nothing longer."""
        made = self.weights
        return made is not None and folder.finished and folder.closing["sha256"].get(_MODEL) == made
