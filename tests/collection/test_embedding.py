"""The verbs embed and predict, from any images to a file that other tools open."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import by_hand
import child
import numpy as np
import pyarrow as pa
import pytest
import torch
from PIL import Image

import deepcluster
from deepcluster.cli import main
from deepcluster.collection import embedding, table
from deepcluster.collection.embedding import Work, embed
from deepcluster.collection.model import Model, Wanted
from deepcluster.images.given import opened
from deepcluster.runtime.display import Display
from deepcluster.runtime.errors import StorageError
from deepcluster.runtime.interruption import Interrupted


@pytest.fixture(scope="module")
def model(run: Path) -> Model:
    return deepcluster.load(run, device="cpu")


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def carry_out(*words: object) -> int:
    return main([*map(str, words), "--device", "cpu", "--workers", "2"])


def test_the_three_formats_hold_the_same(run: Path, images: Path, model: Model, tmp_path: Path):
    for name in ("f.parquet", "f.npy", "f.csv"):
        assert carry_out("embed", run, images, "--out", tmp_path / name, "--clusters") == 0
    expected = model.embed(images)
    names = sorted(str(path.relative_to(images)) for path in images.rglob("*.png"))
    columns = child.table(tmp_path / "f.parquet")
    assert list(columns) == ["id", "path", "cluster", "distance", "margin", "vector"]
    assert columns["id"] == list(range(48))
    assert columns["path"] == names
    np.testing.assert_allclose(columns["vector"], expected, rtol=0, atol=1e-7)
    vectors = np.load(tmp_path / "f.npy", allow_pickle=False)
    assert vectors.dtype == np.float32
    assert np.array_equal(vectors, np.array(columns["vector"], dtype=np.float32))
    beside = rows_of(tmp_path / "f.paths.csv")
    assert [row["path"] for row in beside] == names
    assert [int(row["cluster"]) for row in beside] == columns["cluster"]
    lines = rows_of(tmp_path / "f.csv")
    numbers = np.array([[line[f"v{i}"] for i in range(32)] for line in lines], dtype=np.float32)
    assert np.array_equal(numbers, vectors)
    assert not list(tmp_path.glob("*.partial"))
    assert not list(tmp_path.glob("*.unusable.csv"))


@pytest.mark.parametrize("flags", [["--layer", "conv4"], ["--whiten"], ["--whiten", "--normalize"]])
def test_the_vectors_asked_for(
    flags: list[str], run: Path, images: Path, model: Model, tmp_path: Path
):
    out = tmp_path / "deep/er/f.npy"
    assert carry_out("embed", run, images, "--out", out, "--clusters", *flags) == 0
    how = {flag.removeprefix("--"): True for flag in flags if flag.startswith("--")}
    if "layer" in how:
        how = {"layer": "conv4"}
    expected = model.embed(images, **how)
    np.testing.assert_allclose(np.load(out), expected, rtol=1e-6, atol=1e-7)


def test_stores_shards_lists_and_single_files(
    run: Path, images: Path, model: Model, tmp_path: Path
):
    expected = model.embed(images)
    files = sorted(images.rglob("*.png"))
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for path in files:
            tar.add(path, path.name)
    (tmp_path / "list.txt").write_text("\n".join(str(path) for path in reversed(files)))
    for number, (given, order) in enumerate(
        [
            (run / "store", range(48)),
            (tmp_path / "a.tar", range(48)),
            (tmp_path / "list.txt", range(47, -1, -1)),
            (files[9], [9]),
        ]
    ):
        out = tmp_path / f"{number}.npy"
        assert carry_out("embed", run, given, "--out", out) == 0
        np.testing.assert_allclose(np.load(out), expected[list(order)], rtol=1e-6, atol=1e-7)


def test_what_cannot_be_read_is_absent_and_listed(
    run: Path, images: Path, model: Model, tmp_path: Path, capsys: pytest.CaptureFixture
):
    some = sorted(images.rglob("*.png"))[:3]
    (tmp_path / "half.png").write_bytes(some[0].read_bytes()[:300])
    lines = [some[0], tmp_path / "gone.png", some[1], tmp_path / "half.png", some[2]]
    (tmp_path / "list.txt").write_text("\n".join(map(str, lines)))
    assert carry_out("embed", run, tmp_path / "list.txt", "--out", tmp_path / "f.parquet") == 0
    assert "2 files cannot be used" in capsys.readouterr().out
    columns = child.table(tmp_path / "f.parquet")
    assert columns["id"] == [0, 1, 2]
    assert [Path(path).name for path in columns["path"]] == [path.name for path in some]
    np.testing.assert_allclose(columns["vector"], model.embed(some), rtol=1e-6, atol=1e-7)
    listed = rows_of(tmp_path / "f.unusable.csv")
    assert [(Path(row["path"]).name, row["reason"]) for row in listed] == [
        ("gone.png", "unreadable: no such file or directory"),
        ("half.png", "truncated"),
    ]


def test_a_store_with_gaps_keeps_its_order(run: Path, images: Path, model: Model, tmp_path: Path):
    folder = Path(shutil.copytree(images, tmp_path / "images"))
    files = sorted(folder.rglob("*.png"))
    for at in (0, 7, 8, 47):
        files[at].write_bytes(b"")
    assert main(["pack", str(folder), str(tmp_path / "store")]) == 0
    assert carry_out("embed", run, tmp_path / "store", "--out", tmp_path / "f.npy") == 0
    kept = [at for at in range(48) if at not in (0, 7, 8, 47)]
    np.testing.assert_allclose(
        np.load(tmp_path / "f.npy"), model.embed(images)[kept], rtol=1e-6, atol=1e-7
    )
    listed = rows_of(tmp_path / "f.unusable.csv")
    assert [row["path"] for row in listed] == [
        str(files[at].relative_to(folder)) for at in (0, 7, 8, 47)
    ]


def test_a_stopped_command_goes_on_where_it_was(
    images: Path, model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(table, "_SECONDS", 0.0)
    out = tmp_path / "f.parquet"
    how = Work(5, 2, Display(speaks=False))
    calls = 0
    vectors = Model.vectors

    def counted(self: Model, crops: torch.Tensor, wanted: Wanted) -> torch.Tensor:
        nonlocal calls
        calls += len(crops) > 1  # not the one that tells the width
        if calls == 4 and stop:
            # As a power cut would leave it: a line half written, vectors without a line.
            shutil.copytree(out.with_name("f.parquet.partial"), tmp_path / "cut")
            raise Interrupted(signal.SIGTERM)
        return vectors(self, crops, wanted)

    monkeypatch.setattr(Model, "vectors", counted)
    stop = True
    with pytest.raises(Interrupted):
        embed(model, opened(images), out, Wanted(), None, how)
    assert not out.exists()
    shutil.rmtree(tmp_path / "f.parquet.partial")
    with (tmp_path / "cut/rows.jsonl").open("a") as file:
        file.write('{"key": "x", "rows": [')
    with (tmp_path / "cut/vectors.f32").open("ab") as file:
        file.write(b"\1" * 77)
    (tmp_path / "cut").rename(tmp_path / "f.parquet.partial")
    stop, calls = False, 0
    outcome = embed(model, opened(images), out, Wanted(), None, how)
    assert outcome.images == 48
    assert outcome.looked < 48
    assert calls < 10
    np.testing.assert_allclose(
        child.table(out)["vector"], model.embed(images), rtol=1e-6, atol=1e-7
    )


def test_rows_of_other_settings_or_files_are_not_gone_on_with(
    images: Path, model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(table, "_SECONDS", 0.0)
    folder = Path(shutil.copytree(images, tmp_path / "images"))
    how = Work(8, 2, Display(speaks=False))
    out = tmp_path / "f.npy"

    def interrupted(self: table.ImageTable) -> None:
        raise KeyboardInterrupt

    def stopped_before_the_end(wanted: Wanted) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(table.ImageTable, "finish", interrupted)
            with pytest.raises(KeyboardInterrupt):
                embed(model, opened(folder), out, wanted, None, how)

    stopped_before_the_end(Wanted(normalize=True))
    assert embed(model, opened(folder), out, Wanted(), None, how).looked == 48
    out.unlink()
    (tmp_path / "f.paths.csv").unlink()
    stopped_before_the_end(Wanted())
    victim = sorted(folder.rglob("*.png"))[20]
    shutil.copy(sorted(folder.rglob("*.png"))[30], victim)
    os.utime(victim, ns=(1, 1))
    outcome = embed(model, opened(folder), out, Wanted(), None, how)
    assert outcome.looked == 48 - 16  # from the block of the changed file on
    found = np.load(out)
    np.testing.assert_allclose(found[20], model.embed(images)[30], rtol=1e-6, atol=1e-7)


def test_memory_holds_a_few_blocks_whatever_the_number_of_images(
    images: Path, model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """What waits between the network and the disk is bounded, and so are the parts of a table."""
    held = []
    add = table.ImageTable.add

    def noted(self: table.ImageTable, rows: list, vectors: np.ndarray) -> None:
        add(self, rows, vectors)
        held.append(len(self._waiting))

    parts = []
    write = pa.table

    def part(columns: dict, schema: pa.Schema) -> pa.Table:
        parts.append(len(columns["id"]))
        return write(columns, schema=schema)

    monkeypatch.setattr(table, "_SECONDS", 0.0)
    monkeypatch.setattr(table, "_ROWS", 10)
    monkeypatch.setattr(table.ImageTable, "add", noted)
    monkeypatch.setattr(table.pa, "table", part)
    embed(
        model,
        opened(images),
        tmp_path / "f.parquet",
        Wanted(),
        None,
        Work(8, 1, Display(speaks=False)),
    )
    assert held == [0] * 6
    assert parts == [10, 10, 10, 10, 8]


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_predict_reproduces_the_groups_of_the_run(
    kind: str, run: Path, images: Path, tmp_path: Path
):
    out = tmp_path / f"p.{kind}"
    assert carry_out("predict", run, images, "--out", out) == 0
    saved = child.table(run / "clusters.parquet")
    if kind == "parquet":
        found = child.table(out)
    else:
        rows = rows_of(out)
        found = {name: [row[name] for row in rows] for name in rows[0]}
        found["cluster"] = [int(x) for x in found["cluster"]]
        found["none"] = [{"True": True, "False": False}[x] for x in found["none"]]
    assert list(found) == ["id", "path", "cluster", "distance", "margin", "none"]
    assert found["path"] == saved["path"]
    assert found["cluster"] == saved["cluster"]
    for name in ("distance", "margin"):
        np.testing.assert_allclose(np.array(found[name], float), saved[name], atol=1e-4)
    # The farthest hundredth of 48 is one image at the most.
    assert sum(found["none"]) <= 1


def test_what_is_like_no_group_is_told(run: Path, tmp_path: Path):
    folder = tmp_path / "odd"
    folder.mkdir()
    noise = np.random.default_rng(5)
    for number in range(12):
        pixels = np.zeros((72, 72, 3), dtype=np.uint8)
        pixels[:, : 6 * number] = noise.integers(0, 255, 3)
        Image.fromarray(pixels).save(folder / f"{number:02d}.png")
    assert carry_out("predict", run, folder, "--out", tmp_path / "p.parquet") == 0
    found = child.table(tmp_path / "p.parquet")
    farthest = np.quantile(child.table(run / "clusters.parquet")["distance"], 0.99)
    assert found["none"] == [distance > farthest for distance in found["distance"]]


def test_groups_of_power_iteration_are_told_by_the_nearest_image(images: Path, tmp_path: Path):
    words = "--preset small-pic --epochs 1 --network.width 32 --device cpu --out run".split()
    neighbours = ["--clustering.neighbours", "3"]
    code, output = child.run(["train", str(images), *words, *neighbours], tmp_path)
    assert code == 0, output
    run = tmp_path / "run"
    assert carry_out("predict", run, images, "--out", tmp_path / "p.parquet") == 0
    found, saved = child.table(tmp_path / "p.parquet"), child.table(run / "clusters.parquet")
    assert found["cluster"] == saved["cluster"]
    for name in ("distance", "margin"):
        np.testing.assert_allclose(found[name], saved[name], atol=2e-3)  # rows are in float16
    assert sum(found["none"]) <= 1  # the farthest hundredth of 48
    # By hand: the nearest other image of the own group, and that of any other group.
    rows = deepcluster.load(run).embed(images, whiten=True, normalize=True).astype(np.float64)
    labels = np.array(saved["cluster"])
    own, other = by_hand.distances_to_own_and_other(rows, labels)
    np.testing.assert_allclose(saved["distance"], own, atol=2e-3)
    np.testing.assert_allclose(saved["margin"], other - own, atol=4e-3)
    # Of an image that is none of the run's: the nearest one, whose group it gets.
    new = tmp_path / "new.png"
    pixels = np.asarray(Image.open(images / saved["path"][3])).astype(np.int16)
    Image.fromarray((pixels[::-1] + 20).clip(0, 255).astype(np.uint8)).save(new)
    assert carry_out("predict", run, new, "--out", tmp_path / "n.parquet") == 0
    one = child.table(tmp_path / "n.parquet")
    row = deepcluster.load(run).embed(new, whiten=True, normalize=True)[0].astype(np.float64)
    apart = np.linalg.norm(rows - row, axis=1)
    assert apart.min() > 2e-3
    assert one["cluster"] == [labels[apart.argmin()]]
    assert one["distance"][0] == pytest.approx(apart.min(), abs=2e-3)
    nearest_other = apart[labels != one["cluster"][0]].min()
    assert one["margin"][0] == pytest.approx(nearest_other - apart.min(), abs=4e-3)


@pytest.mark.parametrize(
    "flags",
    [
        "--network.clustered conv5",
        "--clustering.metric spherical",
        "--network.front rgb",
        "--network.views 6",
    ],
)
def test_other_kinds_of_run_are_reproduced(flags: str, images: Path, tmp_path: Path):
    words = "--preset small --k 4 --epochs 1 --network.width 32 --device cpu --out run".split()
    code, output = child.run(["train", str(images), *words, *flags.split()], tmp_path)
    assert code == 0, output
    run = tmp_path / "run"
    assert carry_out("predict", run, images, "--out", tmp_path / "p.parquet") == 0
    found, saved = child.table(tmp_path / "p.parquet"), child.table(run / "clusters.parquet")
    assert found["cluster"] == saved["cluster"]
    np.testing.assert_allclose(found["distance"], saved["distance"], atol=1e-4)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["embed", "RUN", "IMAGES", "--out", "there.csv"], 2, "there.csv exists"),
        (["embed", "RUN", "IMAGES", "--out", "x.npy"], 2, "x.paths.csv exists"),
        (["embed", "RUN", "IMAGES", "--out", "x.pkl"], 2, ".parquet, .npy or .csv"),
        (["predict", "RUN", "IMAGES", "--out", "x.npy"], 2, ".parquet or .csv"),
        (["embed", "RUN", "IMAGES"], 2, "--out FILE"),
        (["embed", "RUN", "nowhere", "--out", "x.csv"], 2, "nowhere: no such file"),
        (["embed", "nowhere", "IMAGES", "--out", "x.csv"], 2, "nowhere: no such run"),
        (["embed", "IMAGES", "IMAGES", "--out", "x.csv"], 2, "is no run"),
        (["embed"], 2, "which run?"),
        (["predict", "RUN"], 2, "which images? deepcluster predict RUN IMAGES"),
        (["embed", "RUN", "IMAGES", "--out", "x.csv", "--layer", "conv9"], 2, "no layer 'conv9'"),
        (["embed", "RUN", "IMAGES", "--out", "x.csv", "--whitening"], 2, "did you mean --whiten"),
        (["embed", "RUN", "IMAGES", "--out", "x.csv", "--workers", "0"], 2, "at least 1"),
        (
            ["embed", "RUN", "bad.txt", "--out", "x.csv"],
            3,
            "none of the 1 files is a usable image (gone.png: unreadable: no such file",
        ),
        (
            ["predict", "RUN", "damaged.png", "--out", "x.csv"],
            3,
            "none of the 1 files is a usable image (damaged.png: not an image)",
        ),
    ],
)
def test_bad_input(
    words: list[str],
    code: int,
    said: str,
    run: Path,
    images: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.chdir(tmp_path)
    for name in ("there.csv", "x.paths.csv"):
        Path(name).write_text("mine")
    Path("bad.txt").write_text("gone.png\n")
    Path("damaged.png").write_text("no image")
    named = {"RUN": str(run), "IMAGES": str(images)}
    assert main([named.get(word, word) for word in words]) == code
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert Path("there.csv").read_text() == Path("x.paths.csv").read_text() == "mine"
    assert not list(tmp_path.glob("*.partial"))


def test_the_width_of_nothing_is_known_before_the_work(model: Model):
    assert [model.width(Wanted(layer)) for layer in model.layers] == [
        *(96, 256, 384, 384, 256),
        *(32, 32, 256),
    ]
    assert embedding._key(model, 1) != embedding._key(model, 2)
    assert json.loads(embedding._key(model, 1))[0] == model.folder.closing["sha256"]


@pytest.mark.parametrize(
    "words", [["embed", "nowhere", "x"], ["predict", "RUN", "nowhere"], ["similar", "nowhere", "x"]]
)
def test_a_mistyped_path_is_answered_before_torch_is_imported(words: list[str], run: Path):
    text = (
        "import sys, deepcluster; from deepcluster.cli import main; code = main(sys.argv[1:]); "
        "sys.exit(9 if 'torch' in sys.modules or 'sklearn' in sys.modules else code)"
    )
    named = [str(run) if word == "RUN" else word for word in words]
    done = subprocess.run([sys.executable, "-c", text, *named], check=False, capture_output=True)
    assert done.returncode == 2
    assert b"nowhere: no such" in done.stderr


def test_a_place_that_cannot_be_written_is_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(os, "access", lambda place, mode: place != tmp_path)
    with pytest.raises(StorageError, match=f"cannot write to {tmp_path};"):
        table.refuse_output(tmp_path / "new" / "rows.csv", (".parquet", ".csv"))
