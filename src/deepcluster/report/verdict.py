"""What a run came to, in sentences."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass
from typing import Any

from deepcluster.report.groups import Group
from deepcluster.report.run_record import RunRecord
from deepcluster.runtime.durations import duration
from deepcluster.runtime.health import WORDS, Level, health_of

_CLEAR = 0.7  # share of a group's images from one folder, as in the paper's pure clusters

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
    """One figure of the network before its first step and after training."""

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
            "watch": "Not clearly better than before training",
            "bad": "Not better than before training",
        }[self.level]

    @property
    def reason(self) -> str:
        """Why it is said, in the words of one who has not seen the page yet."""
        what = self.title[0].lower() + self.title[1:]
        before = f"before training for {self.untrained:.1%}"
        return f"{what} for {self.trained:.1%} of images, {before}."

    @property
    def sentence(self) -> str:
        """Whether training has helped, by this figure."""
        if self.level == "good":
            return f"Yes: {self.trained:.1%}, against {self.untrained:.1%} before."
        if self.level == "watch":
            return (
                f"Not clearly: {self.trained:.1%}, against {self.untrained:.1%} before, which "
                f"{self.images:,} images cannot tell apart."
            )
        return f"No: {self.trained:.1%}, and {self.untrained:.1%} before."


def health(record: RunRecord) -> Health:
    """How the run fared, by its journal."""
    if not record.journal:
        return Health("watch", "No epoch yet", ["No epoch is complete."])
    since = (record.closing or {}).get("warnings", [])
    found = health_of(record.journal, since, len(record.names) or None)
    if record.finished:
        return Health(found.level, WORDS[found.level].capitalize(), found.reasons)
    level: Level = "watch" if found.level == "good" else found.level
    unfinished = "The run is not finished; the same train command continues it."
    return Health(level, "Not finished", [unfinished, *found.reasons])


def comparisons(record: RunRecord) -> list[Comparison]:
    """The figures that `train` took of the network before its first step and after the last."""
    found = []
    baseline = record.baseline or {}
    for entry in baseline.get("comparisons", []):
        try:
            untrained, trained = float(entry["untrained"]), float(entry["trained"])
            chance, title = float(entry.get("chance", 0.0)), _COMPARED[entry["name"]]
            images = int(entry.get("images", baseline.get("images", 0)))
        except (KeyError, TypeError, ValueError):
            continue
        shares = untrained * (1 - untrained) + trained * (1 - trained)
        noise = 2 * math.sqrt(max(shares, 1e-9) / max(1, images))
        gain = trained - untrained
        level: Level = "good" if gain > noise else "watch" if gain > -noise else "bad"
        found.append(Comparison(title, untrained, trained, chance, images, level))
    return found


def clear_groups(record: RunRecord, groups: list[Group]) -> str:
    """How many groups are of one folder, in a sentence; empty where folders say nothing."""
    if record.classes is None or not groups:
        return ""
    clear = [group for group in groups if group.folder_share > _CLEAR]
    share = sum(group.size for group in clear) / sum(group.size for group in groups)
    return (
        f"In {len(clear):,} of {len(groups):,} groups more than {_CLEAR:.0%} of the images are "
        f"from one folder; {share:.0%} of the images lie in these. The network never saw folders."
    )


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
        longer = shlex.join(_twice_as_long(words, effective, len(record.journal)))
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


def _twice_as_long(words: list[str], effective: dict[str, Any], done: int) -> list[str]:
    """The words with twice of what ended the run: minutes where they did, else epochs."""
    minutes, epochs = effective.get("minutes"), effective.get("epochs", done) or 1
    if minutes and done < epochs:
        return [*_without(words, "--minutes", "--out"), "--minutes", f"{2 * minutes:g}"]
    twice = 2 * (epochs if minutes is None else max(1, done))
    return [*_without(words, "--epochs", "--minutes", "--out"), "--epochs", str(twice)]


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
