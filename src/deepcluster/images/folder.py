"""Which files under a folder may be images, found without opening more than it must.

Nothing here imports torch: a mistyped path is answered at once.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import stat
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from deepcluster.runtime.errors import DataError, UsageError

_DICOM = ("dcm", "dicom")
READS_DICOM = importlib.util.find_spec("pydicom") is not None
"""Whether the extra [dicom] is installed."""
_HEIF = ("heic", "heif", "hif")
READS_HEIF = importlib.util.find_spec("pillow_heif") is not None
"""Whether the extra [heif] is installed."""

EXTENSIONS = (
    *("jpg", "jpeg", "png", "webp", "bmp", "gif", "tif", "tiff", "ppm", "pgm", "avif"),
    *("jp2", "j2k", "jpx"),
    *(_DICOM if READS_DICOM else ()),
    *(_HEIF if READS_HEIF else ()),
)

# Pictures that are not read: some would run programs, others need libraries that are not here.
_ADVICE = {
    "jxl": "convert it to JPEG",
    **dict.fromkeys(("psd", "exr", "hdr"), "convert it to PNG"),
    **dict.fromkeys(("svg", "svgz", "eps", "ps", "ai", "pdf"), "export it as PNG"),
    **dict.fromkeys(() if READS_DICOM else _DICOM, "pip install 'deepcluster[dicom]' reads it"),
    **dict.fromkeys(() if READS_HEIF else _HEIF, "pip install 'deepcluster[heif]' reads it"),
    **dict.fromkeys(("cr2", "cr3", "nef", "arw", "dng", "orf", "raf", "rw2"), "export it as JPEG"),
    "tar": "name the shards: 'FOLDER/*.tar'",
}

_MAGIC = re.compile(
    rb"\xff\xd8\xff|\x89PNG\r\n\x1a\n|GIF8[79]a|RIFF.{4}WEBP|BM.{4}\0\0\0\0"
    rb"|II\*\0|MM\0\*|II\+\0|MM\0\+|P[1-6][ \t\r\n]|.{4}ftypavi[fs]"
    rb"|\0\0\0\x0cjP  \r\n\x87\n|\xff\x4f\xff\x51",
    re.DOTALL,
)
_HEVC = {b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs"}
LEADS_OUT = "link out of the folder: --follow-links follows it"
"""The reason against what is elsewhere, where nobody has asked for it."""

HEAD = 132
"""So many first bytes tell a format; DICOM's name stands behind 128 of anything."""

# Control characters, line separators and undecodable bytes (which Python keeps as surrogates)
# break terminals, web pages and parquet; the percent sign must go too, to keep the way back.
_ODD = re.compile("[%\x00-\x1f\x7f-\x9f\u2028\u2029\udc80-\udcff]")

_OURS = {
    "settings.json": {"format", "effective", "data"},  # a run, whose page has copies of the images
    "study.json": {"study", "deepcluster"},  # hospitals have studies, too
    "store.json": {"format", "images", "checksums"},
}
"""By what file this program knows a folder that it has made, and what that file tells: no image in
it is the user's."""
_MADE_HERE = "of deepcluster's own runs, studies and stores"


class Found(NamedTuple):
    """A file that may be an image, or a place where images are missing."""

    path: str
    """Relative to the root, with forward slashes."""
    size: int
    modified: int
    """Nanoseconds since 1970."""
    label: str | None = None
    """Its class, where a folder or a column names one; for looking at results only."""
    reason: str | None = None
    """Why it is no usable image, where that is known without opening it."""


Seen = Callable[[str | None], None]
"""Told of every file that is looked at: None if it may be an image, else what kind it is. What it
raises ends the looking."""


def unseen(kind: str | None) -> None:
    """Where nobody is to be told."""


class Extent(NamedTuple):
    """Bytes on the disk: a whole file, or a part of one."""

    file: str
    first: int = 0
    size: int = -1
    """-1: to the end of the file."""

    def read(self) -> bytes:
        """The bytes; raises OSError."""
        with Path(self.file).open("rb") as file:
            file.seek(self.first)
            return file.read(self.size)


class _File(NamedTuple):
    path: str
    """Relative to the root."""
    place: str
    status: os.stat_result
    """Of the file that a link leads to, if it leads anywhere."""
    is_link: bool
    leads_out: bool = False
    """Whether it is elsewhere, and not to be looked at."""
    is_ours: bool = False
    """Whether it is a folder that this program has made."""

    @property
    def identity(self) -> tuple[int, int] | str:
        """The same for two ways to one file; Windows lists files without their inode."""
        if self.status.st_ino:
            return self.status.st_dev, self.status.st_ino
        return str(Path(self.place).resolve())


def find_images(root: str | Path, follow_links: bool = False, seen: Seen = unseen) -> list[Found]:
    """Every candidate under the root once, sorted by path whatever the file system's order.

    Hidden files are skipped, and what lies in a run, a study or a store below the root. A file
    reached twice (links) counts where it really lies, or else under its first path. A folder that
    cannot be entered and a link that leads nowhere are listed too, so that reading them fails with
    the reason instead of images being missed in silence; so are links that lead out of the root
    and are not to be followed. What is seen of other kinds is told with advice where there is some.
    """
    found: dict[tuple[int, int] | str, tuple[bool, Found]] = {}
    for file in _files(root, follow_links):
        is_candidate = _is_candidate(file)
        seen(None if is_candidate else _kind(file))
        if is_candidate:
            status, label = file.status, class_of(file.path)
            one = Found(file.path, status.st_size, status.st_mtime_ns, label)
            if file.leads_out:
                one = Found(file.path, 0, 0, label, LEADS_OUT)
            new = (file.is_link, one)
            found[file.identity] = min(found.get(file.identity, new), new, key=_precedence)
    files = [one for _, one in found.values()]
    found.clear()  # the order needs room too, and there may be millions
    files.sort(key=lambda one: _bytes(one.path))
    return files


def refuse_without_images(root: str | Path) -> None:
    """Raise, in one sentence, where a folder has no candidate; returns at the first one.

    What links lead to counts, since nobody is asked yet whether they are followed.
    """
    others: Counter[str] = Counter()
    for file in _files(root, follow_links=True):
        if stat.S_ISDIR(file.status.st_mode) and not file.is_ours:
            others["folders that cannot be entered"] += 1
        elif _is_candidate(file):
            return
        else:
            others[_kind(file)] += 1
    raise no_images(str(root), others)


def no_images(place: str, others: Counter[str]) -> DataError:
    """What to say where only these other files were found."""
    most = sorted(others.items(), key=lambda item: (-item[1], item[0]))[:5]
    seen = ", ".join(f"{count:,} {encoded(kind)}" for kind, count in most)
    return DataError(
        f"0 images in {encoded(place)}; found {seen or 'nothing'}; "
        f"images are {', '.join(EXTENSIONS)} files"
    )


def class_of(path: str) -> str | None:
    """The first folder of a relative path, which is its class if folders are classes at all."""
    first, slash, _ = path.partition("/")
    return sys.intern(first) if slash and first not in ("", "..") else None


def kind_of(path: str) -> str:
    """What is counted of a file that is not read: its extension, and what to do about it."""
    extension = extension_of(path)
    if extension in _ADVICE:
        return f".{extension} ({_ADVICE[extension]})"
    return f".{extension}" if extension else "without extension"


def never_read(path: str) -> str | None:
    """The reason why a picture of this kind is not even opened; None for all other files."""
    return f"not read: {kind_of(path)}" if extension_of(path) in _ADVICE else None


def extension_of(path: str) -> str:
    """The extension in lower case, without its dot; empty where there is none."""
    stem, _, extension = path.rpartition("/")[2].rpartition(".")
    return extension.lower() if stem else ""


def is_hidden(name: str) -> bool:
    """Whether a file of this name is nothing that a person put there to be seen."""
    return name.startswith(".") or name == "Thumbs.db"


def encoded(path: str) -> str:
    """The path as printable UTF-8; odd bytes become %XX, and `decoded` gives the path back."""
    return _ODD.sub(lambda odd: "".join(f"%{byte:02X}" for byte in _bytes(odd[0])), path)


def decoded(text: str) -> str:
    """The path that `encoded` made this text from."""
    raw = re.sub(rb"%([0-9A-F]{2})", lambda code: bytes.fromhex(code[1].decode()), text.encode())
    return raw.decode(errors="surrogateescape")


def starts_like_an_image(head: bytes) -> bool:
    """Whether these first bytes (`HEAD` are enough) are those of a format we read."""
    if _MAGIC.match(head) is not None:
        return True
    return (READS_DICOM and is_dicom(head)) or (READS_HEIF and is_heif(head))


def is_dicom(head: bytes) -> bool:
    """Whether these first bytes are those of a DICOM file."""
    return head[128:HEAD] == b"DICM"


def is_heif(head: bytes) -> bool:
    """Whether these first bytes are those of pictures in HEVC, by any brand that the file names.

    The first brand alone does not tell: mif1 stands before AVIF as well.
    """
    end = min(int.from_bytes(head[:4], "big"), HEAD)
    brands = {head[at : at + 4] for at in (8, *range(16, end - 3, 4))}
    return head[4:8] == b"ftyp" and not brands.isdisjoint(_HEVC)


def _files(root: str | Path, follow_links: bool) -> Iterator[_File]:
    """All that is visible and no folder, and the folders that cannot or shall not be entered.

    A run, a study or a store is one of them, but for the root.

    Links to folders wait until no real folder is left: a file then has its real path whatever
    the order in which the file system lists the links, and a loop ends where it began.
    """
    entered: set[tuple[int, int] | str] = set()
    real = [_File("", str(root), _root_status(root), is_link=False)]
    linked: list[_File] = []
    home = Path(root).resolve()
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
            if folder.path and _is_ours(folder.place):  # what was named is looked through anyway
                yield folder._replace(is_ours=True)
                continue
            for entry in listing:
                status = None if is_hidden(entry.name) else _status(entry)
                if status is None:
                    continue
                path = f"{folder.path}/{entry.name}" if folder.path else entry.name
                leads_out = not follow_links and _leads_out(entry, status, home)
                file = _File(path, entry.path, status, entry.is_symlink(), leads_out)
                if leads_out or not stat.S_ISDIR(status.st_mode):
                    yield file
                elif file.is_link:
                    linked.append(file)
                else:
                    real.append(file)


def _is_ours(place: str) -> bool:
    """Whether a folder is a run, a study or a store: its own file says so."""
    for name, keys in _OURS.items():
        file = Path(place, name)
        try:
            told = json.loads(file.read_bytes()) if file.is_file() else None
        except (OSError, ValueError, RecursionError):
            continue
        if isinstance(told, dict) and keys <= told.keys():
            return True
    return False


def _root_status(root: str | Path) -> os.stat_result:
    try:
        status = Path(root).stat()
    except OSError as error:
        raise UsageError(_sentence(root, error)) from error
    if not stat.S_ISDIR(status.st_mode):
        raise UsageError(
            f"{encoded(str(root))} is not a folder of images, nor a list of them (.txt, .csv or "
            ".parquet) or .tar shards"
        )
    return status


def _sentence(root: str | Path, error: OSError) -> str:
    return f"{encoded(str(root))}: {(error.strerror or str(error)).lower()}"


def _status(entry: os.DirEntry[str]) -> os.stat_result | None:
    """Of what a link leads to, or of the link if it leads nowhere; None if it is gone by now."""
    for follow in (True, False):
        try:
            return entry.stat(follow_symlinks=follow)
        except OSError:
            continue
    return None


def _leads_out(entry: os.DirEntry[str], status: os.stat_result, home: Path) -> bool:
    """Whether it is a link to something that is not under this folder."""
    if not entry.is_symlink() or stat.S_ISLNK(status.st_mode):  # which leads nowhere
        return False
    return not Path(entry.path).resolve().is_relative_to(home)


def _is_candidate(file: _File) -> bool:
    if file.is_ours:
        return False
    mode = file.status.st_mode
    if stat.S_ISDIR(mode):
        return True
    if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
        return False  # opening a pipe would wait for its writer
    extension = extension_of(file.path)
    if extension or file.leads_out:
        return extension in EXTENSIONS
    try:
        with Path(file.place).open("rb") as opened:
            return starts_like_an_image(opened.read(HEAD))
    except OSError:
        return False


def _kind(file: _File) -> str:
    if file.is_ours:
        return _MADE_HERE
    mode = file.status.st_mode
    if file.leads_out and not extension_of(file.path):
        return "links out of the folder (--follow-links)"
    is_file = stat.S_ISREG(mode) or stat.S_ISLNK(mode)
    return kind_of(file.path) if is_file else "pipes, sockets or devices"


def _precedence(item: tuple[bool, Found]) -> tuple[bool, bytes]:
    return item[0], _bytes(item[1].path)


def _bytes(path: str) -> bytes:
    return path.encode(errors="surrogateescape")
