"""What a study has done so far: a file for each training and each judgement, none done twice."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from deepcluster.evaluation.bench import Bench
from deepcluster.evaluation.circumstances import circumstances
from deepcluster.evaluation.shelf import Shelf
from deepcluster.images.folder import decoded, encoded
from deepcluster.images.index import Index
from deepcluster.images.kept import Pixels
from deepcluster.images.selection import selected
from deepcluster.images.source import is_store, source_of
from deepcluster.images.store import MANIFEST, Store
from deepcluster.runtime.errors import DataError, ResumeError
from deepcluster.runtime.run_folder import RunFolder
from deepcluster.settings import completed

Part = dict[str, Any]
"""The settings that it was done with, and what it gave."""

Seen = Mapping[Path, str | None]
"""Where the images of a part are, each place with the fingerprint that it had, if that is known."""

_CHANGED = b"changed"
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
        changed: Callable[[Part], str | None] = lambda done: None,
    ) -> Part:
        """What a part gave when it was done; done now if it was not.

        Args:
            name: Of its file.
            wanted: The settings that it is to be done with, or was.
            make: Does it.
            seen: The images that it was done with, if it was.
            changed: In words what else it was done with has changed since, if anything has.
        """
        wanted = as_json(wanted)
        done: Part | None = None
        if self.place(name).exists():
            with suppress(OSError, ValueError):
                done = json.loads(self.place(name).read_text())
        if isinstance(done, dict) and isinstance(done.get("settings"), dict):  # else: done anew
            self._refuse_other_settings(name, done["settings"], wanted)
            self._refuse_other_images(name, seen(done))
            if what := changed(done):
                raise ResumeError(
                    f"{what} since {self.place(name)} was made; put it back, delete that part to "
                    "have it made anew, or choose another --out"
                )
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
                with suppress(OSError, ValueError, TypeError, KeyError):  # who has those lends none
                    done = json.loads(part.read_text())
                    yield part, {**done, "settings": completed(done["settings"])}

    def _refuse_other_settings(
        self, name: str, before: dict[str, Any], wanted: dict[str, Any]
    ) -> None:
        before = completed(before)
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
            if fingerprint is not None and self._have_changed(place, fingerprint):
                raise ResumeError(
                    f"the images of {encoded(str(place))} have changed since {self.place(name)} "
                    "was made; put them back, or choose another --out"
                )

    def _have_changed(self, place: Path, fingerprint: str) -> bool:
        """Whether the images of a place are others than they were; the leader looks for all."""
        world = self.bench.world
        if not world.leads:
            return world.heard() == _CHANGED
        with world.others_waiting():
            own = [one for one in self._stored(place) if one.fingerprint == fingerprint]
            others = [one for one in self._stored(place) if one.fingerprint != fingerprint]
            changed = not any(self._is_there(one, place) for one in own) and (
                bool(own) or any(self._is_there(one, place) for one in others)
            )
        world.broadcast_bytes(_CHANGED if changed else b"the same")
        return changed

    def _stored(self, place: Path) -> list[Index]:
        """The indices of all stores that may be of a place.

        Stores only: to read all images again would take too long where nothing else is to be done.
        """
        stores = [place]
        if not is_store(place):
            begins = f"{place.resolve().stem}-"  # as `packed` calls them, and some others maybe
            every = sorted((self.study / "stores").glob("*"))
            stores = [one for one in every if one.name.startswith(begins) and is_store(one)]
        found = []
        for one in stores:
            with suppress(DataError, ResumeError, OSError):  # who reads a damaged one makes it anew
                time = (one / MANIFEST).stat().st_mtime_ns
                found.append(self.shelf(("index", one, time), partial(_index_of, one)))
        return found

    def _is_there(self, index: Index, place: Path) -> bool:
        """Whether an index is that of the images that are there now, looked at once."""
        return self.shelf(("there", id(index), place), lambda: is_of(index, place, self.bench))


def _index_of(store: Path) -> Index:
    return Store(store).index


def is_of(index: Index, place: Path, bench: Bench) -> bool:
    """Whether an index is that of the images that are there now; unusable files may be gone."""
    if is_store(place):
        return index.fingerprint == Store(place).index.fingerprint
    how = Pixels(follow_links=bench.follow_links)
    changes = index.changes(selected(source_of(place), how))
    usable = {decoded(path) for path in index.usable["path"].to_pylist()}
    return not (changes.added or changes.changed or usable & {*changes.removed})


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
