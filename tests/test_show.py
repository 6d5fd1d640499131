"""The verb show, from the words to the files that it leaves; and what it refuses."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import child
import numpy as np
import pytest
from PIL import Image

from deepcluster.evaluation.subject import trained_run
from deepcluster.runtime.errors import ResumeError


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
        ("top --layer conv1 --images images/kind1", ["top-conv1.png", "top-conv1.csv"]),
        ("map --count 25 --seed 3", ["map.png", "map.csv"]),
        ("purity", ["purity.png", "purity.csv"]),
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
        assert np.load(place / "out" / files[1]).shape == (96, 3, 11, 11)
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


def test_a_map_has_every_chosen_image_once(place: Path):
    code, output = child.run(["show", "mine", "map", "--out", "all"], place)
    assert code == 0, output
    table = child.table(place / "runs/mine/clusters.parquet")
    shown = rows(place / "all/map.csv")
    assert [int(row["id"]) for row in shown] == table["id"]
    assert [row["path"] for row in shown] == table["path"]
    assert [int(row["cluster"]) for row in shown] == table["cluster"]
    assert len({(row["column"], row["row"]) for row in shown}) == 40
    code, output = child.run(["show", "mine", "map", "--out", "some", "--count", "25"], place)
    assert code == 0, output
    assert "a random 25 of 40 images" in output
    some = rows(place / "some/map.csv")
    assert len({row["id"] for row in some}) == 25
    code, output = child.run(["show", "mine", "map", "--out", "again", "--count", "25"], place)
    assert code == 0, output
    assert (place / "again/map.png").read_bytes() == (place / "some/map.png").read_bytes()


def test_purity_by_synsets_above_the_folders(place: Path):
    chain = [f"n{number}" for number in range(6)]
    pairs = [*pairwise(chain), ("n5", "up"), ("n5", "down")]
    pairs += [("up", "kind0"), ("up", "kind1"), ("down", "kind2"), ("down", "kind3")]
    (place / "is_a.txt").write_text("".join(f"{above} {below}\n" for above, below in pairs))
    words = "show mine purity --wordnet is_a.txt --out pure"
    code, output = child.run(words.split(), place)
    assert code == 0, output
    table = child.table(place / "runs/mine/clusters.parquet")
    upward = [path.startswith(("kind0", "kind1")) for path in table["path"]]
    expected = 0
    for group in set(table["cluster"]):
        inside = [up for up, c in zip(upward, table["cluster"], strict=True) if c == group]
        expected += sum(inside) if sum(inside) * 10 > 7 * len(inside) else 0
    found = {row["synset"]: row for row in rows(place / "pure/purity.csv")}
    assert {*found} == {"up", "down"}
    assert int(found["up"]["in_pure_clusters"]) == expected
    assert float(found["up"]["share"]) == pytest.approx(expected / 20)


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
        ("mine purity --words is_a.txt", 2, ["--words: give --wordnet"]),
        ("mine purity --wordnet nowhere.txt", 2, ["--wordnet nowhere.txt: there is no such file"]),
        ("mine purity --wordnet runs/mine/journal.jsonl", 3, ["is not a parent and a child"]),
        ("mine map --count 3", 2, ["a map needs at least 4 images; here are 3"]),
        ("mine top --images nowhere", 2, ["nowhere"]),
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


def test_a_run_that_lost_its_network_is_named(place: Path, tmp_path: Path):
    shutil.copytree(place / "runs/mine", tmp_path / "lost")
    (tmp_path / "lost/model.safetensors").unlink()
    with pytest.raises(ResumeError, match=r"lost lacks model\.safetensors"):
        trained_run(str(tmp_path / "lost"))


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
