from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from deepcluster.images.found_once import FoundOnce
from deepcluster.images.index import Changes, Index
from deepcluster.images.source import quick_check, source_of
from deepcluster.images.tar_members import Damaged, members
from deepcluster.runtime.errors import DataError, UsageError

Picture = Callable[..., Image.Image]


def png(picture: Picture, seed: int = 0) -> bytes:
    stored = io.BytesIO()
    picture(24, 16, seed).save(stored, format="PNG")
    return stored.getvalue()


def write(
    place: Path, contents: Iterable[tuple[str, bytes]], form: int = tarfile.GNU_FORMAT
) -> Path:
    with tarfile.open(place, "w", format=form) as tar:
        for name, content in contents:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return place


def paths(place: str | Path) -> list[str]:
    return [found.path for found in source_of(place).find()]


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_image_members_are_found_where_they_lie(
    tmp_path: Path, picture: Picture, form: int
) -> None:
    names = ["cats/b.png", "a.JPG", "d" * 90 + "/" + "e" * 90 + ".png"]
    if form != tarfile.USTAR_FORMAT:
        names += ["f" * 300 + ".png", "é/ü\n.png", "bytes\udce9.png"]
    contents = [(name, png(picture, seed)) for seed, name in enumerate(names)]
    sidecars = [("b.json", b"{}"), ("b.cls", b"3"), ("b.pyd", b"cos\nsystem\n"), ("x.pkl", b".")]
    place = write(tmp_path / "s.tar", [*sidecars, *contents, (".hidden.png", b"")], form)
    source = source_of(place)
    assert paths(place) == [f"s.tar/{name}" for name in names]
    for path, (_, content) in zip(paths(place), contents, strict=True):
        assert source.open(path).read() == content
    assert FoundOnce(source).others == {".json": 1, ".cls": 1, ".pyd": 1, ".pkl": 1}
    with tarfile.open(place) as tar:  # two readers, one opinion
        theirs = [(m.name, m.offset_data, m.size) for m in tar if m.isfile()]
    with place.open("rb") as file:
        assert [member[:3] for member in members(file)] == theirs


def test_names_never_touch_the_disk(tmp_path: Path, picture: Picture) -> None:
    inside = tmp_path / "in"
    inside.mkdir()
    names = ["../../escape.png", "/etc/absolute.png", "a/../b.png", "C:\\x.png"]
    place = write(inside / "s.tar", [(name, png(picture, i)) for i, name in enumerate(names)])
    index = Index.build(place, 2)
    assert index.paths == [f"s.tar/{name}" for name in names]
    assert [path.name for path in tmp_path.rglob("*")] == ["in", "s.tar"]


def test_one_image_to_a_key(tmp_path: Path, picture: Picture) -> None:
    image = png(picture)
    contents = [
        ("k/a.png", image), ("k/b.left.png", image), ("k/a.json", b"{}"), ("k/a.jpg", image),
        ("k/a.png", image), ("a.png", image), ("k/c.d.png", image), ("k/c.png", image),
    ]  # fmt: skip
    place = write(tmp_path / "s.tar", contents)
    index = Index.build(place, 1)
    assert index.paths == [f"s.tar/{name}" for name in ("k/a.png", "k/b.left.png", "a.png", "k/c.d.png")]  # fmt: skip  # noqa: E501
    assert [path.rpartition("@")[0] for path, _ in index.unusable] == [
        "s.tar/k/a.jpg", "s.tar/k/a.png", "s.tar/k/c.png",
    ]  # fmt: skip
    assert {reason for _, reason in index.unusable} == {"second image of its key"}
    with pytest.raises(FileNotFoundError):
        source_of(place).open(index.unusable[0][0])


def test_members_that_are_no_plain_files_have_a_reason(tmp_path: Path, picture: Picture) -> None:
    with tarfile.open(tmp_path / "s.tar", "w", format=tarfile.PAX_FORMAT) as tar:
        for name, kind in {"hard.png": tarfile.LNKTYPE, "soft.png": tarfile.SYMTYPE}.items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "/etc/passwd"
            tar.addfile(member)
        for name, kind in {"folder.png": tarfile.DIRTYPE, "pipe.png": tarfile.FIFOTYPE}.items():
            member = tarfile.TarInfo(name)
            member.type = kind
            tar.addfile(member)
        for name, kind in {"new.png": tarfile.REGTYPE, "old.png": tarfile.GNUTYPE_SPARSE}.items():
            member = tarfile.TarInfo(name)
            member.size, member.type = 3, kind
            if kind == tarfile.REGTYPE:
                member.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}
            tar.addfile(member, io.BytesIO(b"abc"))
        member = tarfile.TarInfo("photo")
        member.size = len(png(picture))
        tar.addfile(member, io.BytesIO(png(picture)))
    index = Index.build(tmp_path / "s.tar", 1)
    assert index.paths == ["s.tar/photo"]
    assert [(path.rpartition("@")[0], reason) for path, reason in index.unusable] == [
        ("s.tar/hard.png", "a link in a shard"),
        ("s.tar/soft.png", "a link in a shard"),
        ("s.tar/new.png", "a sparse file in a shard"),
        ("s.tar/old.png", "a sparse file in a shard"),
    ]


def test_what_lies_before_the_damage_is_kept(tmp_path: Path, picture: Picture) -> None:
    contents = [(f"{number}.png", png(picture, number)) for number in range(5)]
    whole = write(tmp_path / "s.tar", contents).read_bytes()
    with (tmp_path / "s.tar").open("rb") as file:
        starts = [member.offset - 512 for member in members(file)]
    for cut in (starts[3] + 100, starts[3] + 512, starts[4] - 513):
        (tmp_path / "s.tar").write_bytes(whole[:cut])
        index = Index.build(tmp_path / "s.tar", 1)
        reached = 3 if cut >= starts[3] else 2
        assert index.paths == [f"s.tar/{number}.png" for number in range(reached)]
        ((path, reason),) = index.unusable
        assert path == "s.tar"
        assert reason == f"shard damaged or cut: nothing is read from byte {starts[reached]} on"
    bent = bytearray(whole)
    bent[starts[2] + 124] ^= 1  # its size
    (tmp_path / "s.tar").write_bytes(bent)
    index = Index.build(tmp_path / "s.tar", 1)
    assert index.paths == ["s.tar/0.png", "s.tar/1.png"]
    assert f"byte {starts[2]} on" in index.unusable[0][1]
    (tmp_path / "s.tar").write_bytes(whole[:-1024])  # without its end mark nothing is missing
    assert len(Index.build(tmp_path / "s.tar", 1)) == 5
    more = write(tmp_path / "t.tar", [(f"more/{name}", data) for name, data in contents])
    (tmp_path / "s.tar").write_bytes(whole + more.read_bytes())
    assert len(paths(tmp_path / "s.tar")) == 10


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_damage_anywhere_never_raises_anything_else(
    tmp_path: Path, picture: Picture, form: int
) -> None:
    contents = [(f"{number}" + "é" * 120 + ".png", png(picture, number)) for number in range(3)]
    whole = write(tmp_path / "s.tar", contents, form).read_bytes()
    random = np.random.default_rng(0)
    for number in range(300):
        bent = np.frombuffer(whole, dtype=np.uint8).copy()
        bent[random.integers(0, len(bent), 8)] = random.integers(0, 256, 8)
        data = bent.tobytes()[: random.integers(0, len(bent)) if number % 2 else len(bent)]
        with suppress(Damaged):
            for member in members(io.BytesIO(data)):
                assert 0 <= member.offset <= member.offset + member.size <= len(data)


def test_patterns_name_shards(tmp_path: Path, picture: Picture) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "a").mkdir()
    for number in range(12):
        write(tmp_path / f"a/s-{number:02d}.tar", [("0.png", png(picture, number))])
    write(tmp_path / "b/s-00.tar", [("0.png", png(picture, 50))])
    (tmp_path / "a/._s-00.tar").write_bytes(b"left by a Mac")
    assert paths(tmp_path / "a/*.tar") == [f"s-{number:02d}.tar/0.png" for number in range(12)]
    assert paths(tmp_path / "a/s-{09..11}.tar") == [f"s-{n:02d}.tar/0.png" for n in (9, 10, 11)]
    assert paths(tmp_path / "a/s-0[12].tar") == ["s-01.tar/0.png", "s-02.tar/0.png"]
    both = tmp_path / "{b,a}/s-0*.tar"
    assert paths(both)[:2] == ["b/s-00.tar/0.png", "a/s-00.tar/0.png"]
    assert len(Index.build(both, 2)) == 11  # keys of two shards may agree
    assert Index.build(both, 2).labels is None
    (tmp_path / "a/s-[0].tar").write_bytes((tmp_path / "a/s-00.tar").read_bytes())
    assert paths(tmp_path / "a/s-[0].tar") == ["s-[0].tar/0.png"]  # a file of that very name


def test_folders_within_shards_are_labels(tmp_path: Path, picture: Picture) -> None:
    for number in range(2):
        names = [f"{kind}/{number}.png" for kind in ("dog", "cat")]
        write(tmp_path / f"{number}.tar", [(name, png(picture, number)) for name in names])
    index = Index.build(tmp_path / "*.tar", 1)
    assert index.labels is not None
    assert index.labels.tolist() == [1, 0, 1, 0]


def test_changes_are_noticed(tmp_path: Path, picture: Picture) -> None:
    contents = [(f"{number}.png", png(picture, number)) for number in range(4)]
    place = write(tmp_path / "s.tar", contents)
    index = Index.build(place, 1)
    write(place, contents)
    assert index.changes(place) == Changes([], [], [])
    write(place, [*contents[:2], ("2.png", png(picture, 9)), ("new.png", png(picture))])
    assert index.changes(place) == Changes(["s.tar/new.png"], ["s.tar/3.png"], ["s.tar/2.png"])


def test_threads_may_read_at_once_without_having_listed(tmp_path: Path, picture: Picture) -> None:
    contents = {f"s.tar/{number}.png": png(picture, number) for number in range(40)}
    place = write(tmp_path / "s.tar", [(path[6:], data) for path, data in contents.items()])
    source = source_of(place)
    with ThreadPoolExecutor(8) as pool:
        read = list(pool.map(lambda path: source.open(path).read(), list(contents) * 5))
    assert read == list(contents.values()) * 5


def test_what_cannot_be_read_is_said_in_a_sentence(tmp_path: Path, picture: Picture) -> None:
    refused: list[tuple[str, type[Exception], str]] = [
        ("gone.tar", UsageError, r"gone\.tar: no such file or directory"),
        ("*.tar", UsageError, r"no file matches .*\*\.tar"),
        ("s.tar.gz", UsageError, r"s\.tar\.gz is compressed"),
        ("s*.gz", UsageError, r"s\.tar\.gz is compressed"),
        ("photos/*", UsageError, r"a pattern is for \.tar shards"),
        ("t/none.tar", DataError, r"0 images in .*none\.tar; found 2 \.txt"),
        ("t/{none,lost}.tar", UsageError, r"lost\.tar: no such file"),
        ("t/junk.tar", DataError, r"found 1 shard damaged or cut: nothing is read from byte 0 on"),
    ]
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/a.jpg").write_bytes(b"")
    (tmp_path / "t").mkdir()
    with tarfile.open(tmp_path / "s.tar.gz", "w:gz"):
        pass
    write(tmp_path / "t/none.tar", [("a.txt", b"x"), ("b.txt", b"y")])
    (tmp_path / "t/junk.tar").write_bytes(b"no tar at all" * 100)
    for place, kind, said in refused:
        with pytest.raises(kind, match=said):
            quick_check(tmp_path / place)
    write(tmp_path / "t/none.tar", [("a.txt", b"x"), ("b.png", b"y")])
    quick_check(tmp_path / "t/none.tar")
    with pytest.raises(DataError, match=r"found 2 \.tar \(name the shards: 'FOLDER/\*\.tar'\)"):
        quick_check(tmp_path / "t")
