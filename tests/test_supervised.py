"""The supervised baseline, and that labels reach training there and nowhere else."""

from __future__ import annotations

import csv
import json
import math
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import child
import numpy as np
import pytest
from child import newest_checkpoint

from deepcluster.runtime.run_folder import RunFolder

KINDS = 4
STEPS = 3  # in an epoch of 48 images


def command(images: Path, **flags: object) -> list[str]:
    settings = {
        "out": "run",
        "k": 6,
        "epochs": 3,
        "batch": 16,
        "network.width": 32,
        "whitening.dimensions": 8,
        "workers": 1,
        "device": "cpu",
        **flags,
    }
    words = ["train", str(images), *child.PLAIN.split()]
    for name, value in settings.items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    return words


SUPERVISED = {"labels": "folders", "training.schedule": "cosine", "training.head-momentum": 0.9}


def journal(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "run/journal.jsonl").read_text().splitlines()]


def listed(images: Path, target: Path, label_of: Callable[[int, str], str]) -> Path:
    """A list of the images, each with the label that its number and folder give."""
    files = sorted(images.rglob("*.png"))
    with target.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["path", "label"])
        rows.writerows(
            [str(path), label_of(number, path.parent.name)] for number, path in enumerate(files)
        )
    return target


@pytest.fixture(scope="module")
def images(textures: Callable[[int], Path]) -> Path:
    return textures(16 * STEPS)


@pytest.fixture(scope="module")
def whole(images: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a supervised run that was never interrupted."""
    folder = tmp_path_factory.mktemp("supervised")
    code, output = child.run(command(images, **SUPERVISED), folder)
    assert code == 0, output
    return folder


def test_it_learns_the_classes(textures: Callable[[int, int], Path], tmp_path: Path):
    more = {"network.width": 512, "network.dropout": 0, "crops.scale": 0.5}
    words = command(textures(96, 2), **SUPERVISED, **more | {"epochs": 6, "batch": 8})
    code, output = child.run(words, tmp_path)
    assert code == 0, output
    lines = journal(tmp_path)
    assert lines[0]["ln_k"] == pytest.approx(math.log(2))
    assert lines[-1]["loss"] < 0.6 * math.log(2)
    assert lines[-1]["accuracy"] > 0.8
    assert "of 2 classes right in training" in output


def test_it_is_a_run_like_any_other(whole: Path):
    run = whole / "run"
    names = {path.name for path in run.iterdir()}
    assert {"clusters.parquet", "features.npy", "groups.safetensors", "model.safetensors"} <= names
    closing = json.loads((run / "closing.json").read_text())
    assert closing["clusters"] == 6  # the closing pass groups as always
    assert closing["nmi_last"] is None
    assert len(child.table(run / "clusters.parquet")["cluster"]) == 16 * STEPS
    lines = journal(whole)
    assert [line["epoch"] for line in lines] == [0, 1, 2]
    assert {(line["classes"], line["draws"]) for line in lines} == {(KINDS, 16 * STEPS)}
    assert all(set(line["seconds"]) == {"learn"} for line in lines)  # nothing is looked at


def test_its_probes_say_that_it_knows_the_images(
    whole: Path, images: Path, textures: Callable[[int], Path]
):
    test = str(textures(8 * STEPS))
    words = [str(whole / "run"), "linear", "--train", str(images), "--test", test]
    quick = ["--epochs", "1", "--batch", "16", "--layers", "conv1", "--stores", str(whole / "st")]
    code, output = child.run(["evaluate", *words, *quick], whole)
    assert code == 0, output
    assert "this network has learnt classes" in " ".join(output.split())


def test_the_labels_are_those_of_the_folders(whole: Path):
    paths = child.table(whole / "run/clusters.parquet")["path"]
    expected = [int(path.split("/")[0].removeprefix("kind")) for path in paths]
    for epoch in range(3):
        assert np.load(whole / f"run/assignments/epoch-{epoch:04d}.npy").tolist() == expected


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (f"train.step:term@{STEPS + 2}", 143),
        (f"train.step:kill@{STEPS + 2}", -signal.SIGKILL),
    ],
)
def test_stopped_inside_an_epoch_it_goes_on_bit_for_bit(
    fault: str, code: int, images: Path, whole: Path, tmp_path: Path
):
    words = command(images, **SUPERVISED)
    assert child.run(words, tmp_path, fault)[0] == code
    if code == 143:
        assert newest_checkpoint(tmp_path) == "epoch-0001-step-00000002"
    again, output = child.run(words, tmp_path)
    assert again == 0, output
    for name in ("model.safetensors", "features.npy", "groups.safetensors"):
        assert (tmp_path / "run" / name).read_bytes() == (whole / "run" / name).read_bytes(), name
    for one, other in zip(journal(tmp_path), journal(whole), strict=True):
        assert (one["loss"], one["accuracy"]) == (other["loss"], other["accuracy"])


def test_the_head_and_its_momentum_survive_the_epoch(whole: Path):
    from safetensors.torch import load_file

    checkpoint = whole / "run/checkpoints" / newest_checkpoint(whole)
    assert load_file(checkpoint / "head.safetensors")["weight"].shape == (KINDS, 32)
    assert load_file(checkpoint / "head_momentum.safetensors")["0"].abs().sum() > 0


def test_nothing_is_announced_of_clusterings_that_are_not_made(images: Path, tmp_path: Path):
    words = "--labels folders --epochs 1 --network.width 16 --device cpu --out run"
    code, output = child.run(["train", str(images), *words.split()], tmp_path)
    assert code == 0, output
    said = [line for line in output.splitlines() if line.startswith("  ")]
    first, second, third, fourth = said
    assert first == "  a narrow AlexNet at 64 px: 48 images on a CPU"
    assert second.startswith("  colours: ")
    assert third.startswith("  the first 2 convolutions begin as groups of patches: ")
    assert fourth.startswith("  what suits labels: the paper's crops, a step that falls")


def test_settings_suit_labels_with_a_preset_too_unless_others_are_given(
    images: Path, tmp_path: Path
):
    words = (
        "--preset small --k 3 --labels folders --epochs 1 --network.width 16 --device cpu --out run"
    )
    more = "--training.schedule constant --jitter.blur 0.5"
    code, output = child.run(["train", str(images), *words.split(), *more.split()], tmp_path)
    assert code == 0, output
    effective = RunFolder(tmp_path / "run").settings["effective"]
    told = ("training.schedule", "jitter.blur", "jitter.erase", "training.head_momentum")
    assert [effective[name] for name in told] == ["constant", 0.5, 0.0, 0.9]
    assert (effective["training.smoothing"], effective["network.views"]) == (0.0, 1)


def test_a_folder_without_classes_is_refused(images: Path, tmp_path: Path):
    flat = tmp_path / "flat"
    flat.mkdir()
    for path in images.rglob("*.png"):
        shutil.copy(path, flat)
    code, output = child.run(command(flat, labels="folders"), tmp_path)
    assert code == 3
    assert "--labels folders: the images in" in output
    assert "not all in one of at least two classes" in output
    assert "Traceback" not in output
    assert not (tmp_path / "run").exists()  # said before any image was read


def test_an_image_beside_the_classes_is_refused(images: Path, tmp_path: Path):
    mixed = tmp_path / "mixed"
    shutil.copytree(images, mixed)
    shutil.copy(mixed / "kind0" / "0000.png", mixed / "alone.png")
    code, output = child.run(command(mixed, labels="folders"), tmp_path)
    assert code == 3
    assert "not all in one of at least two classes" in output


def test_other_labels_than_those_it_began_with_are_refused(images: Path, tmp_path: Path):
    words = command(tmp_path / "store", **SUPERVISED)

    def packed(label_of: Callable[[int, str], str]) -> None:
        place = listed(images, tmp_path / "list.csv", label_of)
        code, output = child.run(["pack", str(place), str(tmp_path / "store")], tmp_path)
        assert code == 0, output

    packed(lambda number, folder: folder)
    assert child.run(words, tmp_path, f"train.step:kill@{STEPS + 2}")[0] == -signal.SIGKILL
    shutil.rmtree(tmp_path / "store")
    packed(lambda number, folder: f"kind{number % KINDS}")
    code, output = child.run(words, tmp_path)
    assert code == 4, output
    assert "the images have other labels than when the run began" in output


@pytest.mark.parametrize("labels", ["clusters", "folders"])
def test_permuted_labels_change_the_supervised_network_and_no_other(
    labels: str, images: Path, tmp_path: Path
):
    weights, agreement = [], []
    order = np.random.default_rng(0).permutation(16 * STEPS)
    for name, label_of in (
        ("true", lambda number, folder: folder),
        ("permuted", lambda number, folder: f"kind{order[number] % KINDS}"),
    ):
        folder = tmp_path / name
        folder.mkdir()
        place = listed(images, folder / "list.csv", label_of)
        code, output = child.run(command(place, labels=labels, epochs=2), folder)
        assert code == 0, output
        weights.append((folder / "run/model.safetensors").read_bytes())
        closing = json.loads((folder / "run/closing.json").read_text())
        agreement.append(closing["nmi_labels"])
    assert (weights[0] == weights[1]) == (labels == "clusters")
    assert agreement[0] != agreement[1]  # the labels were there, and others


def test_where_k_means_starts_means_nothing_without_clusterings(images: Path, tmp_path: Path):
    words = command(images, labels="folders", **{"clustering-start": "previous"})
    code, output = child.run(words, tmp_path)
    assert code == 2
    assert "--labels folders has no clusterings" in output


@pytest.mark.parametrize("out", [None, "kind0/mine"])
def test_a_run_among_its_images_is_none_of_them(textures, tmp_path: Path, out: str | None):
    images = tmp_path / "photos"
    textures(16).rename(images)
    words = command(Path(), **SUPERVISED, epochs=1, out=out)
    if out is None:
        place = words.index("--out")
        del words[place : place + 2]
    run = images / (out or "runs/photos-1")
    for _ in range(2):  # the same command finds the run finished
        code, output = child.run(words, images)
        assert code == 0, output
        assert json.loads((run / "closing.json").read_text())["images"] == 16
    assert "already finished" in output
    assert not (images / "runs/photos-2").exists()
    assert list(run.rglob("*.png")) + list(run.rglob("*.jpg"))  # of its page
