"""The verb label: a few labels spread to all images of a run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro

from deepcluster import flags
from deepcluster.collection.groups import read_clusters
from deepcluster.collection.kept_features import KeptFeatures
from deepcluster.collection.labelling import most_helpful, read_labels, spread
from deepcluster.collection.table import write_csv
from deepcluster.flags import RunPlace, refuse_unknown
from deepcluster.runtime.display import Display
from deepcluster.runtime.errors import UsageError
from deepcluster.runtime.run_folder import finished_run

ASKED = 20


@dataclass(frozen=True)
class Label:
    """Spread a few labels to all images of a run, by nearest neighbours and by a linear probe.

    Says how often each way is right about labels that were held back, and lists the 20 images
    whose label would help most in FILE.ask.csv: fill in their labels, add them to the others, and
    give the command again with another FILE.
    """

    run: RunPlace
    """Folder of a finished run, or its name in runs/."""

    labels: Annotated[Path, tyro.conf.arg(metavar="CSV")]
    """The labels that are known: columns path (as in clusters.parquet, or the file) and label."""

    out: Annotated[Path, tyro.conf.arg(metavar="FILE")]
    """A .csv: id, path, given, and by each way a label with its confidence."""


def label_verb(words: list[str]) -> int:
    """Carry out `deepcluster label`; gives the exit code."""
    if {"-h", "--help"} & {*words}:
        tyro.cli(Label, args=["--help"], prog="deepcluster label")
    known = ["--" + entry.name for entry in fields(Label)]
    refuse_unknown(words, known, "deepcluster label --help", {})
    asked = flags.parsed(Label, words, "label")
    ask = asked.out.with_name(f"{asked.out.stem}.ask.csv")
    if asked.out.suffix.lower() != ".csv":
        raise UsageError(f"--out {asked.out}: name a .csv file")
    for place in (asked.out, ask):
        if place.exists():
            raise UsageError(f"--out {asked.out}: {place} exists; name another file")
    folder = finished_run(asked.run)
    clusters = read_clusters(folder)
    rows = KeptFeatures(folder, len(clusters.path)).rows
    labels = read_labels(asked.labels, clusters.path, Path(folder.settings["images"]))
    with Display().shown() as display:
        counts = Counter(labels.values()).most_common()
        display.say(
            f"{len(labels):,} labels for {len(rows):,} images: "
            + ", ".join(f"{count} {name}" for name, count in counts[:10])
        )
        with display.phase("labelling", len(rows), {}, "label") as phase:
            ways = spread(rows, labels, phase.advance)
        for way in ways:
            told = (
                "not known: a label occurs once only"
                if way.accuracy is None
                else f"{way.accuracy:.1%} of labels held back are right"
            )
            display.say(f"  by {way.name}: {told}; mean confidence {way.confidence.mean():.2f}")
        if all(way.doubted for way in ways):
            name, count = counts[0]
            display.say(
                f"  always saying {name} is right about {count / len(labels):.1%}: {len(labels)} "
                "labels do not show that these are better, so do not rely on them; the features "
                "may not tell such labels apart (train longer, or on more images), or more labels "
                "are needed"
            )
        given = [labels.get(number, "") for number in range(len(rows))]
        doubt = 1 - np.mean([way.margin for way in ways], axis=0)
        doubt[sorted(labels)] = -np.inf
        doubt[clusters.cluster < 0] = -np.inf
        helpful = most_helpful(rows, doubt, ASKED)
        columns = [(way.labels.tolist(), way.confidence.round(4).tolist()) for way in ways]
        names = [f"{way.name}{part}" for way in ways for part in ("", "_confidence")]
        lines = zip(
            range(len(rows)),
            clusters.path,
            given,
            *(c for pair in columns for c in pair),
            strict=True,
        )
        write_csv(asked.out, ["id", "path", "given", *names], lines)
        write_csv(
            ask,
            ["path", "label", "perhaps"],
            [(clusters.path[n], "", ways[1].labels[n]) for n in helpful.tolist()],
        )
        display.say(
            f"{len(rows):,} images in {asked.out}; the {len(helpful)} whose label would help most "
            f"are in {ask}"
        )
        for number in helpful.tolist():
            display.say(f"  {clusters.path[number]}")
    return 0
