"""What a run came to, in sentences."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass
from typing import Any, Literal

from deepcluster.report.run_record import RunRecord
from deepcluster.runtime.display import duration

Level = Literal["good", "watch", "bad"]

_ADVICE = {
    "head-is-guessing": "the loss stayed at that of guessing: the network is not learning yet",
    "one-cluster-dominates": "one group holds more than half of the images",
    "clusters-shrunk": "there were fewer distinct images than groups asked for",
    "dimensions-shrunk": "the features fill fewer dimensions than asked for (usual for few images)",
    "rows-excluded": "a few images gave features that are not finite and have no group",
    "many-singletons": "power iteration left many images alone",
    "images-enlarged": "some images are smaller than the network's input and were enlarged",
    "checkpoint-damaged": "a checkpoint was damaged; the one before was used",
}
_GRAVE = ("head-is-guessing", "one-cluster-dominates", "many-singletons")

_COMPARED = {
    "folders": "The nearest image lies in the same folder",
    "pictures": "The nearest crop that shares no pixel is from the same picture",
    "crops": "The nearest of all crops is the other crop of the same image",
}


@dataclass(frozen=True)
class Health:
    """The light on the first line, and why it has its colour."""

    level: Level
    word: str
    reasons: list[str]


@dataclass(frozen=True)
class Comparison:
    """One figure of the trained network beside that of the untrained one."""

    title: str
    untrained: float
    trained: float
    chance: float
    images: int
    level: Level

    @property
    def word(self) -> str:
        """The same, at a glance."""
        return {
            "good": "Training helped",
            "watch": "Not clearly better than untrained",
            "bad": "Not better than untrained",
        }[self.level]

    @property
    def sentence(self) -> str:
        """Whether training has helped, by this figure."""
        if self.level == "good":
            return f"Yes: {self.trained:.1%}, against {self.untrained:.1%} untrained."
        if self.level == "watch":
            return (
                f"Not clearly: {self.trained:.1%}, against {self.untrained:.1%} untrained, which "
                f"{self.images:,} images cannot tell apart."
            )
        return f"No: {self.trained:.1%}, and {self.untrained:.1%} untrained."


def health(record: RunRecord) -> Health:
    """How the run fared, by its journal."""
    reasons: list[str] = []
    level: Level = "good"
    if not record.journal:
        return Health("watch", "No epoch yet", ["No epoch is complete."])
    last = record.journal[-1]
    recent = [*(record.closing or {}).get("warnings", []), *last.get("warnings", [])]
    earlier = [name for entry in record.journal[:-1] for name in entry.get("warnings", [])]
    for name in dict.fromkeys([*recent, *earlier]):
        passed = "" if name in recent else " (in earlier epochs, not in the last)"
        reasons.append(f"{name}: {_ADVICE.get(name, 'see docs/exit-codes.md')}{passed}.")
        if name in _GRAVE and name in recent:
            level = "bad"
        elif name in _GRAVE and level == "good":
            level = "watch"
    loss, guessing = last.get("loss"), last.get("ln_k")
    if isinstance(loss, float) and isinstance(guessing, float) and guessing > 0:
        if loss < 0.95 * guessing:
            words = f"The loss, {loss:.2f}, is below that of guessing, {guessing:.2f}."
        else:
            words = f"The loss, {loss:.2f}, has hardly left that of guessing, {guessing:.2f}."
            level = "watch" if level == "good" else level
        reasons.insert(0, words)
    if not record.finished:
        level = "watch" if level == "good" else level
        reasons.insert(0, "The run is not finished; the same train command continues it.")
    word = {"good": "Healthy", "watch": "Look closer", "bad": "Needs attention"}[level]
    return Health(level, word if record.finished else "Not finished", reasons)


def comparisons(record: RunRecord) -> list[Comparison]:
    """The figures that `train` took of the untrained and the trained network."""
    found = []
    baseline = record.baseline or {}
    images = baseline.get("images", 0)
    for entry in baseline.get("comparisons", []):
        try:
            untrained, trained = float(entry["untrained"]), float(entry["trained"])
            chance, title = float(entry.get("chance", 0.0)), _COMPARED[entry["name"]]
        except (KeyError, TypeError, ValueError):
            continue
        shares = untrained * (1 - untrained) + trained * (1 - trained)
        noise = 2 * math.sqrt(max(shares, 1e-9) / max(1, images))
        gain = trained - untrained
        level: Level = "good" if gain > noise else "watch" if gain > -noise else "bad"
        found.append(Comparison(title, untrained, trained, chance, images, level))
    return found


def seconds_spent(record: RunRecord) -> float:
    """Over all epochs and the closing pass."""
    entries = [*record.journal, *([record.closing] if record.closing else [])]
    spent = [entry.get("seconds") for entry in entries]
    return float(sum(sum(each.values()) for each in spent if isinstance(each, dict)))


def facts(record: RunRecord, groups: int) -> list[tuple[str, str]]:
    """The figures of the first line."""
    effective = record.settings["effective"]
    arch = str(effective.get("network.arch", "network"))
    front = {"sobel": "on edges (Sobel)", "rgb": "on colours"}
    size = effective.get("network.input_size", "?")
    return [
        (f"{len(record.names):,}", "images"),
        (f"{groups:,}", "groups"),
        (f"{len(record.journal):,}", "epochs"),
        (duration(seconds_spent(record)), "of work"),
        (arch, f"{front.get(str(effective.get('network.front')), '')}, {size} px"),
    ]


def ways_on(record: RunRecord) -> list[tuple[str, str]]:
    """What one can do next: why, and the command."""
    run = shlex.quote(str(record.folder.path))
    images = shlex.quote(str(record.settings.get("images", "IMAGES")))
    effective: dict[str, Any] = record.settings["effective"]
    epochs = effective.get("epochs", len(record.journal)) or 1
    k = effective.get("clustering.k")
    words = [str(word) for word in record.settings.get("asked", [])]
    ways = []
    # Without words (the demo, the estimator) the settings cannot be named again.
    if words and not record.finished:
        ways.append(("Continue where the run stopped", f"deepcluster train {shlex.join(words)}"))
    if record.finished:
        longer = shlex.join([*_without(words, "--epochs", "--out"), "--epochs", str(2 * epochs)])
        if words and effective.get("training.schedule", "constant") == "constant":
            ways.append(("Train on, twice as long", f"deepcluster train {longer} --out {run}"))
        else:
            anew = longer if words else f"{images} --epochs {2 * epochs}"
            ways.append(("Train anew, twice as long", f"deepcluster train {anew} --fresh"))
    if isinstance(k, int):
        fewer = max(2, k // 2)
        ways.append(("Fewer, larger groups", f"deepcluster train {images} --k {fewer} --fresh"))
        ways.append(("More, finer groups", f"deepcluster train {images} --k {2 * k} --fresh"))
    if record.finished and record.classes is not None:
        ways.append(("Groups beside your folders", f"deepcluster evaluate {run} agreement"))
    if record.finished:
        ways += [
            ("Search by image, name and merge groups", f"deepcluster explore {run}"),
            (
                "Copies of one picture, as a sheet",
                f"deepcluster duplicates {run} --sheet copies.png",
            ),
            ("What belongs nowhere", f"deepcluster outliers {run} --sheet odd.png"),
            ("Features of other images", f"deepcluster embed {run} IMAGES --out features.parquet"),
            ("What each filter wants to see", f"deepcluster show {run} ascent"),
        ]
    ways.append(("This page again", f"deepcluster report {run}"))
    return ways


def _without(words: list[str], *flags: str) -> list[str]:
    """The words without these flags and their values."""
    kept: list[str] = []
    remaining = iter(words)
    for word in remaining:
        if word in flags:
            next(remaining, None)
        elif word.partition("=")[0] not in flags:
            kept.append(word)
    return kept
