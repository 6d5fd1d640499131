"""The main job, from a folder as a person has it to what the run leaves behind."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from pathlib import Path

import child
import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from deepcluster.clusters import assign
from deepcluster.runtime.run_folder import RunFolder
from deepcluster.session import ended_by_time


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A flat folder of 300 pictures of mixed sizes and modes."""
    folder = tmp_path_factory.mktemp("photos")
    randomness = np.random.default_rng(3)
    modes = ["RGB", "L", "RGBA", "P", "CMYK", "1", "LA"]
    for number in range(300):
        width, height = (int(side) for side in randomness.integers(20, 300, 2))
        y, x = np.mgrid[:height, :width]
        wave = np.sin(x / (2 + number % 7)) * np.cos(y / (3 + number % 5))
        noise = randomness.normal(0, 15, (height, width, 3))
        pixels = (128 + 100 * wave[..., None] + noise).clip(0, 255).astype(np.uint8)
        mode = modes[number % len(modes)]
        image = Image.fromarray(pixels).convert(mode)
        suffix = {"CMYK": "jpg", "RGB": "JPEG", "L": "webp"}.get(mode, "png")
        image.save(folder / f"{number}.{suffix}")
    return folder


@pytest.fixture(scope="module")
def run(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    words = "--preset small --epochs 2 --out runs/x --device cpu".split()
    code, output = child.run(["train", str(photos), *words], folder)
    assert code == 0, output
    assert "smaller than 64 px; enlarged" in output
    assert "300 images" in output
    return folder / "runs/x"


def test_three_hundred_photos_of_mixed_sizes_and_modes_are_grouped(run: Path):
    table = child.table(run / "clusters.parquet")
    assert table["id"] == list(range(300))
    assert sorted(set(table["cluster"])) == list(range(50))
    assert len(set(table["path"])) == 300
    assert all(math.isfinite(distance) for distance in table["distance"])


def test_the_journal_has_a_line_per_epoch(run: Path):
    lines = [json.loads(line) for line in (run / "journal.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [0, 1]
    for line in lines:
        assert line["ln_k"] == pytest.approx(math.log(50))
        assert 0 < line["loss"] < 2 * line["ln_k"]
        assert line["clustering_loss"] > 0
        assert line["empty"] == 0
        assert line["smallest"] >= 1
        assert set(line["seconds"]) == {"look", "group", "learn"}
        assert line["images_per_second"] > 0
        assert "dimensions-shrunk" in line["warnings"]
    assert lines[0]["nmi_last"] is None
    assert 0 < lines[1]["nmi_last"] < 1


def test_groups_belong_to_the_saved_features_and_centroids(run: Path):
    features = torch.from_numpy(np.load(run / "features.npy").astype(np.float32))
    groups = load_file(run / "groups.safetensors")
    labels, distances, margins = assign(features, groups["centroids"])
    table = child.table(run / "clusters.parquet")
    # float16 moves a row by a thousandth; only a row on the border may change sides.
    clear = margins > 5e-3
    assert clear.float().mean() > 0.9
    assert torch.equal(labels[clear], torch.tensor(table["cluster"])[clear])
    assert torch.allclose(distances, torch.tensor(table["distance"]), atol=5e-3)


def test_the_saved_map_reproduces_the_features_from_the_saved_network(run: Path):
    from deepcluster.beginning import new_network
    from deepcluster.features import PCA
    from deepcluster.images.crops import normalize
    from deepcluster.images.store import Store
    from deepcluster.images.stored import StoredImages
    from deepcluster.networks import looked_at
    from deepcluster.presets import small

    settings = small()
    network = new_network(settings).eval()
    network.trunk.load_state_dict(load_file(run / "model.safetensors"))
    groups = load_file(run / "groups.safetensors")
    pca = PCA(groups["pca.mean"], groups["pca.projection"])
    images = StoredImages(Store(run / "store"), 64)
    pixels = next(images.seen(range(20), batch=20, workers=1))
    with torch.no_grad():
        seen = looked_at(network, settings.network.clustered, settings.network.views)
        features = pca(seen(normalize(pixels)))
    saved = torch.from_numpy(np.load(run / "features.npy")[:20].astype(np.float32))
    assert torch.allclose(features, saved, atol=0.01)


def test_nothing_in_the_run_folder_is_a_pickle(run: Path):
    kinds = {path.suffix for path in run.rglob("*") if path.is_file()}
    data = {".json", ".jsonl", ".parquet", ".npy", ".safetensors", ".u8", ".md", ""}
    assert kinds <= {*data, ".html", ".css", ".js", ".jpg", ".png"}
    for path in run.rglob("*.npy"):
        np.load(path, allow_pickle=False)


def test_the_users_images_are_left_as_they_were(textures: Callable[[int], Path], tmp_path: Path):
    images = textures(24)

    def state() -> dict[str, tuple[str, int]]:
        files = sorted(path for path in images.rglob("*"))
        return {
            str(path): (
                hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
                path.stat().st_mtime_ns,
            )
            for path in files
        }

    before = state()
    words = "--preset small --k 4 --epochs 1 --network.width 16 --device cpu".split()
    assert child.run(["train", str(images), *words], tmp_path)[0] == 0
    assert state() == before


def test_without_preset_settings_follow_the_images_and_are_explained(
    textures: Callable[[int], Path], tmp_path: Path
):
    images = textures(40)
    words = ["train", str(images), "--epochs", "1", "--device", "cpu", "--network.width", "16"]
    code, output = child.run(words, tmp_path)
    assert code == 0, output
    assert "k = 2 groups" in output
    assert "8 dimensions" in output
    run = tmp_path / "runs" / f"{images.name}-1"
    settings = json.loads((run / "settings.json").read_text())
    assert settings["effective"]["clustering"] == "KMeans"
    assert settings["effective"]["network.width"] == 16
    assert len(settings["why"]) >= 4


def test_without_out_runs_are_numbered_and_continued(
    textures: Callable[[int], Path], tmp_path: Path
):
    images = textures(24)
    common = "--preset small --k 4 --network.width 16 --device cpu".split()
    words = ["train", str(images), *common, "--epochs", "2"]
    first, second = (tmp_path / "runs" / f"{images.name}-{number}" for number in (1, 2))
    assert child.run(words, tmp_path, "train.step:term@2")[0] == 143
    assert child.run(words, tmp_path)[0] == 0
    assert (first / "closing.json").exists()
    code, output = child.run(words, tmp_path)
    assert code == 0
    assert "already finished" in output
    assert not second.exists()
    assert child.run([*words, "--seed", "3"], tmp_path)[0] == 0  # other settings, the next number
    assert (second / "closing.json").exists()
    assert child.run([*words, "--fresh"], tmp_path)[0] == 0
    assert (tmp_path / "runs" / f"{images.name}-3" / "closing.json").exists()


def test_minutes_end_the_run_early_and_closed(textures: Callable[[int], Path], tmp_path: Path):
    images = textures(24)
    words = "--preset small --k 4 --network.width 16 --device cpu --epochs 300 --out run".split()
    code, output = child.run(["train", str(images), *words, "--minutes", "0.05"], tmp_path)
    assert code == 0, output
    closing = json.loads((tmp_path / "run/closing.json").read_text())
    assert 1 <= closing["epochs"] < 300
    done = "1 epoch" if closing["epochs"] == 1 else f"{closing['epochs']} epochs"
    used_up = f"(--minutes 0.05) is used up after {done}; the same"
    assert used_up in output
    code, output = child.run(["train", str(images), *words, "--minutes", "0.05"], tmp_path)
    assert "already finished" in output
    assert f"{used_up} command with a larger --minutes goes on" in output
    (tmp_path / "run/closing.json").unlink()  # it was stopped in the closing pass
    code, output = child.run(["train", str(images), *words, "--minutes", "0.05"], tmp_path)
    assert "continuing after" in output
    assert used_up in output
    more = closing["epochs"] + 1
    larger = f"--minutes 5 --epochs {more}".split()
    code, output = child.run(["train", str(images), *words, *larger], tmp_path)
    assert code == 0, output
    assert f"{more}/{more}" in output
    assert "used up" not in output


def test_minutes_that_the_step_has_fallen_with_are_not_added_to(
    textures: Callable[[int], Path], tmp_path: Path
):
    words = ["train", str(textures(24)), *"--preset small --k 4 --network.width 16".split()]
    words += "--device cpu --training.schedule cosine --out run".split()
    code, output = child.run([*words, "--epochs", "300", "--minutes", "0.02"], tmp_path)
    assert code == 0, output
    assert "used up after" in output
    assert "a larger --minutes needs --fresh, a new run" in output
    code, output = child.run([*words, "--epochs", "300", "--minutes", "0.03"], tmp_path)
    assert code == 4
    code, output = child.run([*words, *"--epochs 300 --minutes 0.03 --fresh".split()], tmp_path)
    assert code == 0, output


@pytest.mark.parametrize(
    ("done", "part", "fall", "sentence"),
    [
        (1, [0.0, 0.002], 1.0, "1 epoch; the step was to fall to zero, but its cosine is at 100%"),
        (2, [0.2, 0.5], 1.0, "2 epochs; the step was to fall to zero, but its cosine is at 50%"),
        (2, [0.2, 0.5], 0.3, "2 epochs; the step was to fall to zero, but its cosine is at 100%"),
        (7, [0.8, 1.0], 1.0, "7 epochs; the step has fallen with them"),
        (7, [0.8, 1.0], 0.1, "7 epochs; the step has fallen with them"),
        (3, None, 1.0, "3 epochs"),
    ],
)
def test_of_minutes_that_are_used_up_it_is_said_how_far_the_step_fell(
    done: int, part: list[float] | None, fall: float, sentence: str, tmp_path: Path
):
    folder = RunFolder(tmp_path)
    effective = {"training.schedule": "cosine", "training.fall": fall}
    folder.begin({"effective": effective, "data": ""})
    closing = {"epochs": done, "epochs_asked": 500, "minutes_asked": 2.5}
    (tmp_path / "closing.json").write_text(json.dumps(closing))
    folder.record({"epoch": done - 1} if part is None else {"epoch": done - 1, "schedule": part})
    assert ended_by_time(folder) == (
        f"the time given (--minutes 2.5) is used up after {sentence}; a larger --minutes needs "
        "--fresh, a new run"
    )


def test_the_first_epoch_ends_with_the_minutes_given(
    textures: Callable[[int], Path], tmp_path: Path
):
    words = "--preset small --k 4 --network.width 16 --device cpu --draw.reassign 500 --out run"
    given = ["train", str(textures(24)), *words.split(), "--minutes", "0.02"]
    given += "--epochs 2 --training.schedule cosine".split()
    code, output = child.run(given, tmp_path)
    assert code == 0, output
    assert "of 12,000 images" in output
    (epoch,) = map(json.loads, (tmp_path / "run/journal.jsonl").read_text().splitlines())
    assert 32 <= epoch["draws"] < 12_000
    begin, end = epoch["schedule"]  # of its part of the schedule, what it has gone through
    assert (begin, end) == (0.0, pytest.approx(0.5 * epoch["draws"] / 12_000))
    assert "used up after 1 epoch; the step was to fall to zero, but its cosine is at" in output
    assert (tmp_path / "run/closing.json").exists()


@pytest.mark.parametrize(
    "flags",
    [
        "--preset small-pic --clustering.neighbours 3",
        "--preset small --k 4 --network.front rgb --draw.kind weighted",
        "--preset small --k 4 --draw.kind natural --draw.reassign 0.5",
        "--preset small --k 4 --speed.keep-features recompute",
        "--preset small --k 4 --arch resnet18",
        "--preset small --k 4 --arch vgg16",
        "--preset small --k 4 --precision bfloat16",
        "--preset small-pic --clustering.neighbours 3 --training.head matched --epochs 2",
        pytest.param("--preset small --k 4 --network.clustered top", marks=pytest.mark.slow),
        "--preset small --k 4 --jitter.blur 1 --training.warmup 0.5",
    ],
)
def test_other_kinds_of_run(flags: str, textures: Callable[[int], Path], tmp_path: Path):
    images = textures(24)
    words = [*"--network.width 16 --device cpu --epochs 1 --out run".split(), *flags.split()]
    code, output = child.run(["train", str(images), *words], tmp_path)
    assert code == 0, output
    assert (tmp_path / "run/closing.json").exists()


def test_a_page_is_left_that_says_what_came_of_it(run: Path):
    page = (run / "report/index.html").read_text()
    assert "<dd>300</dd><dt>images</dt>" in page
    assert "The nearest of all crops is the other crop of the same image" in page
    assert 'src="figures/filters.png"' in page
    assert "What filters of conv5 like best" in page
    thumbnails = sorted((run / "thumbnails").iterdir())
    assert len(thumbnails) == 300
    assert len(list((run / "report/thumbnails").iterdir())) == 300
    with Image.open(run / "thumbnails/7.jpg") as thumbnail:
        assert thumbnail.mode in ("RGB", "L")
        assert max(thumbnail.size) <= 96
    baseline = json.loads((run / "baseline.json").read_text())
    assert baseline["images"] == 300
    (crops,) = baseline["comparisons"]
    assert crops["name"] == "crops"
    assert 0 <= crops["untrained"] <= 1
    assert crops["chance"] == pytest.approx(1 / 599)
