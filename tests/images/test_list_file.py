from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from deepcluster.images.found_once import FoundOnce
from deepcluster.images.index import Changes, Index
from deepcluster.images.source import quick_check, source_of
from deepcluster.runtime.errors import DataError, UsageError


def write(place: Path, text: str | bytes) -> Path:
    place.write_bytes(text if isinstance(text, bytes) else text.encode())
    return place


def paths(place: Path) -> list[str]:
    return [found.path for found in source_of(place).find()]


def test_the_order_is_the_lists_and_each_path_counts_once(photos: Path) -> None:
    text = "\ufeff# mine\r\ndogs/4.jpg\r\n\r\n  \r\ncats/1.jpg\r\n./dogs/4.jpg\r\n  # end\r\n"
    listed = write(photos / "l.txt", f"{text}{photos.absolute()}/cats/1.jpg\ndogs//0.jpg")
    assert paths(listed) == ["dogs/4.jpg", "cats/1.jpg", "dogs/0.jpg"]
    assert FoundOnce(source_of(listed)).others == {"listed again": 2}
    index = Index.build(listed, 2)
    assert index.paths == paths(listed)
    assert index.labels is not None
    assert index.labels.tolist() == [1, 0, 1]


def test_absolute_paths_lead_anywhere(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "lists").mkdir()
    listed = write(tmp_path / "lists/l.txt", f"{photos}/cats/1.jpg\n../photos/dogs/0.jpg\n")
    index = Index.build(listed, 1)
    assert index.paths == [f"{photos}/cats/1.jpg", "../photos/dogs/0.jpg"]
    assert index.labels is None
    assert index.changes(listed) == Changes([], [], [])


@pytest.mark.parametrize("column", ["path", "File", "filename", "IMAGE"])
def test_a_table_names_its_column_of_paths(photos: Path, column: str) -> None:
    rows = {"n": [1, 2], column: ["dogs/0.jpg", "cats/1.jpg"], "label": ["b", "a"]}
    pq.write_table(pa.table(rows), photos / "l.parquet")
    text = f"n,{column},label\n1,dogs/0.jpg,b\n\n3\n2,cats/1.jpg,a\n4,,c\n"
    for listed in (write(photos / "l.csv", text), photos / "l.parquet"):
        index = Index.build(listed, 1)
        assert index.paths == ["dogs/0.jpg", "cats/1.jpg"]
        assert index.usable["label"].to_pylist() == ["b", "a"]
        assert index.labels is not None
        assert index.labels.tolist() == [1, 0]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be"])
@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_a_table_is_read_as_spreadsheets_write_it(photos: Path, encoding: str, mark: str) -> None:
    head = f'"n,;\t"{mark}path{mark}label\r\n'
    text = head + f"1{mark}dogs/0.jpg{mark}é\r\n2{mark}cats/1.jpg{mark}a;b,c\r\n"
    if mark != "\t":
        text = text.replace("a;b,c", '"a;b,c"')
    start = "\ufeff" if encoding == "utf-16-be" else ""
    listed = write(photos / "l.csv", (start + text).encode(encoding))
    index = Index.build(listed, 1)
    assert index.paths == ["dogs/0.jpg", "cats/1.jpg"]
    assert index.usable["label"].to_pylist() == ["é", "a;b,c"]


def test_a_list_in_utf_16_is_read(photos: Path) -> None:
    assert paths(write(photos / "l.txt", "dogs/4.jpg\r\ncats/1.jpg\r\n".encode("utf-16"))) == [
        "dogs/4.jpg",
        "cats/1.jpg",
    ]


def test_labels_may_be_numbers_and_serve_only_where_all_are_there(photos: Path) -> None:
    names = ["dogs/0.jpg", "cats/1.jpg", None]
    pq.write_table(pa.table({"path": names, "label": [7, 12, 3]}), photos / "l.parquet")
    index = Index.build(photos / "l.parquet", 1)
    assert index.usable["label"].to_pylist() == ["7", "12"]
    listed = write(photos / "l.csv", "path,label\n9.jpg,\ndogs/0.jpg,a\ncats/1.jpg,b\n0.jpg\n")
    Image.new("RGB", (8, 8)).save(photos / "9.jpg")
    index = Index.build(listed, 1)
    assert index.usable["label"].to_pylist() == [None, "a", "b"]
    assert index.labels is None


def test_odd_names_survive_a_csv(tmp_path: Path, picture: Callable[..., Image.Image]) -> None:
    names = [b"new\nline.png", b'quo"te.png', b"caf\xe9.png", b"a,b.png", b"<svg onload=x>.png"]
    for name in names:
        picture().save(tmp_path / os.fsdecode(name))
    quoted = [b'"' + name.replace(b'"', b'""') + b'"' for name in names]
    listed = write(tmp_path / "l.csv", b"\n".join([b"path", *quoted]))
    index = Index.build(listed, 1)
    assert [os.fsencode(path) for path in index.paths] == names
    assert index.unusable == []


def test_what_cannot_be_read_has_a_reason(photos: Path) -> None:
    os.mkfifo(photos / "pipe.jpg")
    listed = write(
        photos / "l.csv",
        "path\ngone.jpg\ncats\npipe.jpg\ndrawing.SVG\nx\0y.jpg\ncats/1.jpg/x.jpg\ncats/1.jpg\n",
    )
    index = Index.build(listed, 2)
    assert index.paths == ["cats/1.jpg"]
    assert index.unusable == [
        ("gone.jpg", "unreadable: no such file or directory"),
        ("cats", "unreadable: not a file"),
        ("pipe.jpg", "unreadable: not a file"),
        ("drawing.SVG", "not read: .svg (export it as PNG)"),
        ("x\0y.jpg", "unreadable: no file can have this name"),
        ("cats/1.jpg/x.jpg", "unreadable: not a directory"),
    ]
    (photos / "cats/1.jpg").unlink()
    assert index.changes(listed).changed == ["cats/1.jpg"]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("l.txt", "# nothing\n", r"l\.txt lists no paths"),
        ("l.csv", "", r"l\.csv has no column path or .*; its first line is nothing"),
        ("l.csv", "where;label\na.jpg;1\n", "its first line is where;label"),
        ("l.csv", "path\n", "lists no paths"),
        ("l.parquet", "PAR1 no", r"l\.parquet cannot be read: "),
    ],
)
def test_a_list_without_paths_is_refused(tmp_path: Path, name: str, text: str, said: str) -> None:
    with pytest.raises(DataError, match=said):
        quick_check(write(tmp_path / name, text))


def test_a_table_of_something_else_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"image": [{"bytes": b"x", "path": "a"}]}), tmp_path / "l.parquet")
    with pytest.raises(DataError, match="column image holds struct"):
        quick_check(tmp_path / "l.parquet")
    pq.write_table(pa.table({"url": ["a"]}), tmp_path / "l.parquet")
    with pytest.raises(DataError, match=r"no column path or .*; it has url"):
        quick_check(tmp_path / "l.parquet")


def test_a_list_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"gone\.csv: no such file or directory"):
        quick_check(tmp_path / "gone.csv")
