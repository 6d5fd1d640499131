"""The run folder: what a run leaves on disk, readable without torch.

`settings.json` what was asked and what it came to; `index.parquet` the verdict on every file;
`journal.jsonl` one line per epoch; `assignments/` the labels of each epoch; `checkpoints/`;
and, from the closing pass, `clusters.parquet`, `features.npy`, `groups.safetensors`,
`model.safetensors` and, last of all, `closing.json`, which says that the run is finished.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepcluster.runtime import faults
from deepcluster.runtime.errors import ResumeError, StorageError, UsageError

FORMAT = 1
RESULTS = (
    "model.safetensors",
    "groups.safetensors",
    "features.npy",
    "clusters.parquet",
    "index.parquet",
)
"""What the closing pass vouches for by hash."""

_REMEDY = (
    "put it back, or delete closing.json and give the train command again, which makes the closing "
    "pass again"
)
RUNS = Path("runs")  # where train puts what has no --out
_OF_A_RUN_THAT_HARDLY_BEGAN = ("lock", "store", "index.parquet", "index.parquet.partial")


class RunFolder:
    """One run's folder. Files appear in it whole or not at all."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def index(self) -> Path:
        """Where the verdict on every image file is kept."""
        return self.path / "index.parquet"

    @property
    def checkpoints(self) -> Path:
        """Where the checkpoints are kept."""
        return self.path / "checkpoints"

    @property
    def scratch(self) -> Path:
        """Raw features of the epoch under way; nothing that is needed for long."""
        return self.path / "scratch"

    @property
    def store(self) -> Path:
        """Where the decoded images are kept."""
        return self.path / "store"

    @property
    def exists(self) -> bool:
        """Whether a run was begun here."""
        return (self.path / "settings.json").is_file()

    @property
    def finished(self) -> bool:
        """Whether the closing pass was written."""
        return (self.path / "closing.json").is_file()

    @property
    def settings(self) -> dict[str, Any]:
        """What was asked of the run and what it came to."""
        try:
            settings: dict[str, Any] = json.loads((self.path / "settings.json").read_text())
        except (OSError, ValueError) as error:
            raise ResumeError(
                f"{self.path}/settings.json cannot be read ({error}); put it back"
            ) from error
        if not isinstance(settings, dict) or not {"format", "effective", "data"} <= {*settings}:
            raise ResumeError(
                f"{self.path}/settings.json is not that of a run; choose another folder"
            )
        if not isinstance(settings["effective"], dict):
            raise ResumeError(
                f"{self.path}/settings.json is damaged: its settings (effective) are no table; put "
                "the run's own file back"
            )
        if not isinstance(settings["format"], int) or settings["format"] < 1:
            raise ResumeError(
                f"{self.path}/settings.json has the format {settings['format']!r}, which no "
                "version of deepcluster writes; put the run's own file back"
            )
        if settings["format"] > FORMAT:
            raise ResumeError(
                f"{self.path} was written by deepcluster {settings.get('version')}, which is newer "
                "than this one; upgrade with pip install --upgrade deepcluster"
            )
        wrote = settings.get("version")
        settings["effective"] = _Effective(settings["effective"], self.path, wrote)
        return settings

    @property
    def closing(self) -> dict[str, Any]:
        """The figures of the closing pass, and the hashes of what it left."""
        try:
            closing: dict[str, Any] = json.loads((self.path / "closing.json").read_text())
            if not isinstance(closing["sha256"], dict):
                raise ValueError("its hashes are no table")
        except FileNotFoundError:
            raise ResumeError(
                f"{self.path} is not finished; the train command that began it continues it"
            ) from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            # An earlier version kept no hashes: the closing pass is made again, nothing else.
            raise ResumeError(
                f"{self.path}/closing.json is damaged or of an earlier version ({error}); delete "
                "it and give the train command again, which makes the closing pass again"
            ) from error
        return closing

    def hashes(self) -> dict[str, str]:
        """The SHA-256 of each of the results that are there."""
        return {name: sha256(self.path / name) for name in RESULTS if (self.path / name).is_file()}

    def verified(self, name: str) -> Path:
        """Where one of the results is; raises if it is not what the closing pass left."""
        closing = self.closing
        expected = closing["sha256"].get(name)
        if expected is None and (kind := _without_images(closing)):
            raise UsageError(f"{self.path} has no {name}: {kind}")
        if expected is None:
            raise ResumeError(
                f"{self.path}/closing.json is damaged: it says nothing of {name}; delete it and "
                "give the train command again, which makes the closing pass again"
            )
        try:
            found = sha256(self.path / name)
        except OSError as error:
            raise ResumeError(
                f"{self.path / name} cannot be read ({(error.strerror or str(error)).lower()}); "
                f"{_REMEDY}"
            ) from error
        if found != expected:
            raise ResumeError(
                f"{self.path / name} is damaged: its SHA-256 is {found[:12]}..., not the "
                f"{expected[:12]}... of closing.json; {_REMEDY}"
            )
        return self.path / name

    def verify_settings(self) -> None:
        """Raise where the settings are not those that the closing pass has seen."""
        # Where the images are may change; what an earlier version closed has no such hash.
        settings, expected = self.settings, self.closing.get("settings_sha256")
        if expected is not None and settings_hash(settings) != expected:
            raise ResumeError(
                f"{self.path}/settings.json is damaged or was changed: its settings are not those "
                "that closing.json vouches for; put the run's own file back"
            )

    def begin(self, settings: dict[str, Any]) -> None:
        """Write the settings of a new run; its folder may not yet exist."""
        self.write("settings.json", json.dumps({"format": FORMAT, **settings}, indent=2) + "\n")

    def write(self, name: str, content: str | bytes | Callable[[Path], object]) -> None:
        """Put a file in place whole: written aside, synced, renamed."""
        target = self.path / name
        with storage_errors_named(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            aside = target.with_name(f".{target.name}.writing")
            if isinstance(content, str):
                aside.write_text(content)
            elif isinstance(content, bytes):
                aside.write_bytes(content)
            else:
                content(aside)
            sync(aside)
            aside.replace(target)
            sync(target.parent)

    def record(self, entry: dict[str, Any]) -> None:
        """Append one epoch's line to the journal."""
        with storage_errors_named(self.path), (self.path / "journal.jsonl").open("a") as journal:
            faults.point("journal.write")
            journal.write(json.dumps(entry) + "\n")
            journal.flush()
            os.fsync(journal.fileno())

    def journal(self) -> list[dict[str, Any]]:
        """The journal's lines; one that was cut short by a crash is left out."""
        try:
            text = (self.path / "journal.jsonl").read_text(errors="replace")
        except FileNotFoundError:
            return []
        entries = []
        for line in text.splitlines():
            try:
                entries.append(json.loads(line))
            except ValueError:
                continue
        return entries

    def forget_after(self, epochs: int) -> None:
        """Drop what was written about epochs that no checkpoint vouches for."""
        kept = [entry for entry in self.journal() if entry["epoch"] < epochs]
        self.write("journal.jsonl", "".join(json.dumps(entry) + "\n" for entry in kept))
        for path in (self.path / "assignments").glob("epoch-*.npy"):
            if int(path.stem.removeprefix("epoch-")) >= epochs:
                path.unlink()

    def write_assignment(self, epoch: int, labels: NDArray[np.int64]) -> None:
        """Keep the labels of one epoch."""
        name = f"assignments/epoch-{epoch:04d}.npy"
        self.write(name, lambda path: _save_array(path, labels.astype(np.int32)))

    def write_array(self, name: str, array: NDArray[Any]) -> None:
        """Keep an array as .npy."""
        self.write(name, lambda path: _save_array(path, array))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder for this process; another one that wants it is told who has it."""
        with storage_errors_named(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            lock = (self.path / "lock").open("a+")
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.seek(0)
                raise ResumeError(
                    f"{self.path} is in use by process {lock.read().strip() or '?'}; "
                    "wait for it, or write to another place"
                ) from None
            lock.truncate(0)
            lock.write(str(os.getpid()))
            lock.flush()
            yield


def run_place(name: str | Path) -> Path:
    """The run folder of this path or of this name in runs/; the path where neither is a run."""
    places = (Path(name), RUNS / name)
    return next((place for place in places if RunFolder(place).exists), places[0])


def finished_run(name: str | Path) -> RunFolder:
    """The finished run of this path or name that this version can read; otherwise one sentence."""
    path = run_place(name)
    folder = RunFolder(path)
    if not path.exists():
        raise UsageError(f"{path}: no such run")
    if not folder.exists:
        raise UsageError(f"{path} is no run: it has no settings.json; name the folder of a run")
    folder.verify_settings()
    return folder


def settings_hash(settings: dict[str, Any]) -> str:
    """The SHA-256 of what a run's results follow from: its settings and its data."""
    told = json.dumps([settings["effective"], settings["data"]], sort_keys=True)
    return hashlib.sha256(told.encode()).hexdigest()


def sha256(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class _Effective(dict[str, Any]):
    """Settings by dotted name; one that is not there is asked for in vain, and that is said."""

    def __init__(self, settings: dict[str, Any], path: Path, version: Any) -> None:
        super().__init__(settings)
        self._path, self._version = path, version

    def __missing__(self, name: str) -> Any:
        raise ResumeError(
            f"{self._path}/settings.json has no {name}: it is damaged, or deepcluster "
            f"{self._version} that wrote it had no such setting; put the run's own file back, use "
            "that version, or train again"
        )


def _without_images(closing: dict[str, Any]) -> str | None:
    """Why a run lacks what others have of their images; None where it should have it."""
    if closing.get("imported"):
        return "its network was imported, and comes without images and groups"
    if closing.get("exported"):
        return "it was exported, and comes without images; the run that it came from has them"
    return None


def _save_array(path: Path, array: NDArray[Any]) -> None:
    with path.open("wb") as file:
        np.save(file, array, allow_pickle=False)


def sync(path: Path) -> None:
    """Return when the file or folder is on the disk, not only in its cache."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def storage_errors_named(path: Path) -> Iterator[None]:
    """Turn the system's errors about writing into one sentence with the place and the remedy."""
    try:
        yield
    except OSError as error:
        raise StorageError(_storage_sentence(path, error)) from error


def _storage_sentence(path: Path, error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        place = next(parent for parent in (path, *path.parents) if parent.exists())
        free = shutil.disk_usage(place).free
        return (
            f"no space left to write {path} ({free / 1e6:,.0f} MB free); make room, or write to "
            "another place; what was saved before is whole, and the same command continues"
        )
    if error.errno == errno.EFBIG:
        return (
            f"cannot write {path}: a limit on file sizes was reached (ulimit -f, or the disk's "
            "format); raise it, or write to another place; what was saved before is whole, and the "
            "same command continues"
        )
    return f"cannot write {path}: {error.strerror}; write to another place"


def numbered(parent: Path, name: str) -> list[Path]:
    """The folders `name-1`, `name-2`, ... in order."""
    pattern = re.compile(re.escape(name) + r"-(\d+)")
    found = {}
    for path in parent.iterdir() if parent.is_dir() else []:
        if (match := pattern.fullmatch(path.name)) and path.is_dir():
            found[int(match[1])] = path
    return [found[number] for number in sorted(found)]


def next_number(parent: Path, name: str) -> Path:
    """The first folder `name-<n>` after all in which a run was begun."""
    last = numbered(parent, name)
    while last and not (last[-1] / "settings.json").exists() and _hardly_began(last[-1]):
        last.pop()
    number = int(last[-1].name.rpartition("-")[2]) + 1 if last else 1
    return parent / f"{name}-{number}"


def _hardly_began(path: Path) -> bool:
    return all(entry.name in _OF_A_RUN_THAT_HARDLY_BEGAN for entry in path.iterdir())


def refuse_foreign(path: Path, flag: str = "--out") -> None:
    """Fail if the folder holds something that is not a run of ours, or cannot be written."""
    if path.exists() and not path.is_dir():
        raise UsageError(f"{flag} {path} is a file; name a folder")
    if path.is_dir() and not (path / "settings.json").exists():
        ours = _OF_A_RUN_THAT_HARDLY_BEGAN
        names = sorted(entry.name for entry in path.iterdir())
        strangers = [name for name in names if name not in ours and not name.startswith(".")]
        if strangers:
            raise UsageError(
                f"{flag} {path} already holds {strangers[0]!r}, which is not ours; "
                f"choose another {flag}, nothing was written"
            )
    folder = RunFolder(path)
    with suppress(ResumeError):  # of a damaged note: its closing pass is made again
        closing = folder.closing if folder.exists and folder.finished else {}
        if kind := _without_images(closing):
            raise UsageError(
                f"{flag} {path}: {kind}; no training can go on there; choose another {flag}, and "
                f"begin with its weights by --init {path}"
            )
    refuse_unwritable(path, flag)


def refuse_unwritable(path: Path, flag: str) -> None:
    """Raise where nothing can be made at this path, before any work is done for it."""
    with storage_errors_named(path):  # as the user named it, up to the folder where the user is
        place = next(one for one in (path, *path.parents) if _is_there(one))
    if not place.is_dir():  # which root's permissions do not tell
        what = "a file" if place.exists() else "a link to nothing"
        raise UsageError(f"cannot write into {place}, which is {what}; choose another {flag}")
    try:  # some places permit it and do not do it
        if os.access(place, os.W_OK | os.X_OK):
            Path(tempfile.mkdtemp(prefix=".deepcluster-", dir=place)).rmdir()
            return
        why = ""
    except OSError as error:
        why = f" ({(error.strerror or str(error)).lower()})"
    raise StorageError(f"cannot write to {place.absolute()}{why}; choose another {flag}")


def _is_there(path: Path) -> bool:
    """Whether anything has this name, be it a link to nothing; raises where that is not known."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True
