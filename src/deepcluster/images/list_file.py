"""A list of paths as a source of images: .txt (one a line), .csv or .parquet (a column `path`)."""

from __future__ import annotations

import codecs
import csv
import io
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import BinaryIO, TextIO

from deepcluster.images.folder import (
    Extent,
    Found,
    Seen,
    class_of,
    encoded,
    never_read,
    unseen,
)
from deepcluster.runtime.errors import DataError, UsageError

SUFFIXES = (".txt", ".csv", ".parquet")
COLUMNS = ("path", "file", "filename", "image")
"""Names of the column of paths, the first that is there."""

_Row = tuple[str, str | None]


@dataclass(frozen=True)
class ListFile:
    """Images in the order of a list, their paths absolute or relative to the list's own folder."""

    place: Path

    def find(self, seen: Seen = unseen) -> list[Found]:
        """Every path of the list once, where it stands first; a file that is missing too."""
        folder = self.place.parent
        return [found_file(folder, path, label) for path, label in self._distinct(seen)]

    def open(self, path: str) -> BinaryIO:
        """The bytes of one file."""
        return (self.place.parent / path).open("rb")

    def extent(self, path: str) -> Extent:
        """The file."""
        return Extent(str(self.place.parent / path))

    def refuse_without_images(self) -> None:
        """Raise, in one sentence, where the list cannot be read or names nothing."""
        if next(self._distinct(unseen), None) is None:
            raise DataError(f"{encoded(str(self.place))} lists no paths")

    def _distinct(self, seen: Seen) -> Iterator[_Row]:
        """Path and label of every entry; one that comes again is of another kind."""
        root = f"{self.place.parent.absolute().as_posix()}/"
        known: set[str] = set()
        for text, label in self._rows():
            # One file, one spelling: ./a.jpg and /where/the/list/is/a.jpg are a.jpg.
            path = str(PurePosixPath(text)).removeprefix(root)
            if path in known:
                seen("listed again")
            elif text:
                known.add(path)
                seen(None)
                yield path, class_of(path) if label is None else label

    def _rows(self) -> Iterator[_Row]:
        read = {".txt": _lines, ".csv": _csv_rows, ".parquet": _parquet_rows}
        try:
            if not stat.S_ISREG(self.place.stat().st_mode):
                raise UsageError(f"{encoded(str(self.place))} is not a file")
            yield from read[self.place.suffix.lower()](self.place)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise UsageError(f"{encoded(str(self.place))}: {reason}") from error
        except (csv.Error, ValueError) as error:  # pyarrow's errors are among the latter
            reason = encoded(str(error).partition("\n")[0][:100])
            raise DataError(f"{encoded(str(self.place))} cannot be read: {reason}") from error


def found_file(folder: Path, path: str, label: str | None = None) -> Found:
    """A file of a list, whose path is absolute or relative to the folder; a missing one too."""
    reason = never_read(path)
    try:
        status = (folder / path).stat()
    except OSError as error:
        reason = reason or f"unreadable: {(error.strerror or str(error)).lower()}"
        return Found(path, 0, 0, label, reason)
    except ValueError:  # a zero byte, which no file name has
        return Found(path, 0, 0, label, "unreadable: no file can have this name")
    if not stat.S_ISREG(status.st_mode):  # opening a pipe would wait for its writer
        reason = "unreadable: not a file"
    return Found(path, status.st_size, status.st_mtime_ns, label, reason)


def _lines(place: Path) -> Iterator[_Row]:
    with _text(place, newline="\n") as file:
        for line in file:
            path = line.rstrip("\r\n")
            if path.strip() and not path.lstrip().startswith("#"):
                yield path, None


@contextmanager
def _text(place: Path, newline: str) -> Iterator[TextIO]:
    """The text of a file: UTF-16 where its first bytes say so, as a spreadsheet's may; else UTF-8.

    It is opened once and read once, so that it may also be a pipe.
    """
    with place.open("rb") as file:
        marked = file.peek(2)[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
        encoding = "utf-16" if marked else "utf-8-sig"
        with io.TextIOWrapper(file, encoding, "surrogateescape", newline) as text:
            yield text


def csv_lines(place: Path) -> Iterator[list[str]]:
    """The cells of each line, the names of the columns first, as spreadsheets write them.

    Empty lines are passed over.
    """
    with _text(place, newline="") as file:
        head = next((line for line in file if line.strip()), "")
        yield from filter(None, csv.reader(chain([head], file), delimiter=_separator(head)))


def _csv_rows(place: Path) -> Iterator[_Row]:
    lines = csv_lines(place)
    path_at, label_at = _columns(place, next(lines, []))
    for row in lines:
        if path_at < len(row):
            label = row[label_at] if label_at is not None and label_at < len(row) else None
            yield row[path_at], label or None


def _separator(head: str) -> str:
    """What a first line has between its names, if one of them is that of paths.

    Spreadsheets write semicolons where the comma is that of decimals, and tabs in UTF-16.
    """
    for mark in ",;\t":
        names = next(csv.reader([head], delimiter=mark), [])
        if places_of_columns(names)[0] is not None:
            return mark
    return ","


def _parquet_rows(place: Path) -> Iterator[_Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetFile(place) as file:
        names = file.schema_arrow.names
        path_at, label_at = _columns(place, names)
        wanted = [names[at] for at in (path_at, label_at) if at is not None]
        kind = file.schema_arrow.field(path_at).type
        if pa.types.is_nested(kind):
            raise DataError(
                f"{encoded(str(place))}: column {wanted[0]} holds {kind}; it must hold paths"
            )
        for batch in file.iter_batches(batch_size=4096, columns=wanted):
            columns = [batch.column(name).cast(pa.string()).to_pylist() for name in wanted]
            labels = columns[1] if len(columns) > 1 else [None] * len(batch)
            yield from ((path or "", label) for path, label in zip(columns[0], labels, strict=True))


def places_of_columns(names: Iterable[str]) -> tuple[int | None, int | None]:
    """Where the paths and where the labels are, among columns with these names."""
    lower = [name.strip().lower() for name in names]
    path_at = next((lower.index(name) for name in COLUMNS if name in lower), None)
    return path_at, lower.index("label") if "label" in lower else None


def _columns(place: Path, names: Iterable[str]) -> tuple[int, int | None]:
    """The same; columns without paths are refused."""
    path_at, label_at = places_of_columns(names)
    if path_at is None:
        there = ", ".join(encoded(name) for name in names) or "nothing"
        raise DataError(
            f"{encoded(str(place))} has no column {' or '.join(COLUMNS)}; its first line is {there}"
            if place.suffix.lower() == ".csv"
            else f"{encoded(str(place))} has no column {' or '.join(COLUMNS)}; it has {there}"
        )
    return path_at, label_at
