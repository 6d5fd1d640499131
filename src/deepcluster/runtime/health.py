"""How a run fares, by its journal: one light, and why it has its colour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Level = Literal["good", "watch", "bad"]

WORDS: dict[Level, str] = {"good": "no warnings", "watch": "look closer", "bad": "needs attention"}

_ADVICE = {
    "head-is-guessing": "the loss stayed at that of guessing: the network is not learning yet",
    "one-cluster-dominates": "one group holds more than half of the images",
    "clusters-shrunk": "there were fewer distinct images than groups asked for",
    "dimensions-shrunk": "the features fill fewer dimensions than asked for (usual for few images)",
    "rows-excluded": "a few images gave features that are not finite and have no group",
    "many-singletons": "power iteration left many images alone",
    "images-enlarged": "images are smaller than the network's input, or kept so, and were enlarged",
    "checkpoint-damaged": "a checkpoint was damaged; the one before was used",
}
_GRAVE = ("head-is-guessing", "one-cluster-dominates", "many-singletons")
_HARDLY = 0.95  # of the loss of guessing
_FEW = 20  # images, below which figures are chance; so they are below two to a group


@dataclass(frozen=True)
class Health:
    """The light, in a word what is wrong, and all that is to be said in sentences."""

    level: Level
    cause: str
    """The name of the warning that decides, or what else does; empty where all is well."""
    reasons: list[str]

    @property
    def verdict(self) -> str:
        """At a glance."""
        return WORDS[self.level] + (f": {self.cause}" if self.cause else "")


def health_of(
    journal: Sequence[Mapping[str, Any]], warnings: Sequence[str] = (), images: int | None = None
) -> Health:
    """By the journal's lines, the names of warnings since the last one, and the images if known."""
    last = journal[-1] if journal else {}
    recent = [*warnings, *last.get("warnings", [])]
    earlier = [name for entry in journal[:-1] for name in entry.get("warnings", [])]
    reasons: list[str] = []
    level: Level = "good"
    cause = ""
    for name in dict.fromkeys([*recent, *earlier]):
        passed = "" if name in recent else " (in earlier epochs, not in the last)"
        reasons.append(f"{name}: {_ADVICE.get(name, 'see docs/exit-codes.md')}{passed}.")
        if name in _GRAVE and name in recent and level != "bad":
            level, cause = "bad", name
        elif name in _GRAVE and level == "good":
            level, cause = "watch", f"{name} before"
    loss, guessing = last.get("loss"), last.get("ln_k")
    if isinstance(loss, float) and isinstance(guessing, float) and guessing > 0:
        if loss < _HARDLY * guessing:
            words = f"The loss, {loss:.2f}, is below that of guessing, {guessing:.2f}."
        else:
            words = f"The loss, {loss:.2f}, has hardly left that of guessing, {guessing:.2f}."
            if level == "good":
                level, cause = "watch", "the loss is near that of guessing"
        reasons.insert(0, words)
    groups = last.get("clusters", 0)
    if images is not None and (images < _FEW or images < 2 * groups):
        among = f" in {groups:,} groups" if groups else ""
        reasons.insert(0, f"Nothing can be told of so few images: {images:,}{among}.")
        if level != "bad":
            level, cause = "watch", "too few images to tell"
    return Health(level, cause, reasons)
