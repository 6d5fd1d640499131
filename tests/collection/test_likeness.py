"""What is alike and what is not, among the images of a run."""

from __future__ import annotations

import csv
import io
import json
import shutil
import signal
from pathlib import Path

import child
import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw, ImageEnhance
from skimage import data

from deepcluster.cli import main
from deepcluster.collection import kept_features, likeness
from deepcluster.collection.contact_sheet import Shown, Strip, drawn
from deepcluster.collection.groups import ClusterTable
from deepcluster.collection.kept_features import KeptFeatures
from deepcluster.collection.likeness import outliers, signature
from deepcluster.images.album import Album
from deepcluster.runtime.display import _Phase
from deepcluster.runtime.errors import DataError
from deepcluster.runtime.run_folder import RunFolder


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def saved_poorly(picture: Image.Image) -> Image.Image:
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=30)
    return Image.open(file).convert("RGB")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Crops of photographs that share no pixel, and copies of five of them made in five ways."""
    folder = tmp_path_factory.mktemp("photos")
    number = 0
    for name in ("astronaut", "coffee", "chelsea", "rocket", "immunohistochemistry"):
        whole = Image.fromarray(getattr(data, name)()).convert("RGB")
        for left in range(0, whole.width - 139, 140):
            for top in range(0, whole.height - 139, 140):
                whole.crop((left, top, left + 140, top + 140)).save(folder / f"{number:02d}.png")
                number += 1
    shutil.copy(folder / "00.png", folder / "x0-copied.png")
    picture = [Image.open(folder / f"{at:02d}.png").convert("RGB") for at in range(6)]
    picture[1].resize((97, 97)).save(folder / "x1-smaller.png")
    saved_poorly(picture[2]).save(folder / "x2-poorly.png")
    ImageEnhance.Brightness(picture[4]).enhance(0.7).save(folder / "x4-darker.png")
    picture[5].convert("L").save(folder / "x5-grey.png")
    return folder


@pytest.fixture(scope="module")
def photo_run(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photo-run")
    words = "--preset small --k 4 --epochs 1 --network.width 32 --device cpu --out run".split()
    code, output = child.run(["train", str(photos), *words], folder)
    assert code == 0, output
    return folder / "run"


def test_copies_are_found_and_nothing_else_is(photo_run: Path, tmp_path: Path):
    out = tmp_path / "d.csv"
    words = ["duplicates", str(photo_run), "--csv", str(out), "--sheet", str(tmp_path / "d.png")]
    assert main(words) == 0
    groups: dict[str, list[str]] = {}
    for row in rows_of(out):
        groups.setdefault(f"{row['kind']} {row['group']}", []).append(row["path"])
        assert 0.93 <= float(row["likeness"]) <= 1 + 1e-6
    assert groups == {
        "exact 0": ["00.png", "x0-copied.png"],
        "near 1": ["01.png", "x1-smaller.png"],
        "near 2": ["02.png", "x2-poorly.png"],
        "near 3": ["04.png", "x4-darker.png"],
        "near 4": ["05.png", "x5-grey.png"],
    }
    with Image.open(tmp_path / "d.png") as sheet:
        assert sheet.format == "PNG"
        assert min(sheet.size) > 400


def test_duplicates_without_the_store_are_read_from_the_files(
    photo_run: Path, photos: Path, tmp_path: Path
):
    run = Path(shutil.copytree(photo_run, tmp_path / "run"))
    shutil.rmtree(run / "store")
    assert main(["duplicates", str(run), "--csv", str(tmp_path / "d.csv")]) == 0
    assert len(rows_of(tmp_path / "d.csv")) == 10
    settings = json.loads((run / "settings.json").read_text())
    settings["images"] = str(tmp_path / "moved")
    (run / "settings.json").write_text(json.dumps(settings))
    images = Album.of_run(RunFolder(run))
    with pytest.raises(DataError, match=r"00\.png: not there, and .*store is not there either"):
        images.small(0)
    settings["images"] = str(photos)
    (run / "settings.json").write_text(json.dumps(settings))
    assert Album.of_run(RunFolder(run)).original(3).mode == "RGB"


def test_a_signature_is_of_unit_length_or_nothing():
    assert not signature(Image.new("RGB", (50, 40), (9, 80, 3))).any()
    gradient = signature(Image.linear_gradient("L"))
    texture = signature(Image.fromarray(data.brick()))
    assert np.linalg.norm(texture) == pytest.approx(1)
    assert abs(float(gradient @ texture)) < 0.5


def test_similar_images_are_the_nearest_by_feature(
    run: Path, images: Path, tmp_path: Path, capsys: pytest.CaptureFixture
):
    saved = child.table(run / "clusters.parquet")
    rows = np.load(run / "features.npy").astype(np.float64)
    apart = np.linalg.norm(rows - rows[11], axis=1)
    apart[11] = np.inf
    expected = np.argsort(apart, kind="stable")[:6]
    words = ["similar", str(run), saved["path"][11], "--count", "6"]
    sheet = ["--sheet", str(tmp_path / "s.png")]
    assert main([*words, "--csv", str(tmp_path / "s.csv"), *sheet]) == 0
    found = rows_of(tmp_path / "s.csv")
    assert [int(row["id"]) for row in found] == expected.tolist()
    assert [row["path"] for row in found] == [saved["path"][at] for at in expected]
    np.testing.assert_allclose([float(row["distance"]) for row in found], apart[expected])
    assert (tmp_path / "s.png").exists()
    # The file itself and a copy of it from elsewhere are the same image, and say so.
    shutil.copy(images / saved["path"][11], tmp_path / "copy.png")
    capsys.readouterr()
    for number, given in enumerate((images / saved["path"][11], tmp_path / "copy.png")):
        words = ["similar", str(run), str(given), "--count", "3", "--device", "cpu"]
        assert main([*words, "--csv", str(tmp_path / f"{number}.csv")]) == 0
        assert f"{saved['path'][11]} is an image of the run" in capsys.readouterr().out
        found = rows_of(tmp_path / f"{number}.csv")
        assert [int(row["id"]) for row in found] == expected[:3].tolist()
    # Another file of the same picture finds its place first.
    with Image.open(tmp_path / "copy.png") as picture:
        picture.save(tmp_path / "new.png", compress_level=1)
    words = ["similar", str(run), str(tmp_path / "new.png"), "--count", "3", "--device", "cpu"]
    assert main([*words, "--csv", str(tmp_path / "n.csv")]) == 0
    assert "an image of the run" not in capsys.readouterr().out
    found = rows_of(tmp_path / "n.csv")
    assert [int(row["id"]) for row in found] == [11, *expected[:2]]
    assert float(found[0]["distance"]) < 2e-3


def test_more_than_all_images_are_all_images(run: Path, tmp_path: Path):
    words = ["similar", str(run), child.table(run / "clusters.parquet")["path"][1]]
    assert main([*words, "--count", "99", "--csv", str(tmp_path / "s.csv")]) == 0
    found = rows_of(tmp_path / "s.csv")
    assert sorted(int(row["id"]) for row in found) == [0, *range(2, 48)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("verb", ["similar", "duplicates", "outliers"])
def test_a_signal_ends_a_long_comparison(
    verb: str, number: signal.Signals, run: Path, tmp_path: Path, monkeypatch
):
    monkeypatch.setattr(_Phase, "advance", lambda phase, count: signal.raise_signal(number))
    image = [child.table(run / "clusters.parquet")["path"][1]] if verb == "similar" else []
    out = tmp_path / "out.csv"
    assert main([verb, str(run), *image, "--csv", str(out)]) == 128 + number
    assert not out.exists()


@pytest.mark.parametrize("rows", [5, 48])
def test_what_is_like_an_image_does_not_depend_on_the_parts(rows: int, run: Path, monkeypatch):
    monkeypatch.setattr(kept_features, "_ROWS", rows)
    whole = np.load(run / "features.npy").astype(np.float64)
    features, looked_at = KeptFeatures(RunFolder(run), 48), []
    found = features.nearest(features.row(7), 9, 7, looked_at.append)
    apart = np.linalg.norm(whole - whole[7], axis=1)
    apart[7] = np.inf
    assert [one.image for one in found] == np.argsort(apart, kind="stable")[:9].tolist()
    assert sum(looked_at) == 48


def test_an_outlier_that_makes_its_own_group_is_found():
    """k-means gives the odd image a centroid of its own, at distance zero."""
    randomness = np.random.default_rng(0)
    rows = np.concatenate([randomness.normal((at, 0), 0.05, (20, 2)) for at in (0, 1)])
    rows = np.concatenate([rows, [[0.5, 3.0]], [[np.nan, np.nan]]]).astype(np.float32)
    labels = np.repeat([0, 1, 2, -1], [20, 20, 1, 1])
    centroids = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.5, 3.0]])
    own = np.linalg.norm(rows - centroids.numpy()[labels], axis=1)
    clusters = ClusterTable([], labels, own, np.zeros(42))
    far = outliers(rows, clusters, centroids)
    assert int(np.nanargmax(far)) == 40
    assert float(far[40]) == pytest.approx((0.25 + 9) ** 0.5)
    np.testing.assert_allclose(far[:40], own[:40], rtol=1e-6)
    assert np.isnan(far).tolist() == [False] * 41 + [True]
    alone = outliers(rows, clusters, None)
    assert int(np.nanargmax(alone)) == 40
    nearest_other = np.linalg.norm(rows[:40] - rows[40], axis=1).min()
    assert float(alone[40]) == pytest.approx(nearest_other, rel=1e-5)


def test_only_members_of_tiny_groups_are_measured_anew(monkeypatch):
    """The distance is that to the nearest centroid of a group of three or more, for all."""
    monkeypatch.setattr(likeness, "_ROWS", 8)
    randomness = np.random.default_rng(1)
    rows = randomness.normal(size=(300, 5)).astype(np.float32)
    centroids = randomness.normal(size=(80, 5)).astype(np.float32)
    apart = np.linalg.norm(rows[:, None] - centroids, axis=2)
    labels = apart.argmin(axis=1)
    clusters = ClusterTable([], labels, apart.min(axis=1), np.zeros(300))
    real = np.bincount(labels, minlength=80) >= 3
    assert 0 < (~real[labels]).sum() < 100
    told = []
    far = outliers(rows, clusters, torch.from_numpy(centroids), told.append)
    np.testing.assert_allclose(far, apart[:, real].min(axis=1), rtol=1e-6)
    assert sum(told) == 300
    assert len(told) == 1 + -(-(~real[labels]).sum() // 8)


def test_outliers_are_listed_farthest_first(run: Path, tmp_path: Path):
    words = ["outliers", str(run), "--count", "5", "--csv", str(tmp_path / "o.csv")]
    assert main([*words, "--sheet", str(tmp_path / "o.png")]) == 0
    found = rows_of(tmp_path / "o.csv")
    saved = child.table(run / "clusters.parquet")
    assert min(np.bincount(saved["cluster"])) >= 3
    expected = np.argsort(saved["distance"])[::-1][:5]
    assert [int(row["id"]) for row in found] == expected.tolist()
    assert float(found[0]["farther_than"]) == pytest.approx(47 / 48)


def test_images_are_left_as_they_were(photo_run: Path, photos: Path, tmp_path: Path):
    def state() -> list[tuple[str, int, int]]:
        return [(p.name, p.stat().st_size, p.stat().st_mtime_ns) for p in sorted(photos.iterdir())]

    before = state()
    assert main(["duplicates", str(photo_run), "--sheet", str(tmp_path / "d.png")]) == 0
    assert state() == before


@pytest.mark.parametrize("words", [["similar", "RUN", "one.png"], ["outliers", "RUN"]])
def test_a_list_that_is_cut_short_says_so(
    words: list[str], run: Path, tmp_path: Path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (50, 50), "red").save("one.png")
    asked = [str(run) if word == "RUN" else word for word in words]
    assert main([*asked, "--count", "45"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "  and 5 more; --csv FILE writes them all"
    assert main([*asked, "--count", "40"]) == 0
    assert " more;" not in capsys.readouterr().out


def test_a_figure_is_not_cut_off_with_a_long_name(monkeypatch):
    written = []

    def write(pen, place, words, *rest):
        written.append(words)

    monkeypatch.setattr(ImageDraw.ImageDraw, "text", write)
    shown = [Shown(Image.new("RGB", (9, 9)), 9 * "folder/" + "name.jpg", "0.97")]
    drawn([Strip("near duplicates", shown)])
    assert written[0] == "near duplicates"
    assert written[1].startswith("0.97 ...")
    assert written[1].endswith("name.jpg")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["similar", "RUN", "nothing.png"], 2, "nothing.png: neither a file nor"),
        (["similar", "RUN", "."], 2, ". is a folder; similar takes one image"),
        (["similar", "RUN"], 2, "which image? deepcluster similar RUN IMAGE"),
        (["similar", "RUN", "there.csv", "--count", "0"], 2, "--count 0: use at least 1"),
        (["similar", "RUN", "bad.png"], 3, "bad.png: not an image"),
        (["duplicates", "RUN", "--csv", "there.csv"], 2, "there.csv exists"),
        (["duplicates", "RUN", "--csv", "there.txt"], 2, "name a .csv file"),
        (["duplicates", "RUN", "--alike", "7"], 2, "--alike 7"),
        (["outliers", "RUN", "--sheet", "x.jpg"], 2, "name a .png file"),
        (["outliers", "elsewhere"], 2, "elsewhere: no such run"),
        (["outliers", "RUN", "--cuont", "3"], 2, "did you mean --count"),
    ],
)
def test_bad_input(
    words: list[str],
    code: int,
    said: str,
    run: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.chdir(tmp_path)
    Path("there.csv").write_text("mine")
    Path("bad.png").write_text("no picture")
    assert main([str(run) if word == "RUN" else word for word in words]) == code
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert Path("there.csv").read_text() == "mine"


@pytest.mark.parametrize("name", ["features.npy", "clusters.parquet", "index.parquet"])
def test_a_damaged_file_is_named(
    name: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture
):
    copy = Path(shutil.copytree(run, tmp_path / "copy"))
    content = bytearray((copy / name).read_bytes())
    content[len(content) // 2] ^= 1
    (copy / name).write_bytes(content)
    verb = "duplicates" if name == "index.parquet" else "outliers"
    assert main([verb, str(copy)]) == 4
    assert f"{name} is damaged" in capsys.readouterr().err
