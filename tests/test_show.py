"""The verb show, from the words to the files that it leaves; and what it refuses."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Callable
from pathlib import Path

import child
import numpy as np
import pytest
from PIL import Image


@pytest.fixture(scope="module")
def place(textures: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with images and a finished run in runs/mine."""
    folder = tmp_path_factory.mktemp("place")
    shutil.copytree(textures(40), folder / "images")
    words = "--preset small --epochs 2 --k 4 --batch 16 --network.width 16 --device cpu".split()
    code, output = child.run(["train", "images", "--out", "runs/mine", *words], folder)
    assert code == 0, output
    return folder


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(
    ("words", "files"),
    [
        ("filters", ["filters.png", "filters.npy"]),
        ("sizes --beside runs/mine", ["sizes.png", "sizes.csv"]),
        ("curves", ["curves.png", "curves.csv"]),
        ("clusters --groups 2 0", ["clusters.png", "clusters.csv"]),
        ("neighbours --count 3", ["neighbours.png", "neighbours.csv"]),
        ("top --layer conv2 --filters 1 5", ["top-conv2.png", "top-conv2.csv"]),
        ("ascent --layer conv1 --filters 7 2 --steps 3", ["ascent-conv1.png", "ascent-conv1.csv"]),
    ],
)
def test_a_picture_and_its_data(place: Path, words: str, files: list[str]):
    code, output = child.run(["show", "mine", *words.split(), "--out", "out"], place)
    assert code == 0, output
    for name in files:
        assert f"written to out/{name}" in output
    with Image.open(place / "out" / files[0]) as picture:
        assert np.ptp(np.asarray(picture.convert("L")).astype(int)) > 100  # something is on it
    if files[1].endswith(".npy"):
        assert np.load(place / "out" / files[1]).shape == (96, 1, 13, 13)
    else:
        assert rows(place / "out" / files[1])


def test_contact_sheets_show_central_and_marginal_images(place: Path):
    code, output = child.run(["show", "mine", "clusters", "--groups", "1", "--out", "one"], place)
    assert code == 0, output
    table = child.table(place / "runs/mine/clusters.parquet")
    mine = [
        (d, i)
        for i, (c, d) in enumerate(zip(table["cluster"], table["distance"], strict=True))
        if c == 1
    ]
    mine.sort()
    shown = rows(place / "one/clusters.csv")
    central = [int(row["id"]) for row in shown if row["kind"] == "central"]
    assert central == [number for _, number in mine[:4]]
    assert len({row["id"] for row in shown}) == len(shown)
    assert all(row["path"] == table["path"][int(row["id"])] for row in shown)


def test_neighbours_are_never_the_query_itself(place: Path):
    code, output = child.run(["show", "mine", "neighbours", "--out", "near"], place)
    assert code == 0, output
    found = rows(place / "near/neighbours.csv")
    assert len(found) == 8 * 6
    assert all(row["query"] != row["path"] for row in found)


@pytest.mark.parametrize(
    ("words", "code", "parts"),
    [
        ("mine tops", 2, ["no such picture 'tops'", "did you mean top?"]),
        ("mine", 2, ["show what?", "filters"]),
        ("yours filters", 2, ["there is no such run"]),
        ("mine top --layer conv9", 2, ["--layer conv9", "conv1, conv2"]),
        ("mine top --layer conv1 --filters 96", 2, ["--filters 96", "0 to 95"]),
        ("mine ascent --layer conv1 --filters 96", 2, ["--filters 96", "0 to 95"]),
        ("mine clusters --groups 9", 2, ["--groups 9", "0 to 3"]),
        ("mine clusters --count 0", 2, ["--count 0"]),
        ("mine clusters --colour", 2, ["no such option --colour"]),
    ],
)
def test_what_is_refused(place: Path, words: str, code: int, parts: list[str]):
    got, output = child.run(["show", *words.split()], place)
    assert got == code, output
    assert "Traceback" not in output
    for part in parts:
        assert part in output.splitlines()[-1]


def test_a_run_without_a_closing_pass_is_named(place: Path, tmp_path: Path):
    shutil.copytree(place / "runs/mine", tmp_path / "half")
    (tmp_path / "half/closing.json").unlink()
    code, output = child.run(["show", "half", "filters"], tmp_path)
    assert code == 4
    assert "has not been trained to its end" in output
    code, output = child.run(["show", "half", "curves"], tmp_path)
    assert code == 0, output


def test_images_that_have_vanished_are_grey(place: Path, tmp_path: Path):
    shutil.copytree(place / "images", tmp_path / "images")
    words = "--preset small --epochs 1 --k 2 --batch 16 --network.width 16 --pixels.keep files"
    code, output = child.run(["train", "images", "--out", "run", *words.split()], tmp_path)
    assert code == 0, output
    shutil.rmtree(tmp_path / "images/kind0")
    code, output = child.run(["show", "run", "clusters"], tmp_path)
    assert code == 0, output
    with Image.open(tmp_path / "run/figures/clusters.png") as picture:
        colours = {colour for _, colour in picture.getcolors(1 << 24) or []}
    assert (200, 200, 200) in colours
