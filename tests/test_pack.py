"""Packing as a verb and inside training; whatever the layout, the same images train alike."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import child
import numpy as np
import pytest

from deepcluster import DeepCluster
from deepcluster.cli import main
from deepcluster.images.kept import Pixels
from deepcluster.images.store import Store
from deepcluster.intake import Intake
from deepcluster.settings import Architecture, Run

SETTINGS = f"{child.PLAIN} --k 4 --epochs 2 --batch 16 --network.width 16 --device cpu".split()


@pytest.fixture(scope="module")
def images(textures: Callable[[int], Path]) -> Path:
    return textures(30)


def trained(place: str | Path, folder: Path, out: str, *flags: str) -> list[np.ndarray]:
    """The labels of every epoch of a run."""
    code, output = child.run(["train", str(place), *SETTINGS, "--out", out, *flags], folder)
    assert code == 0, output
    return [np.load(path) for path in sorted((folder / out / "assignments").glob("*.npy"))]


def test_folder_list_shards_and_store_train_to_the_same_labels(images: Path, tmp_path: Path):
    expected = trained(images, tmp_path, "folder")
    paths = sorted(path.relative_to(images).as_posix() for path in images.rglob("*.png"))
    (tmp_path / "list.csv").write_text("path\n" + "\n".join(str(images / p) for p in paths))
    for number in range(2):
        with tarfile.open(tmp_path / f"shard-{number}.tar", "w") as tar:
            for path in paths[number * 15 : (number + 1) * 15]:
                tar.add(images / path, arcname=path)
    code, output = child.run(["pack", str(images), "store"], tmp_path)
    assert code == 0, output
    assert "next: deepcluster train store" in output
    for out, place in (
        ("by-list", tmp_path / "list.csv"),
        ("by-shards", tmp_path / "shard-*.tar"),
        ("by-store", tmp_path / "store"),
    ):
        got = trained(place, tmp_path, out)
        assert len(got) == len(expected) == 2
        for epoch, other in zip(expected, got, strict=True):
            assert np.array_equal(epoch, other), out
    models = {(tmp_path / out / "model.safetensors").read_bytes() for out in ("folder", "by-store")}
    assert len(models) == 1


@pytest.mark.parametrize("kill", [1, 2, 3])
def test_killed_while_packing_it_ends_as_if_it_had_not_been(
    kill: int, textures: Callable[[int], Path], tmp_path: Path
):
    images = textures(300)  # more than two blocks
    short = ["train", str(images), *SETTINGS, "--epochs", "1", "--out"]
    assert child.run([*short, "whole"], tmp_path)[0] == 0
    assert child.run([*short, "cut"], tmp_path, f"pack.block:kill@{kill}")[0] == -signal.SIGKILL
    assert not (tmp_path / "cut/store/store.json").exists()
    assert child.run([*short, "cut"], tmp_path)[0] == 0
    for name in ("store/pixels.u8", "store/store.json", "model.safetensors", "features.npy"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_killed_while_packing_the_next_command_takes_the_same_number(images: Path, tmp_path: Path):
    words = ["train", str(images), *SETTINGS]
    assert child.run(words, tmp_path, "pack.block:kill@1")[0] == -signal.SIGKILL
    assert child.run(words, tmp_path)[0] == 0
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [f"{images.name}-1"]


def test_too_little_space_for_a_store_is_known_at_once(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    space = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: space._replace(free=100_000))
    assert main(["pack", str(images), str(tmp_path / "store")]) == 6
    assert "it needs about 0 MB and 0 MB are free; make room" in capsys.readouterr().err
    assert not (tmp_path / "store").exists()


def test_half_a_store_is_named(images: Path, tmp_path: Path):
    words = ["pack", str(images), "store"]
    assert child.run(words, tmp_path, "pack.block:kill@1")[0] == -signal.SIGKILL
    for verb in ("train", "check"):
        code, output = child.run([verb, "store"], tmp_path)
        assert code == 3
        assert "store is a store whose packing was interrupted; the same" in output
    assert child.run(words, tmp_path)[0] == 0
    assert child.run(["check", "store"], tmp_path)[0] == 0


def test_a_store_lost_between_two_commands_is_packed_again(images: Path, tmp_path: Path):
    expected = trained(images, tmp_path, "whole")
    words = ["train", str(images), *SETTINGS, "--out", "cut"]
    assert child.run(words, tmp_path, "train.step:term@3")[0] == 143
    shutil.rmtree(tmp_path / "cut" / "store")
    got = trained(images, tmp_path, "cut")
    for epoch, other in zip(expected, got, strict=True):
        assert np.array_equal(epoch, other)


def test_a_damaged_store_is_named(images: Path, tmp_path: Path):
    assert child.run(["pack", str(images), "store"], tmp_path)[0] == 0
    pixels = bytearray((tmp_path / "store/pixels.u8").read_bytes())
    pixels[1000] ^= 1
    (tmp_path / "store/pixels.u8").write_bytes(pixels)
    code, output = child.run(["train", "store", *SETTINGS, "--out", "run"], tmp_path)
    assert code == 3
    assert "store/pixels.u8 is damaged" in output.splitlines()[-1]
    assert "delete store, and the command that packed it makes it again" in output


def test_the_plain_path_without_a_store_is_there(images: Path, tmp_path: Path):
    trained(images, tmp_path, "files", "--pixels.keep", "files")
    assert not (tmp_path / "files/store").exists()
    settings = json.loads((tmp_path / "files/settings.json").read_text())
    assert settings["effective"]["pixels.keep"] == "files"


def test_what_a_store_keeps_is_among_the_settings_that_change_results(images: Path, tmp_path: Path):
    code, output = child.run(["pack", str(images), "store", "--short-side", "64"], tmp_path)
    assert code == 0, output
    trained("store", tmp_path, "run")
    assert (
        "pixels as store has them: grey, short side 64, aspect"
        in (tmp_path / "output.txt").read_text()
    )
    settings = json.loads((tmp_path / "run/settings.json").read_text())
    assert settings["effective"]["pixels.short_side"] == 64
    assert settings["effective"]["pixels.colour"] == "grey"
    words = ["train", str(images), *SETTINGS, "--out", "run", "--epochs", "3"]
    code, output = child.run(words, tmp_path)
    assert code == 4
    assert "pixels.short_side: 64 there, 256 now" in output


def test_a_store_smaller_than_the_input_says_so_where_the_images_are_larger(
    images: Path, tmp_path: Path
):
    assert main(["pack", str(images), str(tmp_path / "store"), "--short-side", "64"]) == 0
    index = Store(tmp_path / "store").index

    def said(place: Path, **pixels: Any) -> str | None:
        run = Run(network=Architecture(input_size=128), pixels=Pixels(**pixels))
        return Intake(place).enlarged(index, run)

    of_the_store = said(tmp_path / "store", short_side=64)
    assert of_the_store is not None
    assert "short side of 64 px, and crops of them are enlarged to 128 px" in of_the_store
    assert "pack with --short-side 128 or more, or train with --input-size 64" in of_the_store
    assert "use --pixels.short-side 128 or more" in (said(images, short_side=64) or "")
    # Of 72 pixels, the images themselves are too small.
    for pixels in ({"short_side": 72}, {"short_side": 64, "keep": "files"}):
        assert said(images, **pixels) == "30 images are smaller than 128 px; enlarged to it"
    run = Run(network=Architecture(input_size=64), pixels=Pixels(short_side=64))
    assert Intake(images).enlarged(index, run) is None


@pytest.mark.parametrize(
    ("words", "code", "part"),
    [
        (["pack", "IMAGES"], 2, "which store? deepcluster pack IMAGES STORE"),
        (["pack", "IMAGES", "store", "--short-side", "32"], 2, "use at least 64"),
        (["pack", "IMAGES", "store", "--workers", "0"], 2, "use at least 1"),
        (["pack", "nowhere", "store"], 2, "nowhere"),
        (["pack", "IMAGES", "store", "--short-sid", "3"], 2, "did you mean --short-side?"),
        (["pack", "IMAGES", "store", "--side", "64"], 2, "did you mean --short-side?"),
        (["pack", "IMAGES", "store", "--colour", "green"], 2, "green"),
        (["pack", "IMAGES", "taken"], 2, "letter.txt"),
    ],
)
def test_packing_that_cannot_be_done(
    words: list[str], code: int, part: str, images: Path, tmp_path: Path
):
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "letter.txt").write_text("Dear mother")
    got, output = child.run([str(images) if w == "IMAGES" else w for w in words], tmp_path)
    assert got == code, output
    assert part in output.splitlines()[-1]
    assert "Traceback" not in output


def test_a_store_with_other_settings_is_not_overwritten(images: Path, tmp_path: Path):
    assert child.run(["pack", str(images), "store"], tmp_path)[0] == 0
    code, output = child.run(["pack", str(images), "store", "--colour", "rgb"], tmp_path)
    assert code == 2
    assert "other settings (colour grey); choose another folder" in output
    code, output = child.run(["train", "store", *SETTINGS, "--network.front", "rgb"], tmp_path)
    assert code == 2
    assert "pack the images again with --colour rgb" in output


def test_a_refused_run_leaves_no_images_for_the_next(
    textures: Callable[[int], Path], tmp_path: Path
):
    images = textures(24)
    for number in range(0, 24, 4):
        (images / "kind0" / f"{number:04d}.png").write_bytes(b"")
    words = ["train", str(images), *SETTINGS]
    code, output = child.run(words, tmp_path)
    assert code == 3
    assert "6 of 24 files" in output
    for number in range(0, 24, 4):
        (images / "kind0" / f"{number:04d}.png").unlink()
    code, output = child.run(words, tmp_path)
    assert code == 0, output
    assert "18 images" in output
    # Another folder of the same name is another folder.
    other = tmp_path / "elsewhere" / images.name
    shutil.copytree(images, other)
    (other / "kind1" / "0001.png").unlink()
    code, output = child.run(["train", str(other), *SETTINGS], tmp_path)
    assert code == 0, output
    assert f"17 images, run folder runs/{images.name}-2" in output


def test_a_damaged_store_is_packed_again_by_the_same_command(images: Path, tmp_path: Path):
    assert child.run(["pack", str(images), "store"], tmp_path)[0] == 0
    whole = (tmp_path / "store/pixels.u8").read_bytes()
    (tmp_path / "store/pixels.u8").write_bytes(whole[:-1])
    assert child.run(["pack", str(images), "store"], tmp_path)[0] == 0
    assert (tmp_path / "store/pixels.u8").read_bytes() == whole


def test_a_store_of_other_images_is_not_overwritten(
    textures: Callable[[int], Path], tmp_path: Path
):
    images = textures(12)
    assert child.run(["pack", str(images), "store"], tmp_path)[0] == 0
    (images / "kind0" / "0000.png").unlink()
    code, output = child.run(["pack", str(images), "store"], tmp_path)
    assert code == 2
    assert "other images (0 added, 1 removed, 0 changed)" in output


def test_a_run_is_no_place_for_a_store(images: Path, tmp_path: Path):
    trained(images, tmp_path, "run")
    index = (tmp_path / "run/index.parquet").read_bytes()
    code, output = child.run(["pack", str(images), "run"], tmp_path)
    assert code == 2
    assert "run is a run" in output
    assert (tmp_path / "run/index.parquet").read_bytes() == index


def test_commands_end_with_zero_as_processes_of_their_own(images: Path, tmp_path: Path):
    # Not by a fork: what goes wrong when an interpreter ends is seen only where one ends.
    for attempt in range(4):
        result = subprocess.run(
            [sys.executable, "-m", "deepcluster", "pack", str(images), f"store-{attempt}"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("recipe", [[], ["--preset", "small"]])
def test_what_is_kept_in_grey_is_seen_with_sobel(images: Path, tmp_path: Path, recipe: list[str]):
    few = "--k 4 --epochs 1 --network.width 16 --device cpu --pixels.colour grey".split()
    code, output = child.run(["train", str(images), *recipe, *few, "--out", "run"], tmp_path)
    assert code == 0, output
    assert "colours" not in output
    effective = json.loads((tmp_path / "run/settings.json").read_text())["effective"]
    assert (effective["network.front"], effective["pixels.colour"]) == ("sobel", "grey")
    words = ["train", str(images), *recipe, *few, "--network.front", "rgb", "--out", "never"]
    code, output = child.run(words, tmp_path)
    assert code == 2
    assert "--network.front rgb wants colours" in output


def test_in_colours_a_cpu_says_why(images: Path, tmp_path: Path):
    few = "--epochs 1 --network.width 16 --device cpu".split()
    for out, flags, said in (("a", [], True), ("b", ["--network.front", "sobel"], False)):
        words = ["train", str(images), *few, *flags, "--out", out]
        code, output = child.run(words, tmp_path)
        assert code == 0, output
        assert ("colours: with few steps they say more" in output) == said


@pytest.mark.parametrize("recipe", [[], ["--preset", "small"]])
def test_what_is_packed_in_grey_is_seen_with_sobel(images: Path, tmp_path: Path, recipe: list[str]):
    assert child.run(["pack", str(images), "store"], tmp_path)[0] == 0
    few = "--k 4 --epochs 1 --network.width 16 --device cpu --out run".split()
    code, output = child.run(["train", "store", *recipe, *few], tmp_path)
    assert code == 0, output
    assert "colours" not in output
    effective = json.loads((tmp_path / "run/settings.json").read_text())["effective"]
    assert effective["network.front"] == "sobel"
    for flags in (["--network.front", "rgb"], ["--preset", "paper-rgb"]):
        code, output = child.run(["train", "store", *flags, "--out", "never"], tmp_path)
        assert code == 2
        assert "is a grey store and --network.front rgb wants colours" in output


def test_an_estimator_sees_what_is_packed_in_grey_with_sobel(images: Path, tmp_path: Path):
    assert main(["pack", str(images), str(tmp_path / "store")]) == 0
    for preset in ("auto", "small"):
        model = DeepCluster(k=4, preset=preset, epochs=1, device="cpu", out=tmp_path / preset)
        model.fit(tmp_path / "store")
        settings = json.loads((tmp_path / preset / "settings.json").read_text())
        assert settings["effective"]["network.front"] == "sobel"
