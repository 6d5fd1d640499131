"""Tar shards as a source of images, in the layout of webdataset: one image to a key.

A key is a member's name up to the first dot of its last part. Members that are no images (`.json`,
`.cls`, `.txt`, ...) are passed over: nothing in a shard is extracted, unpickled or executed.
"""

from __future__ import annotations

import io
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import BinaryIO, NamedTuple

from deepcluster.images.folder import (
    EXTENSIONS,
    HEAD,
    Extent,
    Found,
    Seen,
    class_of,
    encoded,
    extension_of,
    is_hidden,
    kind_of,
    no_images,
    starts_like_an_image,
    unseen,
)
from deepcluster.images.tar_members import Damaged, Member, members
from deepcluster.runtime.errors import UsageError

LARGEST = 2**30
"""Bytes of a file or a member; more are no image that could be decoded."""

_TAR = re.compile(r"\.tar$", re.IGNORECASE)
_COMPRESSED = re.compile(r"\.(tar\.\w+|tgz|tbz2?|txz)$", re.IGNORECASE)
_PATTERN = re.compile(r"[*?[{]")
_BRACES = re.compile(r"\{(?:(\d+)\.\.(\d+)|([^{},]*(?:,[^{},]*)+))\}")


class _Shard(NamedTuple):
    file: str
    name: str
    """Relative to what the pattern leaves open."""


def is_shards(place: Path) -> bool:
    """Whether the user means tar files by this: their name, or a pattern of names."""
    if _TAR.search(place.name) or _COMPRESSED.search(place.name):
        return True
    return bool(_PATTERN.search(str(place))) and not place.exists()


@dataclass(frozen=True)
class Shards:
    """Tar files that a pattern names, such as `shards/*.tar` or `train-{000..146}.tar`."""

    place: Path
    _lock: Lock = field(default_factory=Lock, init=False, repr=False, compare=False)
    _extents: dict[str, Extent] = field(default_factory=dict, init=False, repr=False, compare=False)

    def find(self, seen: Seen = unseen) -> list[Found]:
        """Every image member, shard by shard in the order of their names, then as it is stored.

        A shard that is damaged gives what lies before the damage, and one entry for the rest.
        """
        found: list[Found] = []
        extents: dict[str, Extent] = {}
        for one, part in self._scan(seen):
            seen(None)
            found.append(one)
            if part is not None:
                extents[one.path] = part
        self._extents.update(extents)
        return found

    def open(self, path: str) -> BinaryIO:
        """The bytes of one member."""
        part = self.extent(path)
        if part is None:
            raise FileNotFoundError(2, "No such member")
        return io.BytesIO(part.read())

    def extent(self, path: str) -> Extent | None:
        """The part of the shard."""
        with self._lock:  # many threads ask, one looks
            if not self._extents:
                self.find()
            return self._extents.get(path)

    def refuse_without_images(self) -> None:
        """Raise, in one sentence, where the shards have no image; returns at the first one."""
        others: Counter[str] = Counter()

        def counted(kind: str) -> None:
            others[kind] += 1

        for found, _ in self._scan(counted):
            if found.reason is None:
                return
            others[found.reason] += 1
        raise no_images(str(self.place), others)

    def _scan(self, other: Callable[[str], None]) -> Iterator[tuple[Found, Extent | None]]:
        for shard in _named(self.place):
            yield from _images(shard, other)


def _images(shard: _Shard, other: Callable[[str], None]) -> Iterator[tuple[Found, Extent | None]]:
    """The images of a shard and where they lie; the range is None where one is not to be read."""
    size = modified = 0
    try:
        # Opening a pipe would wait for its writer.
        if Path(shard.file).exists() and not Path(shard.file).is_file():
            raise OSError(0, "Not a file")
        with Path(shard.file).open("rb") as file:
            status = os.fstat(file.fileno())
            size, modified = status.st_size, status.st_mtime_ns
            keys: set[str] = set()
            for member in members(file):
                if member.kind == "other" or is_hidden(member.name.rpartition("/")[2]):
                    continue
                if not _is_image(member, file):
                    other(kind_of(member.name))
                    continue
                reason = _reason_against(member, keys)
                # Two members may share a name; where each lies tells them apart.
                name = f"{member.name}@{member.offset}" if reason else member.name
                found = Found(
                    f"{shard.name}/{name}", member.size, modified, class_of(member.name), reason
                )
                part = Extent(shard.file, member.offset, member.size)
                yield found, None if reason else part
    except Damaged as damage:
        reason = f"shard damaged or cut: nothing is read from byte {damage.offset} on"
        yield Found(shard.name, size, modified, reason=reason), None
    except OSError as error:
        reason = f"unreadable: {(error.strerror or str(error)).lower()}"
        yield Found(shard.name, size, modified, reason=reason), None


def _is_image(member: Member, file: BinaryIO) -> bool:
    extension = extension_of(member.name)
    if extension or member.kind != "file":
        return extension in EXTENSIONS
    file.seek(member.offset)
    return starts_like_an_image(file.read(min(HEAD, member.size)))


def _reason_against(member: Member, keys: set[str]) -> str | None:
    """Why this image is left out, if it is; else its key is taken from here on."""
    if member.kind != "file":
        return f"a {'link' if member.kind == 'link' else 'sparse file'} in a shard"
    if member.size > LARGEST:
        return f"larger than {LARGEST / 2**30:.0f} GiB"
    folder, slash, last = member.name.rpartition("/")
    key = folder + slash + last.partition(".")[0]
    if key in keys:
        return "second image of its key"
    keys.add(key)
    return None


def _named(place: Path) -> Iterator[_Shard]:
    """The shards in the order of the braces, then of their names, each once."""
    literal = place.exists() or not _PATTERN.search(str(place))
    fixed = place.parent
    while not literal and _PATTERN.search(str(fixed)):
        fixed = fixed.parent
    given: set[str] = set()
    for pattern in [str(place)] if literal else _expanded(str(place)):
        files = [pattern]
        if not literal and _PATTERN.search(pattern):
            matches = fixed.glob(str(Path(pattern).relative_to(fixed)))
            files = sorted((str(p) for p in matches if not is_hidden(p.name)), key=os.fsencode)
        elif not Path(pattern).exists():
            raise UsageError(f"{encoded(pattern)}: no such file or directory")
        for file in files:
            if file not in given:
                given.add(file)
                _refuse_other_kinds(file)
                yield _Shard(file, Path(file).relative_to(fixed).as_posix())
    if not given:
        raise UsageError(f"no file matches {encoded(str(place))}")


def _refuse_other_kinds(file: str) -> None:
    if _COMPRESSED.search(file):
        raise UsageError(
            f"{encoded(file)} is compressed, so that its images cannot be found one by one; "
            "decompress it to .tar first (JPEGs hardly grow)"
        )
    if not _TAR.search(file):
        raise UsageError(
            f"{encoded(file)}: a pattern is for .tar shards; for image files give their folder, "
            "or a list of them"
        )


def _expanded(pattern: str) -> Iterator[str]:
    """The pattern with each `{a,b}` and `{000..012}` replaced by its values in turn."""
    braces = _BRACES.search(pattern)
    if braces is None:
        yield pattern
        return
    first, last, words = braces.groups()
    for value in (
        words.split(",")
        if words is not None
        else (f"{number:0{len(first)}d}" for number in range(int(first), int(last) + 1))
    ):
        yield from _expanded(pattern[: braces.start()] + value + pattern[braces.end() :])
