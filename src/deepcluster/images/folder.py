"""Which files under a folder may be images, found without opening more than it must.

Nothing here imports torch: a mistyped path is answered at once.
"""

from __future__ import annotations

import os
import re
import stat
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from deepcluster.runtime.errors import DataError, UsageError

EXTENSIONS = ("jpg", "jpeg", "png", "webp", "bmp", "gif", "tif", "tiff", "ppm", "pgm")

_MAGIC = re.compile(
    rb"\xff\xd8\xff|\x89PNG\r\n\x1a\n|GIF8[79]a|RIFF.{4}WEBP|BM.{4}\0\0\0\0"
    rb"|II\*\0|MM\0\*|II\+\0|MM\0\+|P[1-6][ \t\r\n]",
    re.DOTALL,
)
# Control characters, line separators and undecodable bytes (which Python keeps as surrogates)
# break terminals, web pages and parquet; the percent sign must go too, to keep the way back.
_ODD = re.compile("[%\x00-\x1f\x7f-\x9f\u2028\u2029\udc80-\udcff]")


class Found(NamedTuple):
    """A file that may be an image, or a folder that cannot be entered."""

    path: str
    """Relative to the root, with forward slashes."""
    size: int
    modified: int
    """Nanoseconds since 1970."""


class _File(NamedTuple):
    path: str
    """Relative to the root."""
    place: str
    status: os.stat_result
    """Of the file that a link leads to, if it leads anywhere."""
    is_link: bool

    @property
    def identity(self) -> tuple[int, int] | str:
        """The same for two ways to one file; Windows lists files without their inode."""
        if self.status.st_ino:
            return self.status.st_dev, self.status.st_ino
        return str(Path(self.place).resolve())


def find_images(root: str | Path) -> list[Found]:
    """Every candidate under the root once, sorted by path whatever the file system's order.

    Hidden files are skipped. A file reached twice (links) counts where it really lies, or else
    under its first path. A folder that cannot be entered and a link that leads nowhere are listed
    too, so that reading them fails with the reason instead of images being missed in silence.
    """
    found: dict[tuple[int, int] | str, tuple[bool, bytes, Found]] = {}
    for file in _files(root):
        if _is_candidate(file):
            one = Found(file.path, file.status.st_size, file.status.st_mtime_ns)
            new = (file.is_link, _bytes(file.path), one)
            found[file.identity] = min(found.get(file.identity, new), new)
    return [one for _, _, one in sorted(found.values(), key=lambda item: item[1])]


def quick_check(root: str | Path) -> None:
    """Raise, in one sentence, where training on this folder cannot even begin.

    Returns at the first file that may be an image.
    """
    others: Counter[str] = Counter()
    for file in _files(root):
        if stat.S_ISDIR(file.status.st_mode):
            others["folders that cannot be entered"] += 1
        elif _is_candidate(file):
            return
        else:
            extension = _extension(file.path)
            others[f".{extension}" if extension else "without extension"] += 1
    most = sorted(others.items(), key=lambda item: (-item[1], item[0]))[:5]
    seen = ", ".join(f"{count:,} {encoded(kind)}" for kind, count in most)
    raise DataError(
        f"0 images in {encoded(str(root))}; found {seen or 'nothing'}; "
        f"images are {', '.join(EXTENSIONS)} files"
    )


def encoded(path: str) -> str:
    """The path as printable UTF-8; odd bytes become %XX, and `decoded` gives the path back."""
    return _ODD.sub(lambda odd: "".join(f"%{byte:02X}" for byte in _bytes(odd[0])), path)


def decoded(text: str) -> str:
    """The path that `encoded` made this text from."""
    raw = re.sub(rb"%([0-9A-F]{2})", lambda code: bytes.fromhex(code[1].decode()), text.encode())
    return raw.decode(errors="surrogateescape")


def starts_like_an_image(head: bytes) -> bool:
    """Whether these first bytes (16 are enough) are those of a format we read."""
    return _MAGIC.match(head) is not None


def _files(root: str | Path) -> Iterator[_File]:
    """All that is visible and no folder, and the folders that cannot be entered.

    Links to folders wait until no real folder is left: a file then has its real path whatever
    the order in which the file system lists the links, and a loop ends where it began.
    """
    entered: set[tuple[int, int] | str] = set()
    real = [_File("", str(root), _root_status(root), is_link=False)]
    linked: list[_File] = []
    while real or linked:
        if not real:
            linked.sort(key=lambda link: _bytes(link.path), reverse=True)
        folder = real.pop() if real else linked.pop()
        if folder.identity in entered:
            continue
        entered.add(folder.identity)
        try:
            listing = os.scandir(folder.place)
        except OSError as error:
            if not folder.path:
                raise UsageError(_sentence(root, error)) from error
            yield folder
            continue
        with listing:
            for entry in listing:
                status = None if _is_hidden(entry.name) else _status(entry)
                if status is None:
                    continue
                path = f"{folder.path}/{entry.name}" if folder.path else entry.name
                file = _File(path, entry.path, status, entry.is_symlink())
                if not stat.S_ISDIR(status.st_mode):
                    yield file
                elif file.is_link:
                    linked.append(file)
                else:
                    real.append(file)


def _root_status(root: str | Path) -> os.stat_result:
    try:
        status = Path(root).stat()
    except OSError as error:
        raise UsageError(_sentence(root, error)) from error
    if not stat.S_ISDIR(status.st_mode):
        raise UsageError(f"{encoded(str(root))} is not a folder: give the folder of the images")
    return status


def _sentence(root: str | Path, error: OSError) -> str:
    return f"{encoded(str(root))}: {(error.strerror or str(error)).lower()}"


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name == "Thumbs.db"


def _status(entry: os.DirEntry[str]) -> os.stat_result | None:
    """Of what a link leads to, or of the link if it leads nowhere; None if it is gone by now."""
    for follow in (True, False):
        try:
            return entry.stat(follow_symlinks=follow)
        except OSError:
            continue
    return None


def _is_candidate(file: _File) -> bool:
    mode = file.status.st_mode
    if stat.S_ISDIR(mode):
        return True
    if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
        return False  # opening a pipe would wait for its writer
    extension = _extension(file.path)
    if extension:
        return extension in EXTENSIONS
    try:
        with Path(file.place).open("rb") as opened:
            return starts_like_an_image(opened.read(16))
    except OSError:
        return False


def _extension(path: str) -> str:
    stem, _, extension = path.rpartition("/")[2].rpartition(".")
    return extension.lower() if stem else ""


def _bytes(path: str) -> bytes:
    return path.encode(errors="surrogateescape")
