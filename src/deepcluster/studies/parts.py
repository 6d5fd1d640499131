"""What a study has done so far: a file for each training and each judgement, none done twice."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deepcluster.evaluation.bench import Bench
from deepcluster.evaluation.circumstances import circumstances
from deepcluster.evaluation.shelf import Shelf
from deepcluster.images.folder import encoded
from deepcluster.images.index import Index
from deepcluster.images.kept import Pixels
from deepcluster.images.selection import selected
from deepcluster.images.source import is_store, source_of
from deepcluster.images.store import MANIFEST, Store
from deepcluster.runtime.errors import DataError, ResumeError
from deepcluster.runtime.run_folder import RunFolder

Part = dict[str, Any]
"""The settings that it was done with, and what it gave."""

Seen = Mapping[Path, str | None]
"""Where the images of a part are, each place with the fingerprint that it had, if that is known."""

_PLACES = ("train", "test", "images", "data", "protocol.whiten_on")  # settings that are paths


@dataclass(frozen=True)
class Parts:
    """The files, and those of other studies."""

    study: Path
    others: tuple[Path, ...]
    bench: Bench
    only_done: bool = False
    """Whether what was not done is refused, and not done now."""
    shelf: Shelf = field(default_factory=Shelf)
    """What is known of stores, for the next part."""

    def place(self, name: str) -> Path:
        """Where a part is, or will be."""
        return self.study / "parts" / f"{name}.json"

    def once(
        self,
        name: str,
        wanted: dict[str, Any],
        make: Callable[[], Part],
        seen: Callable[[Part], Seen] = lambda done: {},
    ) -> Part:
        """What a part gave when it was done; done now if it was not.

        Args:
            name: Of its file.
            wanted: The settings that it is to be done with, or was.
            make: Does it.
            seen: The images that it was done with, if it was.
        """
        wanted = as_json(wanted)
        done: Part | None = None
        if self.place(name).exists():
            with suppress(OSError, ValueError):
                done = json.loads(self.place(name).read_text())
        if done is not None:
            self._refuse_other_settings(name, done["settings"], wanted)
            self._refuse_other_images(name, seen(done))
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
            if _spelt_out(key, before.get(key)) != _spelt_out(key, wanted.get(key))
        ]
        if differences:
            raise ResumeError(
                f"{self.place(name)} was made with other settings "
                f"({'; '.join(differences[:3])}); use those, or another --out"
            )

    def _refuse_other_images(self, name: str, seen: Seen) -> None:
        """Raise where stores tell that images have changed; where there are none, nothing does."""
        for place, fingerprint in seen.items():
            if fingerprint is not None and any(
                is_there != (stored == fingerprint) for stored, is_there in self._stored(place)
            ):
                raise ResumeError(
                    f"the images of {encoded(str(place))} have changed since {self.place(name)} "
                    "was made; put them back, or choose another --out"
                )

    def _stored(self, place: Path) -> list[tuple[str, bool]]:
        """Of every store that may be of a place, the fingerprint, and whether it is as it is now.

        Stores only: to read all images again would take too long where nothing else is to be done.
        """
        stores = [place]
        if not is_store(place):
            begins = f"{place.resolve().stem}-"  # as `packed` calls them, and some others maybe
            every = sorted((self.study / "stores").glob("*"))
            stores = [one for one in every if one.name.startswith(begins) and is_store(one)]
        times = [(one / MANIFEST).stat().st_mtime_ns for one in stores]

        def looked_at() -> list[tuple[str, bool]]:
            found = []
            for one in stores:
                with suppress(DataError, ResumeError):  # a damaged one is made anew by who reads it
                    index = Store(one).index
                    found.append((index.fingerprint, is_of(index, place, self.bench)))
            return found

        return self.shelf(("stored", place, *zip(stores, times, strict=True)), looked_at)


def is_of(index: Index, place: Path, bench: Bench) -> bool:
    """Whether an index is that of the images that are there now."""
    if is_store(place):
        return index.fingerprint == Store(place).index.fingerprint
    how = Pixels(follow_links=bench.follow_links)
    return not any(index.changes(selected(source_of(place), how)))


def as_json(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings as they come back from a file."""
    back: dict[str, Any] = json.loads(json.dumps(settings))
    return back


def _spelt_out(key: str, value: Any) -> Any:
    """A setting as it is compared: a path is the same from the root or from here."""
    return str(Path(value).resolve()) if key in _PLACES and isinstance(value, str) else value


def slug(name: str) -> str:
    """The name as part of a file name."""
    return re.sub(r"[^\w.]+", "-", name).strip("-").lower()
