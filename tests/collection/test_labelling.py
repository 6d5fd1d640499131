"""A few labels become many, and it is said how good they are."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import threading
from pathlib import Path

import child
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from deepcluster.cli import main
from deepcluster.collection import labelling
from deepcluster.collection.known_paths import KnownPaths
from deepcluster.collection.labelling import most_helpful, read_labels, spread
from deepcluster.collection.table import write_csv
from deepcluster.runtime.errors import DataError


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def hills(count: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Unit rows around three directions, and which one each is of."""
    randomness = np.random.default_rng(2)
    kinds = np.arange(count) % 3
    rows = np.eye(6)[kinds] + randomness.normal(0, 0.15, (count, 6))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32), kinds


def test_a_few_labels_are_spread_rightly():
    rows, kinds = hills()
    labels = {number: "abc"[kinds[number]] for number in range(12)}
    for way in spread(rows, labels):
        assert (way.labels == np.array(list("abc"))[kinds]).mean() > 0.95
        assert way.accuracy == pytest.approx(1, abs=0.1)
        assert not way.doubted
        assert way.confidence.min() >= 1 / 3
        assert (way.confidence - way.margin >= -1e-9).all()


def test_wrong_labels_have_an_accuracy_of_chance():
    rows, _ = hills(120)
    randomness = np.random.default_rng(0)
    labels = {number: "ab"[randomness.integers(2)] for number in range(100)}
    for way in spread(rows, labels):
        assert 0.3 < way.accuracy < 0.7
        assert way.doubted


def test_labels_that_the_features_do_not_show_are_not_to_be_relied_on(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture
):
    names = child.table(run / "clusters.parquet")["path"]
    few = tmp_path / "few.csv"
    for said, label in (("", lambda name, _: name.split("/")[0]), ("do not rely", _by_chance)):
        lines = [f"{name},{label(name, at)}" for at, name in enumerate(names)]
        few.write_text("\n".join(["path,label", *lines]))
        out = tmp_path / f"all{len(said)}.csv"
        assert main(["label", str(run), "--labels", str(few), "--out", str(out)]) == 0
        assert ("do not rely" in capsys.readouterr().out) == bool(said)


def _by_chance(_: str, at: int) -> str:
    return "ab"[np.random.default_rng(at).integers(2)]


def test_the_neighbours_are_those_of_a_search_by_hand():
    rows, kinds = hills()
    labels = {number: "abc"[kinds[number]] for number in range(9)}
    way = spread(rows, labels)[0]
    known = np.arange(9)
    for number in (20, 31, 42):
        apart = np.linalg.norm(rows[known].astype(np.float64) - rows[number], axis=1)
        near = np.argsort(apart)[:5]
        votes = {}
        for at in near:
            votes[labels[at]] = votes.get(labels[at], 0) + 1 / apart[at]
        best = max(votes, key=votes.get)
        assert way.labels[number] == best
        assert way.confidence[number] == pytest.approx(votes[best] / sum(votes.values()), rel=1e-3)


@pytest.mark.parametrize("classes", [2, 3])
def test_in_parts_and_from_a_file_as_all_at_once(classes: int, tmp_path: Path, monkeypatch):
    rows, kinds = hills(91)
    np.save(tmp_path / "rows.npy", rows.astype(np.float16))
    kept = np.load(tmp_path / "rows.npy", mmap_mode="r")
    labels = {number: "abc"[kinds[number] % classes] for number in range(0, 60, 2)}
    monkeypatch.setattr(labelling, "_HELD", 6 * 20)
    told: list[int] = []
    parts = spread(kept, labels, told.append)
    assert told == [20, 20, 20, 20, 11]
    known = kept[sorted(labels)].astype(np.float32)
    values = [labels[number] for number in sorted(labels)]
    probe = LogisticRegression(C=10.0, max_iter=2000).fit(known, values)
    shares = probe.predict_proba(kept.astype(np.float32)).astype(np.float64)
    assert parts[1].labels.tolist() == probe.classes_[shares.argmax(axis=1)].tolist()
    np.testing.assert_allclose(parts[1].confidence, shares.max(axis=1), atol=1e-6)
    order = np.sort(shares, axis=1)
    np.testing.assert_allclose(parts[1].margin, order[:, -1] - order[:, -2], atol=1e-6)


def test_one_label_of_a_kind_gives_no_accuracy():
    rows, kinds = hills()
    labels = {number: "abc"[kinds[number]] for number in range(3)}
    assert [way.accuracy for way in spread(rows, labels)] == [None, None]


def test_the_helpful_images_are_doubtful_and_apart():
    rows, _ = hills(90)
    doubt = np.zeros(90)
    doubt[30:80] = 0.9
    doubt[40] = 1.0
    doubt[:10] = -np.inf
    chosen = most_helpful(rows, doubt, 5)
    assert chosen[0] == 40
    assert len(set(chosen.tolist())) == 5
    assert set(chosen.tolist()) <= set(range(30, 80))
    assert not set(most_helpful(rows, doubt, 200).tolist()) & set(range(10))
    # Equal pictures tell the same: of copies, one is asked about.
    copies = np.repeat(rows[:3], 4, axis=0)
    assert len({tuple(copies[at]) for at in most_helpful(copies, np.full(12, 0.5), 3)}) == 3


def test_from_a_csv_to_a_csv(run: Path, images: Path, tmp_path: Path):
    names = child.table(run / "clusters.parquet")["path"]
    some = names[::4]
    lines = ["path,label", *(f"{name},{name.split('/')[0]}" for name in some)]
    lines[3] = f"{images / some[2]},{some[2].split('/')[0]}"  # a file's own path
    (tmp_path / "labels.csv").write_text("\n".join(lines))
    words = ["label", str(run), "--labels", str(tmp_path / "labels.csv")]
    assert main([*words, "--out", str(tmp_path / "all.csv")]) == 0
    found = rows_of(tmp_path / "all.csv")
    assert [row["path"] for row in found] == names
    assert [row["given"] for row in found][::4] == [name.split("/")[0] for name in some]
    assert {row["probe"] for row in found} <= {name.split("/")[0] for name in names}
    asked = rows_of(tmp_path / "all.ask.csv")
    assert len(asked) == 20
    assert not {row["path"] for row in asked} & set(some)
    assert all(row["label"] == "" for row in asked)
    assert list(found[0]) == [
        *("id", "path", "given"),
        *("neighbours", "neighbours_confidence", "probe", "probe_confidence"),
    ]
    assert all(len(row["probe_confidence"]) <= len("0.1234") for row in found)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_labels_are_read_as_spreadsheets_write_them(
    encoding: str, mark: str, run: Path, images: Path, tmp_path: Path
):
    names = child.table(run / "clusters.parquet")["path"]
    lines = [("n", "File", "Label"), (1, names[3], "é;a, b"), (), (2, images / names[5], "c"), (3,)]
    file = io.StringIO(newline="")
    csv.writer(file, delimiter=mark).writerows(lines)
    place = tmp_path / "labels.csv"
    place.write_bytes(file.getvalue().encode(encoding))
    assert read_labels(place, names, images) == {3: "é;a, b", 5: "c"}


def test_labels_may_come_through_a_pipe(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    text = "path;label\na.png;x\nb.png;y\n"
    writer = threading.Thread(target=lambda: (tmp_path / "pipe").write_text(text))
    writer.start()
    assert read_labels(tmp_path / "pipe", ["a.png", "b.png"], tmp_path) == {0: "x", 1: "y"}
    writer.join()


def test_empty_lines_are_no_labels(tmp_path: Path):
    file = tmp_path / "labels.csv"
    file.write_text("\n\npath,label\n\na.png,x\n\nb.png,\nz.png,y\n")
    with pytest.raises(DataError, match=r"1 of 2 paths .* write them as in clusters.parquet"):
        read_labels(file, ["a.png", "b.png"], tmp_path)


def test_unknown_paths_of_another_encoding_say_so(tmp_path: Path):
    file = tmp_path / "labels.csv"
    file.write_bytes("path,label\né.png,x\na.png,y\n".encode("latin-1"))
    with pytest.raises(DataError, match="save the file as UTF-8"):
        read_labels(file, ["é.png", "a.png"], tmp_path)


def test_labels_of_another_encoding_are_refused_and_such_paths_are_found(tmp_path: Path):
    place = tmp_path / "labels.csv"
    place.write_bytes(b"path,label\ncaf\xe9.png,x\nb.png,y\n")
    assert read_labels(place, ["caf%E9.png", "b.png"], tmp_path) == {0: "x", 1: "y"}
    place.write_bytes(b"path,label\na.png,caf\xe9\nb.png,y\n")
    with pytest.raises(DataError, match=r"the label of a\.png is not UTF-8"):
        read_labels(place, ["a.png", "b.png"], tmp_path)


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("path,label\nnowhere.png,a\nkind0/0000.png,b\n", 3, "nowhere.png; write them as in"),
        ("path,label\nkind0/0000.png,a\n", 3, "1 different labels"),
        ("path,label\nkind0/0000.png,a\nkind0/0000.png,b\n", 3, "two labels: a and b"),
        ("file name,kind\nx,y\n", 3, "must have the columns path and label"),
        ("", 3, "must have the columns path and label"),
        (None, 2, "no such file"),
    ],
)
def test_bad_labels(
    text: str | None,
    code: int,
    said: str,
    run: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture,
):
    file = tmp_path / "labels.csv"
    if text is not None:
        file.write_text(text)
    out = tmp_path / "all.csv"
    assert main(["label", str(run), "--labels", str(file), "--out", str(out)]) == code
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not out.exists()


def test_what_exists_is_kept(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    (tmp_path / "all.ask.csv").write_text("mine")
    words = ["label", str(run), "--labels", "x.csv", "--out", str(tmp_path / "all.csv")]
    assert main(words) == 2
    assert "all.ask.csv exists" in capsys.readouterr().err
    assert main(["label", str(run)]) == 2
    assert "--labels" in capsys.readouterr().err
    shutil.rmtree(tmp_path)


def test_an_image_is_known_however_its_path_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Of a folder and of a list: as the run has it, from here, whole, or through a link."""
    photos = tmp_path / "photos"
    photos.mkdir()
    (tmp_path / "link").symlink_to(photos)
    monkeypatch.chdir(tmp_path)
    by_folder = KnownPaths(["a.png", "b c.png"], photos)
    by_list = KnownPaths(["photos/a.png", f"{photos}/b c.png"], tmp_path / "list.txt")
    for known in (by_folder, by_list):
        for number, name in enumerate(("a.png", "b c.png")):
            for given in (f"photos/{name}", f"{photos}/{name}", f"./photos/../photos/{name}"):
                assert known.number(given) == number
            assert known.number(f"link/{name}") == number
        assert known.number("photos/c.png") is None
        assert known.number("/elsewhere/a.png") is None
    assert by_folder.number("a.png") == 0


def test_only_of_a_list_are_all_paths_looked_through(tmp_path: Path):
    """The names of a folder are as short as they can be; a list may write ../a.png or ./b.png."""
    (tmp_path / "photos").mkdir()
    names = ["caf%E9.png", "deep/b.png"]
    by_folder = KnownPaths(names, tmp_path / "photos")
    assert by_folder.number(f"{tmp_path}/photos/deep/b.png") == 1
    assert by_folder.number(f"{tmp_path}/photos/caf\udce9.png") == 0
    assert by_folder.number(f"{tmp_path}/elsewhere.png") is None
    assert "_files" not in by_folder.__dict__
    by_list = KnownPaths(["../a.png", "./b.png", "b//c.png"], tmp_path / "photos" / "list.txt")
    for number, name in enumerate(("a.png", "photos/b.png", "photos/b/c.png")):
        assert by_list.number(f"{tmp_path}/{name}") == number


def test_no_path_becomes_a_formula_and_each_is_known_again(tmp_path: Path):
    names = ["=1+1.png", "-2.png", "@sum.png", "+3.png", "\t=4.png", "'=5.png", "a=b.png", "'c.png"]
    place = tmp_path / "list.csv"
    write_csv(place, ["path", "distance"], [(name, -0.5) for name in names])
    rows = rows_of(place)
    assert [row["distance"] for row in rows] == ["-0.5"] * len(names)
    cells = [row["path"] for row in rows]
    assert not [cell for cell in cells if cell.lstrip()[0] in "=+-@"]
    assert cells[6:] == names[6:]
    known = KnownPaths(names, tmp_path)
    assert [known.number(name) for name in names] == list(range(len(names)))
    assert [
        KnownPaths([name], tmp_path).number(cell) for name, cell in zip(names, cells, strict=True)
    ] == [0] * 8


def test_labels_by_whole_path_for_a_run_of_a_list(
    run: Path, images: Path, tmp_path: Path, capsys: pytest.CaptureFixture
):
    """The run's own record, as if a list had named its images."""
    copy = Path(shutil.copytree(run, tmp_path / "run"))
    (tmp_path / "list.txt").write_text("")
    settings = json.loads((copy / "settings.json").read_text())
    settings["images"] = str(images / "list.txt")
    (copy / "settings.json").write_text(json.dumps(settings))
    names = child.table(copy / "clusters.parquet")["path"]
    few = tmp_path / "few.csv"
    lines = [f"{images / name},{Path(name).parent}" for name in names[::3]]
    few.write_text("path,label\n" + "\n".join(lines))
    assert main(["label", str(copy), "--labels", str(few), "--out", str(tmp_path / "all.csv")]) == 0
    assert "16 labels for 48 images" in capsys.readouterr().out
