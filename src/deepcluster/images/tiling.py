"""Large images cut into files of a size that a network can learn from.

Every tile is a PNG in a folder named as its image; `tiles.parquet`, a list that train reads, says
of which image it is and where it lay. What is cut is written down image by image, so that the same
command goes on where it was stopped, and adds what is new.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import IO, Any, BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from deepcluster.images.decode import unreadable
from deepcluster.images.folder import Found, encoded
from deepcluster.images.selection import band_numbers
from deepcluster.images.sheet import Sheet, sheet_of
from deepcluster.images.source import Source
from deepcluster.images.threads import in_order
from deepcluster.images.unusable import Unusable
from deepcluster.runtime import faults
from deepcluster.runtime.errors import UsageError
from deepcluster.runtime.progress_lines import on_disk, whole_lines
from deepcluster.runtime.run_folder import RunFolder, storage_errors_named

LIST = "tiles.parquet"
_PROGRESS = "tiles.jsonl"
_SCHEMA = pa.schema(
    [
        ("path", pa.string()),  # relative to the list
        ("parent", pa.string()),  # the image, encoded as in an index
        ("x", pa.int64()),  # of the left edge, in the image's pixels
        ("y", pa.int64()),
        ("width", pa.int32()),
        ("height", pa.int32()),
        ("label", pa.string()),  # the image's folder or column, else the image
    ]
)


class Box(NamedTuple):
    """Of a tile, in pixels of its image."""

    left: int
    top: int
    right: int
    bottom: int


class Outcome(NamedTuple):
    """What there is in the end."""

    images: int
    tiles: int
    unusable: list[tuple[str, str]]
    """Path and reason."""


@dataclass(frozen=True)
class Tiling:
    """How images are cut."""

    side: int = 1024
    bands: str | None = None

    def boxes(self, width: int, height: int) -> list[Box]:
        """The image in equal parts of at most `side` pixels: no part of it twice, none left out."""
        across, down = (_edges(length, self.side) for length in (width, height))
        return [
            Box(left, top, right, bottom)
            for top, bottom in pairwise(down)
            for left, right in pairwise(across)
        ]

    def __call__(
        self,
        source: Source,
        out: Path,
        workers: int,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> Outcome:
        """Cut every image of a source that is not cut yet.

        Args:
            source: Where the images are.
            out: The folder for the tiles.
            workers: How many threads write them.
            progress: Called with the number of tiles done and of all; what it raises ends the
                work, which can be continued.
        """
        with storage_errors_named(out):
            out.mkdir(parents=True, exist_ok=True)
            found = source.find()
            before = self._taken_up(out, found)
            with (out / _PROGRESS).open("ab") as lines:
                self._cut_all(source, found, out, before, workers, progress, lines)
        return _listed(out)

    def _cut_all(
        self,
        source: Source,
        found: list[Found],
        out: Path,
        before: set[str],
        workers: int,
        progress: Callable[[int, int], None],
        lines: IO[bytes],
    ) -> None:
        names = _names(found)
        left = [(one, name) for one, name in zip(found, names, strict=True) if name not in before]
        total, done = sum(self._count(source, one) for one, _ in left), 0
        for one, name in left:
            line = self._line(one, name)
            try:
                with source.open(one.path) if one.reason is None else _refused(one) as file:
                    sheet = sheet_of(file, self._bands)
                    boxes = self.boxes(*sheet.size)
                    with closing(_written(sheet, boxes, out / name, workers)) as written:
                        for _ in written:
                            done += 1
                            progress(done, total)
                line["boxes"] = boxes
            except Unusable as unusable:
                line["reason"] = unusable.reason
            except OSError as error:
                line["reason"] = unreadable(error)
            faults.point("tile.image")
            lines.write(json.dumps(line).encode() + b"\n")
            on_disk(lines)

    @property
    def _bands(self) -> tuple[int, ...] | None:
        return None if self.bands is None else band_numbers(self.bands)

    def _count(self, source: Source, found: Found) -> int:
        """How many tiles an image gives, as far as its header tells."""
        try:
            with source.open(found.path) if found.reason is None else _refused(found) as file:
                return len(self.boxes(*sheet_of(file, self._bands).size))
        except (Unusable, OSError):
            return 0

    def _line(self, found: Found, name: str) -> dict[str, Any]:
        return {
            "how": asdict(self),
            "path": encoded(found.path),
            "name": name,
            "size": found.size,
            "modified": found.modified,
            "label": encoded(found.label or found.path),
            "reason": None,
            "boxes": [],
        }

    def _taken_up(self, out: Path, found: list[Found]) -> set[str]:
        """The names of the images that are cut already; tiles of what is no more are removed."""
        now = {
            (name, encoded(one.path), one.size, one.modified)
            for one, name in zip(found, _names(found), strict=True)
        }
        kept: list[dict[str, Any]] = []
        for line, _ in whole_lines(out / _PROGRESS):
            if line["how"] != asdict(self):
                there = ", ".join(f"{name} {value}" for name, value in line["how"].items())
                raise UsageError(f"{out} holds tiles of other settings ({there}); choose another")
            mark = line["name"], line["path"], line["size"], line["modified"]
            if mark in now and line["reason"] is None:
                kept.append(line)
                continue
            for edges in line["boxes"]:
                (out / line["name"] / _file_name(Box(*edges))).unlink(missing_ok=True)
        text = "".join(json.dumps(line) + "\n" for line in kept)
        RunFolder(out).write(_PROGRESS, text)
        return {line["name"] for line in kept}


def _listed(out: Path) -> Outcome:
    """Write the list of all tiles, in the order of their images."""
    images, unusable, rows = 0, [], []
    for line, _ in whole_lines(out / _PROGRESS):
        if line["reason"] is not None:
            unusable.append((line["path"], line["reason"]))
            continue
        images += 1
        rows += [
            {
                "path": f"{line['name']}/{_file_name(box)}",
                "parent": line["path"],
                "x": box.left,
                "y": box.top,
                "width": box.right - box.left,
                "height": box.bottom - box.top,
                "label": line["label"],
            }
            for box in (Box(*edges) for edges in line["boxes"])
        ]
    rows.sort(key=lambda row: row["path"])
    table = pa.Table.from_pylist(rows, schema=_SCHEMA)
    RunFolder(out).write(LIST, lambda path: pq.write_table(table, path, compression="zstd"))
    return Outcome(images, len(rows), unusable)


def _written(
    sheet: Sheet, boxes: list[Box], folder: Path, workers: int
) -> Generator[Box, None, None]:
    """Every tile, put into the folder whole; read by this thread, compressed by others."""
    folder.mkdir(parents=True, exist_ok=True)

    def write(item: tuple[Box, Image.Image]) -> Box:
        box, tile = item
        aside = folder / f".{_file_name(box)}"
        with storage_errors_named(folder):  # which are not errors of the image's own file
            tile.save(aside, "PNG", compress_level=1)
            aside.replace(folder / _file_name(box))
        return box

    return in_order(write, ((box, sheet.part(*box)) for box in boxes), workers, 2 * workers)


def _file_name(box: Box) -> str:
    return f"{box.left:06d}-{box.top:06d}.png"


def _edges(length: int, most: int) -> list[int]:
    parts = -(-length // most)
    return [round(part * length / parts) for part in range(parts + 1)]


def _names(found: list[Found]) -> list[str]:
    """A folder for the tiles of each image, inside and printable whatever its path is."""
    taken: set[str] = set()
    names = []
    for one in found:
        parts = [part for part in PurePosixPath(encoded(one.path)).parts if part not in ("/", "..")]
        name = plain = "/".join(parts) or "image"
        number = 1
        while name in taken:
            number += 1
            name = f"{plain}~{number}"
        taken.add(name)
        names.append(name)
    return names


def _refused(found: Found) -> BinaryIO:
    raise Unusable(found.reason or "")
