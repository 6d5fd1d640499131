"""The verbs runs and diff: which runs there are, and how two of them differ."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import tyro

from deepcluster import flags
from deepcluster.flags import RunPlace, refuse_unknown
from deepcluster.runtime.display import Display
from deepcluster.runtime.errors import DeepClusterError, UsageError
from deepcluster.runtime.health import health_of
from deepcluster.runtime.run_folder import RunFolder, finished_run

_HEAD = ("run", "images", "network", "groups", "epochs", "loss", "same as last", "state", "verdict")
_OF_THE_NETWORK = ("network.", "pixels.")  # settings that an imported run has
_EXAMPLES = 3  # images named on each side


@dataclass(frozen=True)
class Runs:
    """List the runs in a folder, oldest first, each with what its journal says of its health."""

    folder: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="FOLDER")] = Path("runs")
    """Where to look; runs in its sub-folders are found too."""


@dataclass(frozen=True)
class Diff:
    """Show how two finished runs differ: settings, images, figures, and groups."""

    run: RunPlace
    """Folder of a finished run, or its name in runs/."""

    other: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="OTHER")]
    """Another, named in the same way."""


def runs_verb(words: list[str]) -> int:
    """Carry out `deepcluster runs`; gives the exit code."""
    if {"-h", "--help"} & {*words}:
        tyro.cli(Runs, args=["--help"], prog="deepcluster runs")
    refuse_unknown(words, [], "deepcluster runs --help", {})
    asked = flags.parsed(Runs, words, "runs")
    if not asked.folder.is_dir():
        raise UsageError(f"{asked.folder}: no such folder; train makes runs/")
    display = Display()
    found = list(_found(asked.folder))
    if not found:
        display.say(f"no runs in {asked.folder}")
        return 0
    begun = sorted(found, key=lambda folder: (folder.path / "settings.json").stat().st_mtime)
    rows = [_HEAD, *(_row(folder, asked.folder) for folder in begun)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    for row in rows:
        cells = (text.ljust(width) for text, width in zip(row, widths, strict=True))
        display.say("  ".join(cells).rstrip())
    return 0


def diff_verb(words: list[str]) -> int:
    """Carry out `deepcluster diff`; gives the exit code."""
    if {"-h", "--help"} & {*words}:
        tyro.cli(Diff, args=["--help"], prog="deepcluster diff")
    known = ["--" + entry.name for entry in fields(Diff)]
    refuse_unknown(words, known, "deepcluster diff --help", {})
    asked = flags.parsed(Diff, words, "diff")
    one, other = finished_run(asked.run), finished_run(asked.other)
    with Display().shown() as display:
        with display.phase("comparing the runs", 1, {}, "compare"):
            lines = differences(one, other)
        for line in lines:
            display.say(line)
    return 0


def differences(one: RunFolder, other: RunFolder) -> list[str]:
    """How two runs differ, line by line."""
    return [*_settings(one, other), *_figures(one, other), *_images_and_groups(one, other)]


def _found(folder: Path) -> Iterator[RunFolder]:
    """The runs in a folder; what is inside a run is not looked at."""
    if RunFolder(folder).exists:
        yield RunFolder(folder)
        return
    for path in sorted(folder.iterdir()):
        if path.is_dir() and not path.is_symlink() and not path.name.startswith("."):
            yield from _found(path)


def _row(folder: RunFolder, root: Path) -> tuple[str, ...]:
    name = str(folder.path.relative_to(root)) if folder.path != root else folder.path.name
    try:
        effective = folder.settings["effective"]
        closing = folder.closing if folder.finished else {}
    except DeepClusterError as error:
        return (name, "", "", "", "", "", "", "damaged", str(error))
    journal = folder.journal()
    last = journal[-1] if journal else {}
    nmi = closing.get("nmi_last", last.get("nmi_last"))  # of the groups that are left, if they are
    state = next(
        (kind for kind in ("imported", "exported") if closing.get(kind)),
        "finished" if closing else "not finished",
    )
    return (
        name,
        f"{closing['images']:,}" if closing else "",
        " ".join(str(effective[f"network.{what}"]) for what in ("arch", "front", "input_size")),
        f"{closing.get('clusters', last.get('clusters', effective.get('clustering.k', '')))}",
        # What was asked for says nothing of a run that its minutes have ended.
        f"{closing['epochs']}" if closing else f"{len(journal)}/{effective['epochs']}",
        f"{last['loss']:.3f}" if "loss" in last else "",
        f"{nmi:.3f}" if nmi is not None else "",
        state,
        health_of(journal, closing.get("warnings", []), closing.get("images")).verdict
        if journal
        else "",
    )


def _settings(one: RunFolder, other: RunFolder) -> list[str]:
    ours, theirs = one.settings["effective"], other.settings["effective"]
    names = sorted({*ours, *theirs})
    imported = [run for run in (one, other) if run.closing.get("imported")]
    if imported:  # how such a network was trained is not known
        names = [name for name in names if name.startswith(_OF_THE_NETWORK)]
    lines = [
        f"  {name}: {ours.get(name, 'absent')} | {theirs.get(name, 'absent')}"
        for name in names
        if ours.get(name) != theirs.get(name)
    ]
    versions = [
        f"  {name}: {one.settings.get(name)} | {other.settings.get(name)}"
        for name in ("version", "torch")
        if one.settings.get(name) != other.settings.get(name)
    ]
    lines += versions
    head = f"settings: {len(lines)} differ" if lines else "settings: the same"
    if imported:
        head += f"; how {' and '.join(str(run.path) for run in imported)} was trained is not known"
    return [head, *lines]


def _figures(one: RunFolder, other: RunFolder) -> list[str]:
    lines = ["figures:"]
    names = ("epochs", "clusters", "clustering_loss", "nmi_last", "nmi_labels")
    both: list[tuple[str, Any, Any]] = [
        (name, one.closing.get(name), other.closing.get(name)) for name in names
    ]
    losses = [
        journal[-1].get("loss") if (journal := run.journal()) else None for run in (one, other)
    ]
    both.append(("last training loss", losses[0], losses[1]))
    return lines + [f"  {name}: {_number(a)} | {_number(b)}" for name, a, b in both]


def _images_and_groups(one: RunFolder, other: RunFolder) -> list[str]:
    without = [run for run in (one, other) if "index.parquet" not in run.closing["sha256"]]
    if without:
        which = " and ".join(str(run.path) for run in without)
        return [f"images and groups: not to be compared; {which} has no list of images"]
    # Late: `runs` imports no torch.
    import torch

    from deepcluster.clusters import normalized_mutual_information
    from deepcluster.collection.groups import read_clusters
    from deepcluster.images.index import Index

    contents = [
        dict(zip(index["path"].to_pylist(), index["hash"].to_pylist(), strict=True))
        for index in (Index.load(run.verified("index.parquet")).usable for run in (one, other))
    ]
    common = [path for path in contents[0] if contents[0][path] == contents[1].get(path)]
    lines = [f"images: {len(common):,} in both"]
    for which, mine, its in (
        ("first", contents[0], contents[1]),
        ("second", contents[1], contents[0]),
    ):
        only = [path for path in mine if mine[path] != its.get(path)]
        if only:
            more = " ..." if len(only) > _EXAMPLES else ""
            lines.append(
                f"  {len(only):,} in the {which} only: {', '.join(only[:_EXAMPLES])}{more}"
            )
    if len(common) < 2:
        return lines
    tables = [read_clusters(run) for run in (one, other)]
    labels = []
    for table in tables:
        group = dict(zip(table.path, table.cluster.tolist(), strict=True))
        labels.append(torch.tensor([group[path] for path in common]))
    same = normalized_mutual_information(labels[0], labels[1])
    return [*lines, f"groups: NMI {same:.3f} over the {len(common):,} common images"]


def _number(value: Any) -> str:
    return "-" if value is None else f"{value:.4f}" if isinstance(value, float) else f"{value:,}"
