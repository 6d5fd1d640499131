"""Rows of a study that were trained before: run folders in the place of training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path

from deepcluster.evaluation.subject import trained_run
from deepcluster.images.index import Index
from deepcluster.runtime.errors import DataError, ResumeError, UsageError
from deepcluster.runtime.run_folder import RunFolder
from deepcluster.settings import Run, restored
from deepcluster.studies.parts import slug
from deepcluster.studies.study import Row, differing
from deepcluster.studies.terms import Terms

ADOPT, BESIDE = "--adopt", "--beside"


@dataclass(frozen=True)
class Adopted:
    """Finished runs that differ in nothing but their seed."""

    flag: str
    """As the user wrote it, for what is to be said of it."""
    run: Run
    folders: Mapping[int, Path]
    """By seed."""


def adopted(flag: str, words: Sequence[str]) -> dict[str, Adopted]:
    """The runs of every row, of words such as DeepCluster=runs/mine."""
    found: dict[str, Adopted] = {}
    for word in words:
        name, equals, place = word.partition("=")
        if not (name and equals and place):
            raise UsageError(f"{flag} {word}: say which row and which run, such as ROW=runs/mine")
        said = f"{flag} {word}"
        folder = trained_run(place)
        run = _settings(folder, said)
        before = found.get(name)
        if before is None:
            found[name] = Adopted(said, run, {run.seed: folder.path})
            continue
        if run.seed in before.folders:
            other = before.folders[run.seed]
            raise UsageError(f"{said}: it has seed {run.seed}, and so has {other}")
        if others := _but_for_seed(run, before.run):
            raise UsageError(
                f"{said}: seeds of one row differ in nothing else, and this one has "
                f"{_listed(others)}, unlike {next(iter(before.folders.values()))}"
            )
        found[name] = replace(before, folders={**before.folders, run.seed: folder.path})
    return found


def main_of(rows: Sequence[Row], terms: Terms, found: Mapping[str, Adopted]) -> Adopted | None:
    """What was adopted for the row that is nothing but the recipe: its settings are the recipe."""
    main = (row.name for row in rows if row.trained and row.run == terms.recipe)
    return next((found[name] for name in main if name in found), None)


def with_adopted(
    rows: Sequence[Row], adopt: Mapping[str, Adopted], beside: Mapping[str, Adopted]
) -> list[Row]:
    """The rows, some with runs that are there, and rows more for those that stand beside."""
    names = [row.name for row in rows]
    for name, one in adopt.items():
        if name not in names:
            close = get_close_matches(name, names, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(names)}"
            raise UsageError(f"{one.flag}: no such row; {hint}, or {BESIDE} for a row more")
    known = {slug(name): name for name in names}  # what parts are called by
    for name, one in beside.items():
        if name in names:
            raise UsageError(f"{one.flag}: the study has a row of that name; {ADOPT} takes it")
        if not slug(name):
            raise UsageError(f"{one.flag}: give it a name with letters or digits")
        if (other := known.setdefault(slug(name), name)) != name:
            raise UsageError(
                f"{one.flag}: in file names that is the same as {other!r}; call it otherwise"
            )
    made = [_taken(row, adopt[row.name]) if row.name in adopt else row for row in rows]
    more = (Row(name, one.run, adopted=one.folders) for name, one in beside.items())
    return [*made, *more]


def refuse_other_images(folder: RunFolder, images: Index, place: Path) -> None:
    """Raise where the run was trained on other images than these, in whatever order."""
    known = Index.load(folder.index)
    if sorted(known.usable["hash"].to_pylist()) != sorted(images.usable["hash"].to_pylist()):
        raise DataError(
            f"{folder.path} was trained on other images ({len(known):,} of them) than {place} has "
            f"({len(images):,}); the rows of a study have the same ones"
        )


def _taken(row: Row, one: Adopted) -> Row:
    """The row with what was trained before in the place of its own training."""
    if not row.trained:
        raise UsageError(f"{one.flag}: {row.name} is not trained, so that nothing is to be adopted")
    if row.continues is not None:
        raise UsageError(f"{one.flag}: rows of this study are one run on its way; it trains itself")
    ours, theirs = one.run, row.run
    for what, there, wanted in (
        ("is trained on", ours.labels, theirs.labels),
        ("is a", ours.network.arch, theirs.network.arch),
        ("sees", ours.network.front, theirs.network.front),
        ("sees pixels a side:", ours.network.input_size, theirs.network.input_size),
        ("is grouped by", type(ours.clustering).__name__, type(theirs.clustering).__name__),
    ):
        if there != wanted and not (ours.labels == "folders" and what == "is grouped by"):
            raise UsageError(f"{one.flag}: this run {what} {there}, and that row {wanted}")
    return replace(
        row, run=ours, adopted=one.folders, candidates=(), tuned_like=None, note=_noted(row, one)
    )


def _noted(row: Row, one: Adopted) -> str:
    """What is to be said of a run that is not as the row would have been trained."""
    nearest = min((_but_for_seed(one.run, run) for run in (row.candidates or (row.run,))), key=len)
    notes = [row.note] if row.note else []
    if nearest:
        notes.append(f"trained before, with {_listed(nearest)}")
    return "; ".join(notes)


def _but_for_seed(run: Run, other: Run) -> dict[str, object]:
    """Settings in which two runs differ, of those that decide what their networks learn."""
    idle: tuple[str, ...] = ("speed.", "pixels.")  # pixels: as the store of each has them
    if run.labels == other.labels == "folders":
        idle += ("clustering", "whitening.", "draw.")
    return {
        name: value for name, value in differing(run, other).items() if not name.startswith(idle)
    }


def _listed(settings: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in settings.items())


def _settings(folder: RunFolder, said: str) -> Run:
    try:
        return restored(dict(folder.settings["effective"]))
    except (KeyError, TypeError) as error:
        raise ResumeError(
            f"{said}: its settings are not those of this version ({error}), so that it cannot be "
            "compared; train it anew"
        ) from error


def fingerprint(folder: RunFolder) -> str:
    """Names the network that a run has left; raises where it is not whole."""
    folder.verified("model.safetensors")
    model: str = folder.closing["sha256"]["model.safetensors"]
    return model
