"""The same files as a folder, a list and shards: one verdict on each, whatever holds them."""

from __future__ import annotations

import csv
import gc
import hashlib
import io
import os
import struct
import subprocess
import sys
import tarfile
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from deepcluster.images import crew
from deepcluster.images.decode import read
from deepcluster.images.folder import Extent
from deepcluster.images.found_once import FoundOnce
from deepcluster.images.index import Index
from deepcluster.images.list_file import ListFile
from deepcluster.images.shards import Shards
from deepcluster.images.source import Folder, is_store, quick_check, source_of

Picture = Callable[..., Image.Image]
Corpus = dict[str, tuple[bytes, str | None]]


def stored(image: Image.Image, kind: str, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, format=kind, **options)
    return file.getvalue()


def bomb() -> bytes:
    header = b"IHDR" + struct.pack(">IIBBBBB", 20_000, 20_000, 8, 0, 0, 0, 0)
    chunks = [header, b"IDAT" + zlib.compress(bytes(1000)), b"IEND"]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk))
        for chunk in chunks
    )


def bands(count: int) -> bytes:
    """A TIFF with so many bands, eight bits each."""
    short, long = 3, 4
    size = 2 + 12 * 8 + 4
    tags = [
        (256, short, 1, 8), (257, short, 1, 8), (258, short, count, 8 + size), (259, short, 1, 1),
        (262, short, 1, 1), (273, long, 1, 8 + size + 2 * count), (277, short, 1, count),
        (279, long, 1, 64 * count),
    ]  # fmt: skip
    entries = b"".join(struct.pack("<HHII", *tag) for tag in tags)
    directory = struct.pack("<H", len(tags)) + entries + bytes(4)
    return b"II*\0\x08\0\0\0" + directory + struct.pack("<H", 8) * count + bytes(64 * count)


@pytest.fixture
def corpus(picture: Picture) -> Corpus:
    """Files by name: what they hold, and why they are unusable, or None."""
    jpeg, wide = stored(picture(), "JPEG"), np.arange(5000, dtype=np.uint16).reshape(50, 100)
    frames = [picture(20, 20, seed) for seed in range(3)]
    good = {
        "a/plain.jpg": jpeg,
        "a/UPPER.JPEG": stored(picture(seed=1), "JPEG"),
        "a/wrong name.jpg": stored(picture(seed=2), "PNG"),
        "a/grey.png": stored(picture().convert("L"), "PNG"),
        "a/bits.png": stored(picture().convert("1"), "PNG"),
        "a/palette.gif": stored(picture().convert("P"), "GIF"),
        "a/transparent.png": stored(picture().convert("RGBA"), "PNG"),
        "a/ink.jpg": stored(picture().convert("CMYK"), "JPEG"),
        "a/deep.png": stored(Image.fromarray(wide), "PNG"),
        "a/float.tif": stored(Image.fromarray(wide.astype(np.float32)), "TIFF"),
        "a/moving.gif": stored(frames[0], "GIF", save_all=True, append_images=frames[1:]),
        "a/dot.png": stored(picture(1, 1), "PNG"),
        "a/line.png": stored(picture(1, 3000), "PNG"),
        "a/copy.jpg": jpeg,
        "b/no extension": jpeg,
        'b/<b onload="x">.jpg': jpeg,
        "b/-rf ~ 'quote'\n.jpg": jpeg,
        os.fsdecode(b"b/caf\xe9.jpg"): jpeg,
    }
    bad = {
        "b/empty.jpg": (b"", "empty file"),
        "b/cut.jpg": (jpeg[:-300], "truncated"),
        "b/page.jpg": (b"<!DOCTYPE html><title>404</title>", "not an image"),
        "b/lfs.png": (b"version https://git-lfs.github.com/spec/v1\n", "git-lfs pointer: run git lfs pull"),  # noqa: E501
        "b/bomb.png": (bomb(), "too many pixels (400 MP > --max-pixels 80 MP): deepcluster tile cuts it"),  # noqa: E501
        "b/head.png": (b"\x89PNG\r\n\x1a\n" + b"\7" * 300, "damaged or unsupported"),
        "b/satellite.tif": (bands(13), "TIFF of 13 bands: choose three with --bands"),
    }  # fmt: skip
    return {**{name: (data, None) for name, data in good.items()}, **bad}


def laid_out(layout: str, corpus: Corpus, root: Path) -> Path:
    """The corpus in this layout; gives what a user would name."""
    root.mkdir()
    names = sorted(corpus, key=os.fsencode)
    if layout == "shards":
        for number in range(3):
            with tarfile.open(root / f"{number}.tar", "w", errors="surrogateescape") as tar:
                for name in names[number::3]:
                    member = tarfile.TarInfo(name)
                    member.size = len(corpus[name][0])
                    tar.addfile(member, io.BytesIO(corpus[name][0]))
                tar.addfile(tarfile.TarInfo("notes.txt"))
        return root / "*.tar"
    for name in names:
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(corpus[name][0])
    if layout == "folder":
        return root
    with (root / "l.csv").open("w", newline="", errors="surrogateescape") as file:
        csv.writer(file).writerows([["path"], *([name] for name in names)])
    return root / "l.csv"


def state(root: Path) -> dict[str, tuple[str, int]]:
    files = [path for path in root.rglob("*") if path.is_file()]
    return {
        str(path): (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
        for path in [*files]
    }


def test_every_layout_gives_the_same_verdicts_and_pixels_and_changes_nothing(
    tmp_path: Path, corpus: Corpus
) -> None:
    seen: dict[str, tuple[object, ...]] = {}
    for layout in ("folder", "list", "shards"):
        place = laid_out(layout, corpus, tmp_path / layout)
        before = state(tmp_path / layout)
        quick_check(place)
        source = source_of(place)
        index = Index.build(place, 2)
        rows = index.table.to_pylist()
        inside = len("0.tar/") if layout == "shards" else 0
        named = {found.path[inside:]: row for found, row in zip(source.find(), rows, strict=True)}
        assert {name: row["reason"] for name, row in named.items()} == {
            name: reason for name, (_, reason) in corpus.items()
        }
        for name, (data, _) in corpus.items():
            assert named[name]["hash"] == hashlib.blake2b(data, digest_size=16).hexdigest()
        pixels = {path[inside:]: read(path, source).tobytes() for path in index.paths}
        columns = ("size", "width", "height", "mode", "hash", "label", "reason")
        content = {name: [row[c] for c in columns] for name, row in sorted(named.items())}
        assert index.labels is not None
        seen[layout] = content, pixels, index.distinct, index.labels.sum()
        assert index.changes(place).changed == []
        assert state(tmp_path / layout) == before
    assert seen["folder"] == seen["list"] == seen["shards"]


def test_processes_give_the_same_verdicts_and_change_nothing(
    tmp_path: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = laid_out("folder", corpus, tmp_path / "folder")
    before = state(place)
    expected = Index.build(place, 2)
    monkeypatch.setattr(crew, "PROCESSES_PAY", 1)
    assert Index.build(place, 2).table.equals(expected.table)
    assert state(place) == before


def test_processes_read_parts_of_shards_and_are_sent_what_is_nowhere_on_the_disk(
    tmp_path: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    shards = Shards(laid_out("shards", corpus, tmp_path / "shards"))
    expected = Index.build(shards, 2)

    class HalfInMemory(Shards):
        def extent(self, path: str) -> Extent | None:
            return None if len(path) % 2 else super().extent(path)

        def open(self, path: str) -> BinaryIO:
            extent = super().extent(path)
            if extent is None or path == gone:
                raise FileNotFoundError(2, "No such member")
            return io.BytesIO(extent.read())

    gone = next(path for path in expected.paths if len(path) % 2)
    monkeypatch.setattr(crew, "PROCESSES_PAY", 1)
    got = Index.build(HalfInMemory(shards.place), 1)
    assert (gone, "unreadable: no such member") in got.unusable
    assert [path for path in expected.paths if path != gone] == got.paths
    assert got.usable["hash"].to_pylist() == [
        content
        for path, content in zip(expected.paths, expected.usable["hash"].to_pylist(), strict=True)
        if path != gone
    ]


def test_the_place_decides_the_layout(tmp_path: Path) -> None:
    (tmp_path / "odd.tar").mkdir()
    (tmp_path / "odd.csv").mkdir()
    kinds = {
        "odd.tar": Folder, "odd.csv": Folder, "nothing": Folder, "l.TXT": ListFile,
        "l.csv": ListFile, "l.parquet": ListFile, "s.tar": Shards, "s.tgz": Shards,
        "s-{0..3}.tar": Shards, "*/x": Shards,
    }  # fmt: skip
    assert {name: type(source_of(tmp_path / name)) for name in kinds} == kinds
    source = Folder(tmp_path)
    assert source_of(source) is source


def test_a_store_is_known_by_its_manifest(tmp_path: Path) -> None:
    assert not is_store(tmp_path)
    assert not is_store(tmp_path / "missing")
    (tmp_path / "store.json").write_text("{}")
    assert is_store(tmp_path)
    quick_check(tmp_path)


def test_other_pictures_are_counted_and_never_opened(photos: Path) -> None:
    for name in ("a.jxl", "b.SVG", "c.eps", "d.psd", "e.psd", "f.txt", ".hidden"):
        (photos / name).write_bytes(b"x")
    os.mkfifo(photos / "pipe.jpg")
    source = FoundOnce(source_of(photos))
    assert source.others == {
        ".jxl (convert it to JPEG)": 1,
        ".svg (export it as PNG)": 1,
        ".eps (export it as PNG)": 1,
        ".psd (convert it to PNG)": 2,
        ".txt": 1,
        "pipes, sockets or devices": 1,
    }
    assert len(source.find()) == 10


@pytest.mark.parametrize("layout", ["folder", "list", "shards"])
def test_of_each_file_something_is_told_the_first_time(tmp_path: Path, layout: str) -> None:
    place = laid_out(layout, {"a.png": (b"x", None), "b/c.png": (b"y", None)}, tmp_path / layout)
    if layout == "folder":
        (place / "notes.txt").write_bytes(b"")
    if layout == "list":
        place.write_text("path\na.png\nb/c.png\n./a.png\n")
    seen: list[str | None] = []
    source = FoundOnce(source_of(place))
    found = source.find(seen.append)
    assert [one.path.removeprefix("0.tar/").removeprefix("1.tar/") for one in found] == [
        "a.png", "b/c.png",
    ]  # fmt: skip
    assert seen.count(None) == 2
    other = "listed again" if layout == "list" else ".txt"
    assert source.others == {other: 3 if layout == "shards" else 1}
    assert len(seen) == 2 + source.others.total()
    (place if layout == "folder" else place.parent).rename(tmp_path / "gone")
    assert source.find(seen.append) is found
    assert len(seen) == 2 + source.others.total()


@pytest.mark.parametrize("layout", ["folder", "list", "shards"])
def test_under_a_kibibyte_a_file(tmp_path: Path, layout: str) -> None:
    count = 4000
    files: Corpus = {f"class-{n % 9}/image-number-{n:08d}.jpg": (b"", None) for n in range(count)}
    place = laid_out(layout, files, tmp_path / "many")
    Index.build(place, 1)  # imports and caches are not the files'
    peaks = []
    for _ in range(2):  # what other tests have left behind may go, or grow, while one is measured
        gc.collect()
        held = pa.total_allocated_bytes()
        tracemalloc.start()
        index = Index.build(place, 1)
        peaks.append(tracemalloc.get_traced_memory()[1] + pa.total_allocated_bytes() - held)
        tracemalloc.stop()
        assert len(index.unusable) == count
    assert min(peaks) / count < 1024


def test_no_layout_needs_torch(tmp_path: Path) -> None:
    (tmp_path / "l.txt").write_text("a.jpg")
    code = (
        "import sys\nfrom deepcluster.cli import main\n"
        "for place in ('gone', 'gone.txt', 'gone.csv', 'gone.tar', '*.tar', 's-{0..9}.tar'):\n"
        "    assert main(['check', place]) == main(['train', place]) == 2\n"
        "from deepcluster.images.source import quick_check\nquick_check('l.txt')\n"
        "assert not {'torch', 'pyarrow', 'sklearn'} & {*sys.modules}"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("deepcluster: ") == 12


@pytest.mark.parametrize(
    ("library", "extra", "name"),
    [
        ("pillow_heif", "heif", "a.HEIC"),
        ("pillow_heif", "heif", "a.heif"),
        ("pydicom", "dicom", "a.dcm"),
    ],
)
def test_without_an_extra_it_is_said_what_to_install(
    library: str, extra: str, name: str, photos: Path
) -> None:
    (photos / name).write_bytes(b"x")
    code = (
        f"import sys; sys.modules[{library!r}] = None\n"
        "from deepcluster.images.folder import never_read\n"
        "from deepcluster.images.found_once import FoundOnce\n"
        "from deepcluster.images.source import source_of\n"
        f"others = FoundOnce(source_of({str(photos)!r})).others\n"
        f"print(dict(others), never_read({name!r}), sep='\\n')"
    )
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    kind = f".{name[2:].lower()} (pip install 'deepcluster[{extra}]' reads it)"
    assert told.stdout.splitlines() == [repr({kind: 1}), f"not read: {kind}"]
