"""What a protocol of transfer is, and what it leaves: the same for VOC's tasks and retrieval.

A protocol is a frozen dataclass of settings that one calls, in a file of its own. It asks for the
network of each seed, reads its own data, keeps what is finished stage by stage, and gives figures
with the tables that show them. Where the result is written is not its business.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from rich.table import Table

from deepcluster.evaluation.bench import Bench
from deepcluster.evaluation.circumstances import circumstances
from deepcluster.evaluation.evaluated import Evaluated
from deepcluster.evaluation.shelf import Shelf
from deepcluster.runtime.display import Display
from deepcluster.runtime.run_folder import RunFolder


@dataclass(frozen=True)
class Contender:
    """The network that is judged."""

    name: str
    """A run, or random."""
    network: Callable[[int], Evaluated]
    """A fresh copy of it, on the device, for a seed: an untrained one has the seed's weights."""
    _fingerprints: dict[int, str] = field(default_factory=dict, repr=False, compare=False)

    def fingerprint(self, seed: int) -> str:
        """What names the copy for a seed; it is made once for that."""
        if seed not in self._fingerprints:
            self._fingerprints[seed] = self.network(seed).fingerprint
        return self._fingerprints[seed]


@dataclass(frozen=True)
class Material:
    """What it is judged on."""

    data: Path | None
    """What the user named: a devkit, a folder of buildings."""
    stores: Path = Path("evaluations/stores")
    """Where images may be kept decoded for the next evaluation."""
    shelf: Shelf = field(default_factory=Shelf)
    """What was read of the data, for the next evaluation of this process."""


@dataclass(frozen=True)
class Shown:
    """A table for the screen."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    def on(self, display: Display) -> None:
        """Print it."""
        if not display.speaks:
            return
        table = Table(title=self.title, title_justify="left", box=None, pad_edge=False)
        for number, column in enumerate(self.columns):
            table.add_column(column, justify="left" if number == 0 else "right", no_wrap=True)
        for row in self.rows:
            table.add_row(*row)
        display.console.print(table)


@dataclass(frozen=True)
class Outcome:
    """What a protocol came to."""

    data: dict[str, Any]
    """Which images: place, set, fingerprint, how many, which were left out."""
    result: dict[str, Any]
    """The figures, as JSON has them; shares from 0 to 1, seconds."""
    tables: Sequence[Shown]
    remarks: Sequence[str] = ()
    """Sentences that the reader of the tables should know."""
    settled: dict[str, Any] = field(default_factory=dict)
    """What settings came to that network or data decide where they are not given."""


class Transfer(Protocol):
    """The settings of one protocol, which carry it out."""

    def validate(self) -> None:
        """Refuse what cannot be carried out, before images are read."""
        ...

    def __call__(
        self, contender: Contender, material: Material, bench: Bench, stages: Stages
    ) -> Outcome:
        """Read the data, learn, judge."""
        ...


UNKNOWN: dict[str, Any] = {"commit": None, "versions": {}, "device": "unknown device"}
"""Where a stage came about of which an older version has kept nothing but the result."""


@dataclass(frozen=True)
class Stages:
    """What parts of a long evaluation came to, so that the same command need not repeat them."""

    folder: RunFolder
    common: dict[str, Any] = field(default_factory=dict)
    """What every part depends on."""
    bench: Bench = field(default_factory=Bench)
    fresh: bool = False
    """Whether what was kept is computed again."""
    lenders: Sequence[Path] = ()
    """Folders of other evaluations: what they have computed for the same key is taken over."""
    made: list[dict[str, Any]] = field(default_factory=list, compare=False)
    """By which code and where the parts came about that were asked for so far, each once."""

    def __call__(
        self, name: str, key: dict[str, Any], compute: Callable[[], dict[str, Any]]
    ) -> dict[str, Any]:
        """What `compute` gives, or gave when it was called for the same key.

        Args:
            name: What the part is called, such as seed-0-choice.
            key: All that it depends on beside `common`, as JSON has it: the network's and the
                images' fingerprints, settings, seed.
            compute: The part itself, the same in every process; it gives what JSON can hold.
        """
        world = self.bench.world
        text = json.dumps([self.common, name, key], sort_keys=True)
        digest = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
        file = f"stages/{name}-{digest}.json"
        found = b"" if self.fresh or not world.leads else self._found(name, file)
        found = world.broadcast_bytes(found)
        if not found:
            result = {**compute(), "made": circumstances()}
            found = (json.dumps(result, indent=1) + "\n").encode()
            if world.leads:
                self.folder.write(file, found)
        result = json.loads(found)
        made = result.pop("made", UNKNOWN)
        if made not in self.made:
            self.made.append(made)
        return result

    def _found(self, name: str, file: str) -> bytes:
        """What is kept here; else what others have computed, which is kept here from now on."""
        for place in (self.folder.path, *self.lenders):
            try:
                kept = (place / file).read_bytes()
                json.loads(kept)
            except (OSError, ValueError):
                continue
            own = place == self.folder.path
            if not own:
                self.folder.write(file, kept)
            whence = "kept from before" if own else f"taken from {place}"
            self.bench.display.say(f"{name}: {whence}")
            return kept
        return b""


def time_spent(
    results: Collection[dict[str, Any]], choice: dict[str, Any] | None = None
) -> list[str]:
    """How long it took to choose, if that is known, and to learn and test.

    Each is a line of its own and says nothing else: by that studies leave it out of their tables.

    Args:
        results: Of each seed, with its seconds.
        choice: Its candidates, and the seconds that they took; earlier versions kept none.
    """
    said = []
    if choice is not None and (seconds := choice.get("seconds")):
        among = counted(len(choice["candidates"]), "candidate")
        said.append(f"{sum(seconds.values()):,.1f} s to choose among {among}")
    spent = sum(one["seconds"]["all"] for one in results)
    return [*said, f"{spent:,.1f} s to learn and test with {counted(len(results), 'seed')}"]


def percent(share: float | None) -> str:
    """A share as tables show it."""
    return "-" if share is None else f"{100 * share:.1f}"


def counted(count: int, one: str, many: str | None = None) -> str:
    """How many, and of what; more than one is called `many`, the noun with an s if not given."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
