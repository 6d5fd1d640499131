"""What a study has done so far: a file for each training and each judgement, none done twice."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deepcluster.evaluation.bench import Bench
from deepcluster.evaluation.circumstances import circumstances
from deepcluster.runtime.errors import ResumeError
from deepcluster.runtime.run_folder import RunFolder

Part = dict[str, Any]
"""The settings that it was done with, and what it gave."""


@dataclass(frozen=True)
class Parts:
    """The files, and those of other studies."""

    study: Path
    others: tuple[Path, ...]
    bench: Bench
    only_done: bool = False
    """Whether what was not done is refused, and not done now."""

    def place(self, name: str) -> Path:
        """Where a part is, or will be."""
        return self.study / "parts" / f"{name}.json"

    def once(self, name: str, wanted: dict[str, Any], make: Callable[[], Part]) -> Part:
        """What a part gave when it was done; done now if it was not."""
        wanted = as_json(wanted)
        done: Part | None = None
        if self.place(name).exists():
            with suppress(OSError, ValueError):
                done = json.loads(self.place(name).read_text())
        if done is not None:
            self._refuse_other_settings(name, done["settings"], wanted)
            self.bench.display.say(f"  {name}: done before")
            return done
        if self.only_done:
            raise ResumeError(f"{self.place(name)} is not there")
        made = {"settings": wanted, **make(), "made": circumstances()}
        if self.bench.world.leads:
            self.write(name, made)
        self.bench.world.wait()  # nobody looks for the file before it is there
        return made

    def write(self, name: str, part: Part) -> None:
        """Keep a part."""
        place = self.place(name)
        RunFolder(place.parent).write(place.name, json.dumps(part, indent=1) + "\n")

    def lent(self, kind: str) -> Iterator[tuple[Path, Part]]:
        """The parts of a kind that other studies have done."""
        for study in self.others:
            for part in sorted((study / "parts").glob(f"*-{kind}.json")):
                with suppress(OSError, ValueError):
                    yield part, json.loads(part.read_text())

    def _refuse_other_settings(
        self, name: str, before: dict[str, Any], wanted: dict[str, Any]
    ) -> None:
        differences = [
            f"{key}: {before.get(key, 'absent')} there, {wanted.get(key, 'absent')} now"
            for key in sorted({*before, *wanted})
            if before.get(key) != wanted.get(key)
        ]
        if differences:
            raise ResumeError(
                f"{self.place(name)} was made with other settings "
                f"({'; '.join(differences[:3])}); use those, or another --out"
            )


def as_json(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings as they come back from a file."""
    back: dict[str, Any] = json.loads(json.dumps(settings))
    return back


def slug(name: str) -> str:
    """The name as part of a file name."""
    return re.sub(r"[^\w.]+", "-", name).strip("-").lower()
