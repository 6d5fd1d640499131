"""A table of images written block by block, so that a stopped command goes on where it was.

Beside the file that was asked for, FILE.partial/ holds the vectors and one line of progress for
each stretch of files. When all is there the table is put together and appears whole.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from deepcluster.runtime.errors import UsageError
from deepcluster.runtime.progress_lines import on_disk, whole_lines
from deepcluster.runtime.run_folder import RunFolder, refuse_unwritable, storage_errors_named
from deepcluster.runtime.spreadsheet import harmless

_SECONDS = 2.0  # between two lines of progress, which wait for the disk
_ROWS = 4096  # held at once when the table is put together

Row = dict[str, Any]


class ImageTable:
    """The table under way. `width` is the length of the vectors, 0 where there are none."""

    def __init__(self, out: Path, width: int, columns: dict[str, pa.DataType], key: str) -> None:
        self.out, self.width, self.columns = out, width, columns
        self.partial = out.with_name(out.name + ".partial")
        self.done = self.usable = self.bytes = 0
        self.seconds = 0.0  # spent on writing
        self._key = key
        self._waiting: list[Row] = []
        self._held = ExitStack()

    def opened(self, mark: Callable[[int], list[Any]], total: int) -> ImageTable:
        """Take up what an earlier command has left, as far as it is of the same files.

        Args:
            mark: What tells file i from another one in its place.
            total: How many files there are.
        """
        self._held.enter_context(RunFolder(self.partial).locked())
        length = self._take_up(mark, total)
        with storage_errors_named(self.partial):
            self._vectors = self._cut("vectors.f32", 4 * self.width * self.usable)
            self._progress = self._cut("rows.jsonl", length)
        self._synced_at = time.monotonic()
        return self

    def add(self, rows: list[Row], vectors: NDArray[np.float32]) -> None:
        """The next files, and the vectors of those without a reason."""
        begun = time.monotonic()
        with storage_errors_named(self.partial):
            if self.width:
                self._vectors.write(np.ascontiguousarray(vectors, dtype="<f4").data)
            self._waiting += rows
            if time.monotonic() - self._synced_at > _SECONDS:
                self.flush()
        self.done += len(rows)
        self.usable += sum(row["reason"] is None for row in rows)
        self.seconds += time.monotonic() - begun

    def flush(self) -> None:
        """Vectors first, then the line that vouches for them."""
        if not self._waiting:
            return
        with storage_errors_named(self.partial):
            on_disk(self._vectors)
            line = {"key": self._key, "rows": self._waiting}
            self._progress.write(json.dumps(line).encode() + b"\n")
            on_disk(self._progress)
        self._waiting = []
        self._synced_at = time.monotonic()

    def close(self) -> None:
        """Let go of the files; what was added is kept."""
        self.flush()
        self._vectors.close()
        self._progress.close()
        self._held.close()

    def finish(self) -> list[tuple[str, str]]:
        """Put the table in place and clear up; gives the files left out, with the reason."""
        begun = time.monotonic()
        self.flush()
        place = RunFolder(self.out.parent)
        unusable = self._unusable()
        if unusable:
            write_csv(_beside(self.out, "unusable"), ["path", "reason"], unusable)
        match self.out.suffix.lower():
            case ".parquet":
                place.write(self.out.name, self._write_parquet)
            case ".npy":
                place.write(_beside(self.out, "paths").name, self._write_rows)
                place.write(self.out.name, self._write_npy)
            case ".csv":
                place.write(self.out.name, self._write_rows_and_vectors)
        self.bytes = self.out.stat().st_size
        self._clear_up()
        self.seconds += time.monotonic() - begun
        return unusable

    def discarded(self) -> list[tuple[str, str]]:
        """Clear up without a table; gives the files that could not be used, with the reason."""
        self.flush()
        unusable = self._unusable()
        self._clear_up()
        return unusable

    def _clear_up(self) -> None:
        self._vectors.close()
        self._progress.close()
        shutil.rmtree(self.partial)
        self._held.close()

    def _unusable(self) -> list[tuple[str, str]]:
        return [(row["path"], row["reason"]) for row in self._rows() if row["reason"] is not None]

    def _take_up(self, mark: Callable[[int], list[Any]], total: int) -> int:
        """Count what is whole and of the same files; gives the length of its progress."""
        length = 0
        vectors = self.partial / "vectors.f32"
        there = vectors.stat().st_size if vectors.exists() else 0
        for line, end in whole_lines(self.partial / "rows.jsonl"):
            rows = line["rows"]
            if line["key"] != self._key or self.done + len(rows) > total:
                break
            if any(row["mark"] != mark(self.done + at) for at, row in enumerate(rows)):
                break
            usable = self.usable + sum(row["reason"] is None for row in rows)
            if there < 4 * self.width * usable:
                break
            self.done, self.usable, length = self.done + len(rows), usable, end
        return length

    def _cut(self, name: str, length: int) -> IO[bytes]:
        """The file, cut to the length that is known to be whole, for writing on."""
        path = self.partial / name
        path.touch()
        os.truncate(path, length)
        return path.open("ab")

    def _rows(self) -> Iterator[Row]:
        for line, _ in whole_lines(self.partial / "rows.jsonl"):
            yield from line["rows"]

    def _parts(self) -> Iterator[tuple[list[Row], NDArray[np.float32]]]:
        """The usable files with their vectors, a part at a time, numbered."""
        most = max(1, min(_ROWS, 2**22 // max(1, self.width)))
        with (self.partial / "vectors.f32").open("rb") as file:

            def part(rows: list[Row]) -> tuple[list[Row], NDArray[np.float32]]:
                data = np.frombuffer(file.read(4 * self.width * len(rows)), dtype="<f4")
                return rows, data.reshape(len(rows), self.width)

            rows: list[Row] = []
            number = 0
            for row in self._rows():
                if row["reason"] is None:
                    rows.append({"id": number, **row})
                    number += 1
                if len(rows) == most:
                    yield part(rows)
                    rows = []
            if rows:
                yield part(rows)

    def _write_parquet(self, path: Path) -> None:
        types = {"id": pa.int64(), "path": pa.string(), **self.columns}
        if self.width:
            types["vector"] = pa.list_(pa.float32())
        schema = pa.schema(list(types.items()))
        with pq.ParquetWriter(path, schema) as writer:
            for rows, vectors in self._parts():
                columns: dict[str, Any] = {
                    name: pa.array([row[name] for row in rows], kind)
                    for name, kind in types.items()
                    if name != "vector"
                }
                if self.width:
                    starts = np.arange(0, vectors.size + 1, self.width, dtype=np.int32)
                    columns["vector"] = pa.ListArray.from_arrays(starts, vectors.ravel())
                writer.write_table(pa.table(columns, schema=schema))

    def _write_npy(self, path: Path) -> None:
        with path.open("wb") as file, (self.partial / "vectors.f32").open("rb") as vectors:
            about = {"descr": "<f4", "fortran_order": False, "shape": (self.usable, self.width)}
            np.lib.format.write_array_header_1_0(file, about)
            shutil.copyfileobj(vectors, file, 2**24)

    def _write_rows(self, path: Path) -> None:
        names = ["id", "path", *self.columns]
        rows = ([row[name] for name in names] for some, _ in self._parts() for row in some)
        _write_csv(path, names, rows)

    def _write_rows_and_vectors(self, path: Path) -> None:
        names = ["id", "path", *self.columns]
        numbers = [f"v{number}" for number in range(self.width)]
        rows = (
            [*(row[name] for name in names), *vector]
            for some, vectors in self._parts()
            for row, vector in zip(some, vectors, strict=True)
        )
        _write_csv(path, [*names, *numbers], rows)


def refuse_output(out: Path, suffixes: tuple[str, ...]) -> None:
    """Raise, in one sentence, where the table cannot or must not be written."""
    if out.suffix.lower() not in suffixes:
        raise UsageError(f"--out {out}: name a {', '.join(suffixes[:-1])} or {suffixes[-1]} file")
    beside = [_beside(out, "unusable")]
    if out.suffix.lower() == ".npy":
        beside.append(_beside(out, "paths"))
    for place in (out, *beside):
        if place.exists():
            raise UsageError(f"--out {out}: {place} exists; name another file, or delete it first")
    if out.parent.exists() and not out.parent.is_dir():
        raise UsageError(f"--out {out}: {out.parent} is a file")
    refuse_unwritable(out.parent, "--out")


def write_csv(place: Path, names: list[str], rows: Iterable[Iterable[object]]) -> None:
    """A CSV file that is whole or not there, and in which no text is a spreadsheet's formula."""
    RunFolder(place.parent).write(place.name, lambda path: _write_csv(path, names, rows))


def _beside(out: Path, what: str) -> Path:
    return out.with_name(f"{out.stem}.{what}.csv")


def _write_csv(path: Path, names: list[str], rows: Iterable[Iterable[object]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        writer.writerows(map(harmless, rows))
