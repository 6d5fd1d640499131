"""The verbs embed and predict: features and groups of any images, into a file."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import tyro

from deepcluster import flags
from deepcluster.collection.embedding import Outcome, Work, embed, predict
from deepcluster.collection.groups import STRANGE, groups_of
from deepcluster.collection.model import Model, Wanted, load
from deepcluster.collection.table import refuse_output
from deepcluster.flags import Count, RunPlace, refuse_unknown, shown_as
from deepcluster.images.given import opened
from deepcluster.images.source import is_picture, quick_check
from deepcluster.runtime import interruption
from deepcluster.runtime.display import Display
from deepcluster.runtime.durations import duration
from deepcluster.runtime.errors import UsageError

Images = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="IMAGES")]
Out = Annotated[Path, tyro.conf.arg(metavar="FILE")]


@dataclass(frozen=True)
class Embed:
    """Write the features of any images, in the order of their paths.

    Files that cannot be read have no row; they are listed in FILE.unusable.csv. The same command
    continues one that was stopped.
    """

    run: RunPlace
    """Folder of a finished run, or its name in runs/."""

    images: Images
    """Folder, one image, list of paths (.txt, .csv, .parquet), 'tar/shards/*.tar' or store."""

    out: Out
    """.parquet (id, path, vector), .npy (with FILE.paths.csv) or .csv."""

    layer: Annotated[str | None, shown_as("NAME")] = None
    """conv1 ... fc7, or pooled (the last maps); maps are averaged. Without it, the feature that is
    grouped."""

    whiten: bool = False
    """Apply the run's own PCA."""

    normalize: bool = False
    """Scale every vector to unit length."""

    clusters: bool = False
    """Add cluster, distance and margin, as predict gives them."""

    device: str = "auto"
    """cpu, cuda, or auto: the GPU if there is one."""

    workers: Count = None
    """Threads that decode images; one for each core if not given."""


@dataclass(frozen=True)
class Predict:
    """Write the group of any images: cluster, distance, margin to the second group.

    `none` is true where an image is farther away than 99% of the run's own images are: it belongs
    to none of the groups. Files that cannot be read are listed in FILE.unusable.csv. The same
    command continues one that was stopped.
    """

    run: RunPlace
    """Folder of a finished run, or its name in runs/."""

    images: Images
    """Folder, one image, list of paths (.txt, .csv, .parquet), 'tar/shards/*.tar' or store."""

    out: Out
    """.parquet or .csv (id, path, cluster, distance, margin, none)."""

    device: str = "auto"
    """cpu, cuda, or auto: the GPU if there is one."""

    workers: Count = None
    """Threads that decode images; one for each core if not given."""


def embed_verb(words: list[str]) -> int:
    """Carry out `deepcluster embed`; gives the exit code."""
    asked = _parsed(Embed, words, "embed", (".parquet", ".npy", ".csv"))
    with interruption.noticed(), Display().shown() as display:
        model = load(asked.run, asked.device)
        wanted = Wanted(asked.layer, asked.whiten, asked.normalize)
        model.refuse(wanted)
        groups = groups_of(model) if asked.clusters else None
        images = opened(asked.images)
        _say(
            embed(model, images, asked.out, wanted, groups, _work(asked, model, display)),
            asked,
            display,
        )
    return 0


def predict_verb(words: list[str]) -> int:
    """Carry out `deepcluster predict`; gives the exit code."""
    asked = _parsed(Predict, words, "predict", (".parquet", ".csv"))
    with interruption.noticed(), Display().shown() as display:
        model = load(asked.run, asked.device)
        groups = groups_of(model)
        images = opened(asked.images)
        outcome, strange = predict(model, images, asked.out, groups, _work(asked, model, display))
        _say(outcome, asked, display)
        display.say(
            f"{strange:,} of the {outcome.looked:,} looked at belong to no group: they are farther "
            f"from theirs than {groups.farthest:.3f}, as {1 - STRANGE:.0%} of the run's images are "
            '("none")'
        )
    return 0


def _parsed(kind: type[Any], words: list[str], verb: str, suffixes: tuple[str, ...]) -> Any:
    if {"-h", "--help"} & {*words}:
        tyro.cli(kind, args=["--help"], prog=f"deepcluster {verb}")
    known = ["--" + entry.name for entry in fields(kind)]
    refuse_unknown(words, known, f"deepcluster {verb} --help", {})
    asked = flags.parsed(kind, words, verb)
    refuse_output(asked.out, suffixes)
    if not is_picture(asked.images):
        quick_check(asked.images)
    if asked.workers is not None and asked.workers < 1:
        raise UsageError(f"--workers {asked.workers}: use at least 1")
    return asked


def _work(asked: Embed | Predict, model: Model, display: Display) -> Work:
    batch = 256 if model.device.type == "cuda" else 64
    return Work(batch, asked.workers or os.cpu_count() or 1, display)


def _say(outcome: Outcome, asked: Embed | Predict, display: Display) -> None:
    if outcome.unusable:
        display.say(
            f"{_counted(len(outcome.unusable), 'file')} cannot be used: no row, but a line in "
            f"{asked.out.stem}.unusable.csv:"
        )
        for path, reason in outcome.unusable[:10]:
            display.say(f"  {path}: {reason}")
        if len(outcome.unusable) > 10:
            display.say(f"  and {len(outcome.unusable) - 10:,} more")
    before = outcome.images - outcome.looked
    display.say(
        f"{_counted(outcome.images, 'image')} in {asked.out}"
        + (f", {before:,} of them from before" if before else "")
        + f"; {outcome.looked / max(1e-9, outcome.seconds):,.0f} a second "
        f"({duration(outcome.seconds)}); writing {duration(outcome.written_seconds)} "
        f"({outcome.written_bytes / 1e6 / max(1e-9, outcome.written_seconds):,.0f} MB/s)"
    )


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
