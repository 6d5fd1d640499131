"""The verdict on every file: which are images, which image is number i, and why others are not."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import count, islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from deepcluster.images.crew import judging
from deepcluster.images.folder import decoded
from deepcluster.images.judging import Wanted, without_copies, without_small
from deepcluster.images.kept import Pixels
from deepcluster.images.source import Source, source_of
from deepcluster.images.unusable import Unusable
from deepcluster.runtime import faults, interruption
from deepcluster.runtime.errors import ResumeError, StorageError

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),  # null where the file is unusable
        ("path", pa.string()),  # encoded, relative to the root
        ("size", pa.int64()),
        ("modified", pa.int64()),
        ("width", pa.int32()),  # upright
        ("height", pa.int32()),
        ("mode", pa.string()),
        ("hash", pa.string()),
        ("label", pa.string()),  # its folder or column, whether or not the others have one
        ("reason", pa.string()),  # null where it is usable
    ]
)

_PART = 4096  # rows


class Changes(NamedTuple):
    """How a folder differs from the index that was made of it: paths relative to the root."""

    added: list[str]
    removed: list[str]
    changed: list[str]

    def __str__(self) -> str:
        return f"{len(self.added)} added, {len(self.removed)} removed, {len(self.changed)} changed"


@dataclass(frozen=True, eq=False)
class Index:
    """Every file found, in the order of the paths; the usable ones are numbered from 0."""

    table: pa.Table

    @classmethod
    def build(
        cls,
        source: str | Path | Source,
        workers: int,
        progress: Callable[[int, int], None] | None = None,
        how: Pixels = Pixels(),  # noqa: B008 - it is frozen
    ) -> Index:
        """The index of a source, each of its files read and decoded once.

        Args:
            source: Where the files are.
            workers: How many threads decode, at least one.
            progress: Called with the number of files done and of all files; what it raises ends
                the work.
            how: How files are read, and which of them are wanted.
        """
        files = source_of(source)
        found = files.find()

        def rows() -> Iterator[dict[str, Any]]:
            with judging(files, found, Wanted(None, how), workers) as verdicts:
                wanted = without_small(verdicts, how.min_side)
                if how.copies == "once":
                    wanted = without_copies(wanted, set())
                for done, (row, _) in enumerate(wanted, 1):
                    yield row
                    if progress is not None:
                        progress(done, len(found))

        return cls.from_rows(rows())

    @classmethod
    def from_rows(cls, rows: Iterable[dict[str, Any]]) -> Index:
        """The index of files that were judged, in the order of the source."""
        return cls(pa.Table.from_batches(_parts(rows), SCHEMA))

    @staticmethod
    def write(rows: Iterable[dict[str, Any]], path: Path) -> None:
        """Write the index of files that were judged, without ever holding all of it."""
        with pq.ParquetWriter(path, SCHEMA, compression="zstd") as writer:
            for part in _parts(rows):
                writer.write_batch(part)

    def save(self, path: str | Path) -> None:
        """Write the index; the file is whole or it is not there."""
        path = Path(path)
        aside = path.with_name(f".{path.name}.{os.getpid()}.writing")  # others may write it too
        try:
            with aside.open("wb") as file:
                file.write(self.to_bytes())
                file.flush()
                os.fsync(file.fileno())
            faults.point("index.write")
            aside.replace(path)
        except OSError as error:
            aside.unlink(missing_ok=True)
            reason = (error.strerror or str(error)).lower()
            raise StorageError(f"{path} cannot be written: {reason}") from error

    @classmethod
    def load(cls, path: str | Path) -> Index:
        """The index that `save` wrote."""
        try:
            return cls.from_bytes(Path(path).read_bytes())
        except (OSError, ValueError) as error:  # pyarrow's errors are among these
            raise ResumeError(
                f"{path} cannot be read ({str(error).splitlines()[0][:100]}); "
                "delete it, and the images are indexed again"
            ) from error

    def to_bytes(self) -> bytes:
        """The index as a parquet file in memory."""
        sink = pa.BufferOutputStream()
        pq.write_table(self.table, sink, compression="zstd")
        return sink.getvalue().to_pybytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> Index:
        """The index that `to_bytes` gave."""
        # Not read_table: it starts threads of pyarrow's that, beside torch's, can abort the
        # process when it ends.
        return cls(pq.ParquetFile(pa.BufferReader(data)).read(use_threads=False).cast(SCHEMA))

    def __len__(self) -> int:
        return self.usable.num_rows

    @cached_property
    def paths(self) -> list[str]:
        """The usable files relative to the root; `paths[i]` is image i."""
        return [decoded(path) for path in self.usable["path"].to_pylist()]

    @cached_property
    def labels(self) -> NDArray[np.int64] | None:
        """Each image's class, numbered by name; None unless each has one and there are two.

        For looking at results, and for the supervised baseline; the method never sees them.
        """
        names = self.usable["label"]
        if names.null_count or pc.count_distinct(names).as_py() < 2:
            return None
        return np.unique(names.to_pylist(), return_inverse=True)[1].astype(np.int64)

    @cached_property
    def classes(self) -> list[str] | None:
        """The names of the classes, by number; None where there are no labels."""
        return None if self.labels is None else np.unique(self.usable["label"].to_pylist()).tolist()

    @property
    def unusable(self) -> list[tuple[str, str]]:
        """The path of every file that is no usable image, and the reason."""
        rest = self.table.filter(pc.is_valid(self.table["reason"]))
        paths = map(decoded, rest["path"].to_pylist())
        return list(zip(paths, rest["reason"].to_pylist(), strict=True))

    @cached_property
    def fingerprint(self) -> str:
        """A name for these images in this order; the time of a file does not enter it."""
        digest = hashlib.sha256()
        columns = (self.usable[name].to_pylist() for name in ("path", "hash"))
        for path, content in zip(*columns, strict=True):
            digest.update(f"{path}\0{content}\n".encode())
        return digest.hexdigest()

    def changes(self, source: str | Path | Source) -> Changes:
        """What was added, removed or changed in the source since the index was made.

        A file of the same size and time is taken to be the same; otherwise its content decides.
        """
        names = ("path", "size", "modified", "hash")
        columns = [self.table[name].to_pylist() for name in names]
        before = {decoded(path): rest for path, *rest in zip(*columns, strict=True)}
        files = source_of(source)
        now = {found.path: found for found in files.find()}
        both = [path for path in now if path in before]
        moved = [p for p in both if [now[p].size, now[p].modified] != before[p][:2]]
        return Changes(
            added=[path for path in now if path not in before],
            removed=[path for path in before if path not in now],
            changed=[path for path in moved if _content(files, path) != before[path][2]],
        )

    def smaller_than(self, pixels: int) -> int:
        """How many usable images have a short side below this."""
        short = pc.min_element_wise(self.usable["width"], self.usable["height"])
        return int(pc.sum(pc.less(short, pixels)).as_py() or 0)

    @property
    def distinct(self) -> int:
        """How many usable images differ from each other in content."""
        return int(pc.count_distinct(self.usable["hash"]).as_py())

    @cached_property
    def usable(self) -> pa.Table:
        """The rows of the usable files; row i is image i."""
        return self.table.filter(pc.is_valid(self.table["id"]))


def _parts(rows: Iterable[dict[str, Any]]) -> Iterator[pa.RecordBatch]:
    """The rows, numbered, a part at a time: a million as Python's dicts would fill a gigabyte."""
    number = count()
    remaining = iter(rows)
    while part := list(islice(remaining, _PART)):
        for row in part:
            row["id"] = next(number) if row["reason"] is None else None
        yield pa.RecordBatch.from_pylist(part, schema=SCHEMA)


def _content(source: Source, path: str) -> str | None:
    """The hash of the file, or None where it cannot be read."""
    interruption.raise_if_asked()
    try:
        with source.open(path) as file:
            return _digest(file)
    except (OSError, Unusable):
        return None


def _digest(file: BinaryIO) -> str:
    # The stubs want a file with readinto; every binary file that is opened has one.
    return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()  # type: ignore[arg-type]
