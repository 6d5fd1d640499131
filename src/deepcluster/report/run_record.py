"""What a run has left on disk, as far as it is there; what is not, is said."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from deepcluster.report.edits import FILE, Edits
from deepcluster.runtime.errors import ResumeError
from deepcluster.runtime.run_folder import RunFolder


@dataclass(frozen=True)
class RunRecord:
    """A run as its folder has it; row i, label i and image i are the same i."""

    folder: RunFolder
    settings: dict[str, Any]
    journal: list[dict[str, Any]]
    closing: dict[str, Any] | None
    baseline: dict[str, Any] | None
    names: list[str]
    labels: NDArray[np.int64]
    """The group of each image; -1 where it has none."""
    distances: NDArray[np.float32]
    """To the centre of its group; NaN where that is not known."""
    classes: NDArray[np.int64] | None
    """The folder of each image, by its place in `folders`; None where there are not several."""
    folders: list[str]
    left_out: list[tuple[str, str]]
    """Files that are not used, and why."""
    copies: list[list[int]]
    """Images of which the files are equal, byte by byte."""
    missing: list[str] = field(default_factory=list)
    """Sentences on what could not be shown."""
    group_names: dict[int, str] = field(default_factory=dict)
    """What a person has called groups."""

    @property
    def finished(self) -> bool:
        """Whether the closing pass was made."""
        return self.closing is not None

    def features(self) -> NDArray[np.float16] | None:
        """Whitened features of all images, mapped; None where there are none."""
        try:
            rows = np.load(self.folder.path / "features.npy", mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError):
            return None
        return rows if rows.ndim == 2 and len(rows) == len(self.names) else None

    def assignments(self) -> dict[int, Path]:
        """The file with the labels of each epoch."""
        files = sorted((self.folder.path / "assignments").glob("epoch-*.npy"))
        return {int(file.stem.removeprefix("epoch-")): file for file in files}

    def edited(self, edits: Edits) -> RunRecord:
        """The same after what a person has said of the groups.

        A group that was given images has a new middle, from which the distances of all its images
        are taken anew.
        """
        labels, distances = edits.applied(self.labels), self.distances.copy()
        rows = self.features()
        for group in np.unique(labels[labels != self.labels]):
            members = np.flatnonzero(labels == group)
            if rows is None:
                distances[members] = np.nan
            else:
                distances[members] = _from_the_middle(rows, members)
        return replace(self, labels=labels, distances=distances, group_names=edits.names)

    @staticmethod
    def read(folder: RunFolder) -> RunRecord:
        """The run in this folder as people have arranged it, as far as that can be read."""
        record = RunRecord.as_grouped(folder)
        try:
            edits = Edits.read(folder)
        except ResumeError:
            record.missing.append(f"{FILE} cannot be read: names and moves are not shown.")
            return record
        if edits.outdated:
            record.missing.append(
                f"{FILE} has names and moves of an earlier grouping, which are not shown."
            )
        return record.edited(edits)

    @staticmethod
    def as_grouped(folder: RunFolder) -> RunRecord:
        """The run in this folder, finished or not, of this version or an older one."""
        settings = folder.settings
        missing: list[str] = []
        closing = _json(folder.path / "closing.json")
        if closing is None:
            missing.append(
                "The run is not finished: groups are those of its last epoch, and what only the "
                "closing pass writes is not there yet."
            )
        index = _parquet(folder.index)
        if index is None:
            missing.append("index.parquet cannot be read: which files were left out is not known.")
        names, labels, distances = _grouped(folder, index, missing)
        baseline = _json(folder.path / "baseline.json")
        usable = index and index.filter(pc.is_valid(index["id"]))
        if usable is not None and usable.num_rows != len(names):
            usable = None
        classes, folders = _classes(usable)
        return RunRecord(
            folder=folder,
            settings=settings,
            journal=[entry for entry in folder.journal() if isinstance(entry, dict)],
            closing=closing,
            baseline=baseline,
            names=names,
            labels=labels,
            distances=distances,
            classes=classes,
            folders=folders,
            left_out=_left_out(index),
            copies=_copies(usable),
            missing=missing,
        )


def _from_the_middle(rows: NDArray[np.float16], members: NDArray[np.int64]) -> NDArray[np.float32]:
    """The distance of each member to the mean of all, some of the rows in memory at a time."""
    parts = np.array_split(members, -(-len(members) // 65_536))
    sums = [np.asarray(rows[part], dtype=np.float64).sum(axis=0) for part in parts]
    middle = (np.sum(sums, axis=0) / len(members)).astype(np.float32)
    apart = [np.linalg.norm(rows[part].astype(np.float32) - middle, axis=1) for part in parts]
    return np.concatenate(apart)


def _grouped(
    folder: RunFolder, index: pa.Table | None, missing: list[str]
) -> tuple[list[str], NDArray[np.int64], NDArray[np.float32]]:
    table = _parquet(folder.path / "clusters.parquet")
    if table is not None and {"path", "cluster", "distance"} <= {*table.column_names}:
        return (
            table["path"].to_pylist(),
            table["cluster"].to_numpy().astype(np.int64),
            table["distance"].to_numpy().astype(np.float32),
        )
    closing = _json(folder.path / "closing.json") or {}
    if index is None and (closing.get("imported") or closing.get("exported")):
        folder.verified("index.parquet")  # such a run has none, and that is said
    if folder.finished:
        missing.append("clusters.parquet cannot be read: groups are those of the last epoch.")
    if index is None:
        raise ResumeError(
            f"{folder.path} has neither clusters.parquet nor index.parquet, so that there is "
            "nothing to show; the same deepcluster train writes them again"
        )
    names = index.filter(pc.is_valid(index["id"]))["path"].to_pylist()
    nothing = np.full(len(names), np.nan, np.float32)
    for file in sorted((folder.path / "assignments").glob("epoch-*.npy"), reverse=True):
        try:
            labels = np.load(file, allow_pickle=False).astype(np.int64)
        except (OSError, ValueError, EOFError):
            continue
        if labels.shape == (len(names),):
            return names, labels, nothing
    missing.append("No epoch has grouped the images yet: there are no groups to show.")
    return names, np.full(len(names), -1), nothing


def _left_out(index: pa.Table | None) -> list[tuple[str, str]]:
    if index is None:
        return []
    rest = index.filter(pc.is_valid(index["reason"]))
    return list(zip(rest["path"].to_pylist(), rest["reason"].to_pylist(), strict=True))


def _classes(usable: pa.Table | None) -> tuple[NDArray[np.int64] | None, list[str]]:
    if usable is None or usable["label"].null_count:
        return None, []
    folders, numbers = np.unique(usable["label"].to_pylist(), return_inverse=True)
    if len(folders) < 2:
        return None, []
    return numbers.astype(np.int64), [str(folder) for folder in folders]


def _copies(usable: pa.Table | None) -> list[list[int]]:
    if usable is None:
        return []
    together: dict[str, list[int]] = {}
    for number, content in enumerate(usable["hash"].to_pylist()):
        if content is not None:
            together.setdefault(content, []).append(number)
    return [ids for ids in together.values() if len(ids) > 1]


def _json(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError, EOFError):
        return None
    return found if isinstance(found, dict) else None


def _parquet(path: Path) -> pa.Table | None:
    try:
        # Not read_table: its threads, beside torch's, can abort the process when it ends.
        # From memory, since pyarrow opens no path that is not UTF-8.
        return pq.ParquetFile(pa.BufferReader(path.read_bytes())).read(use_threads=False)
    except (OSError, ValueError, KeyError):
        return None
