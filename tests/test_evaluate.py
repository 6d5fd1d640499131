"""The verb evaluate, from the words to the file that it leaves; and what it refuses."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import child
import pytest
from PIL import Image, ImageOps

from deepcluster.evaluation.circumstances import commit

TINY = "--input-size 64 --width 16 --workers 1 --device cpu"
PROBE = "--epochs 2 --batch 8 --steps 1 10 --decays 1e-6"


@pytest.fixture(scope="module")
def place(textures: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data/train, data/val and a finished run in runs/mine."""
    folder = tmp_path_factory.mktemp("place")
    shutil.copytree(textures(48), folder / "data/train")
    shutil.copytree(textures(24), folder / "data/val")
    words = "--preset small --epochs 2 --k 4 --batch 16 --network.width 16 --device cpu".split()
    code, output = child.run(["train", "data/train", "--out", "runs/mine", *words], folder)
    assert code == 0, output
    return folder


def evaluated(place: Path, words: str) -> tuple[str, dict[str, Any]]:
    """What was printed, and what was written."""
    code, output = child.run(["evaluate", *words.split()], place)
    assert code == 0, output
    written = output.splitlines()[-1].removeprefix("written to ")
    return output, json.loads((place / written).read_text())


def refused(place: Path, words: str, code: int, *parts: str) -> None:
    got, output = child.run(["evaluate", *words.split()], place)
    complaint = output.splitlines()[-1]
    assert got == code, output
    assert "Traceback" not in output
    assert complaint.startswith("deepcluster: ")
    for part in parts:
        assert part in complaint, complaint


def test_linear_probes_of_a_run(place: Path):
    output, record = evaluated(place, f"mine linear --data data {PROBE} --ten-crops --workers 1")
    assert "conv5" in output
    assert (place / "runs/mine/evaluations").is_dir()
    layers = record["result"]["layers"]
    assert [layer["layer"] for layer in layers] == [f"conv{number}" for number in range(1, 6)]
    assert all(0 <= layer["ten_crops_top1"] <= 1 for layer in layers)
    assert all(len(layer["candidates"]) == 2 for layer in layers)
    assert record["settings"]["held_out"] == 0.1
    assert record["data"]["train"]["images"] == 48
    assert record["versions"]["device"] == "cpu"
    assert record["trained"]["clustering.k"] == 4
    assert record["settings"]["layers"] == [f"conv{number}" for number in range(1, 6)]
    closing = json.loads((place / "runs/mine/closing.json").read_text())
    for name in ("model.safetensors", "groups.safetensors"):
        assert record["weights"][name] == closing["sha256"][name]
    assert record["commit"] == commit()
    for line in output.splitlines():
        assert len(line) <= 100


def test_fc6_to_fc8_of_a_run(place: Path):
    output, record = evaluated(place, f"mine mlp --data data {PROBE} --hidden 8 --workers 1")
    assert "mine: fc6 to fc8 on data/train" in output
    assert [layer["layer"] for layer in record["result"]["layers"]] == ["fc8"]
    assert record["settings"]["hidden"] == 8


def test_nearest_neighbours_of_a_run_named_by_its_folder(place: Path):
    output, record = evaluated(place, "runs/mine knn --data data --workers 1")
    assert "not asked of 200 neighbours" in output
    assert [vote["neighbours"] for vote in record["result"]["votes"]] == [20]
    assert record["result"]["whitening"] == "the run's"
    assert record["settings"]["layer"] == "conv5"  # what the run has grouped
    assert record["settings"]["dimensions"] == record["result"]["width"]
    assert "24 of 24 test images are training images too" in output
    _, before = evaluated(place, "random knn --data data --like mine --workers 1")
    assert before["settings"]["layer"] == "conv5"  # compared as the run is


def test_what_features_depend_on_is_written_and_in_the_name(place: Path):
    shutil.copytree(place / "runs/mine", place / "runs/view1")
    settings = place / "runs/view1/settings.json"
    described = json.loads(settings.read_text())
    described["effective"]["network.views"] = 1
    settings.write_text(json.dumps(described))
    words = "random knn --data data --neighbours 5 --out apart --workers 1"
    records = [
        evaluated(place, f"{words} {others}")[1]["settings"]
        for others in ("--like mine", "--like view1", "--like view1 --layer conv5")
    ]
    assert [(one["clustered"], one["views"]) for one in records] == [
        ("conv5", 6),
        ("conv5", 1),
        (None, 1),
    ]
    assert {one["layer"] for one in records} == {"conv5"}
    assert len([*(place / "apart").glob("random-knn-*.json")]) == 3


def test_a_run_without_whitening_is_whitened_by_the_training_images(place: Path):
    words = "--preset small --epochs 1 --k 4 --batch 16 --network.width 16 --whitening.kind none"
    folders = ["data/train", "--out", "runs/plain"]
    code, output = child.run(["train", *folders, *words.split(), "--device", "cpu"], place)
    assert code == 0, output
    output, whitened = evaluated(place, "plain knn --data data --neighbours 5 --dimensions 4")
    assert "(whitened)" in output
    assert whitened["settings"]["whitening"] == "of the training images"
    assert whitened["result"]["width"] == 4
    _, raw = evaluated(place, "plain knn --data data --neighbours 5 --features raw")
    assert raw["settings"]["whitening"] == "none"
    assert raw["result"]["width"] > 4


def test_what_is_left_out_and_what_is_in_both_parts(place: Path, tmp_path: Path):
    shutil.copytree(place / "data", tmp_path / "data")
    kind = tmp_path / "data/val/kind0"
    for path in kind.parent.rglob("*.png"):
        ImageOps.invert(Image.open(path).convert("RGB")).save(path)
    output, _ = evaluated(tmp_path, f"random knn --data data {TINY}")
    assert "are training images too" not in output
    for number, path in enumerate(sorted((tmp_path / "data/train/kind0").iterdir())[:2]):
        shutil.copy(path, kind / f"copy{number}.png")
    (kind / "broken.png").write_bytes(b"nothing")
    output, record = evaluated(tmp_path, f"random knn --data data {TINY} --seed 3")
    assert "2 of 26 test images are training images too" in output
    assert record["data"]["test"]["left_out"] == 1
    (left_out,) = record["data"]["test"]["left_out_first"]
    assert left_out["name"] == "kind0/broken.png"
    assert left_out["reason"]
    assert record["data"]["train"]["left_out"] == 0
    assert record["settings"]["seed"] == 3
    assert record["weights"] is None


@pytest.mark.parametrize("protocol", [f"linear {PROBE} --layers conv1", "knn", "agreement"])
def test_figures_of_fewer_images_than_were_named_say_so(place: Path, tmp_path: Path, protocol: str):
    shutil.copytree(place / "runs/mine", tmp_path / "runs/mine")
    shutil.copytree(place / "data", tmp_path / "data")
    (tmp_path / "data/val/kind0/broken.png").write_bytes(b"nothing")
    words = f"mine {protocol} --data data --device cpu --workers 1"
    output, record = evaluated(tmp_path, words)
    kind = "images" if protocol == "agreement" else "test images"
    said = f"figures rest on 24 of 25 {kind}: 1 cannot be used (not an image)"
    assert output.splitlines()[-2] == said
    assert record["data"][kind.split()[0]]["unusable"] == {"not an image": 1}
    for path in sorted((tmp_path / "data/val").rglob("*.png"))[:20]:
        path.write_bytes(b"nothing")
    refused(tmp_path, words, 3, " of 25 files in data/val cannot be used, more than half (not")


def test_agreement_with_the_runs_own_folders_and_with_others(place: Path):
    _, own = evaluated(place, "mine agreement")
    closing = json.loads((place / "runs/mine/closing.json").read_text())
    assert own["result"]["nmi"] == pytest.approx(closing["nmi_labels"])
    assert own["result"]["images"] == 48
    _, same = evaluated(place, "mine agreement --data data/train --workers 1")
    assert same["result"] == own["result"]
    _, others = evaluated(place, "mine agreement --data data/val --workers 1")
    assert others["result"]["images"] == 24
    _, of_both = evaluated(place, "mine agreement --data data --workers 1")
    assert of_both["result"] == others["result"]
    refused(place, "mine agreement --test data/val", 2, "no such option --test")


def test_baselines(place: Path):
    _, like = evaluated(place, f"random linear --data data {PROBE} --like mine --layers conv2")
    assert like["network"]["width"] == 16
    assert like["network"]["front"] == "rgb"  # as mine
    assert like["trained"] is None
    assert [layer["layer"] for layer in like["result"]["layers"]] == ["conv2"]
    for front in ("sobel", "rgb"):
        words = f"random-{front} linear --data data {PROBE} {TINY} --layers conv2"
        assert evaluated(place, words)[1]["network"]["front"] == front
    assert (place / "evaluations").is_dir()
    _, backbone = evaluated(
        place, f"random linear --data data {PROBE} {TINY} --arch resnet18 --layers layer1 pooled"
    )
    assert [layer["width"] for layer in backbone["result"]["layers"]] == [9216, 512]


@pytest.mark.slow
def test_two_processes_find_what_one_finds(place: Path):
    words = f"evaluate mine linear --data data {PROBE} --ten-crops --device cpu --workers 1"
    records = []
    for processes, out in ((1, "one"), (2, "two")):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        launcher = f"--nproc-per-node {processes} --master-addr 127.0.0.1 --master-port {port}"
        every = f"-m torch.distributed.run {launcher} -m deepcluster {words} --out {out}"
        subprocess.run(
            [sys.executable, *every.split()],
            cwd=place,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            check=True,
        )
        (written,) = (place / out).glob("*.json")
        record = json.loads(written.read_text())
        record["result"].pop("seconds")
        records.append(record)
    assert records[0] == records[1]


@pytest.mark.slow
def test_ctrl_c_ends_it_cleanly(place: Path):
    words = "evaluate mine linear --data data --epochs 9999 --device cpu --workers 1 --out never"
    work = subprocess.Popen(
        [sys.executable, "-m", "deepcluster", *words.split()],
        cwd=place,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert work.stdout is not None
    while "candidates" not in work.stdout.readline():
        pass
    time.sleep(1)
    work.send_signal(signal.SIGINT)
    output, _ = work.communicate(timeout=60)
    assert work.returncode == 130
    assert output.splitlines()[-1] == (
        "deepcluster: stopped; what was saved is whole, and the same command begins anew"
    )
    assert not (place / "never").exists()


def test_an_untrained_run_and_the_random_baseline_are_one_network(place: Path):
    """`random` with the run's seed is what the run began from."""
    import torch

    from deepcluster.beginning import new_network
    from deepcluster.evaluation.evaluated import untrained
    from deepcluster.evaluation.subject import Shape
    from deepcluster.settings import Architecture, Run

    run = Run(seed=3, network=Architecture(input_size=64, width=16))
    ours = untrained(Shape(input_size=64, width=16), seed=3).network.state_dict()
    for name, tensor in new_network(run).state_dict().items():
        assert torch.equal(tensor, ours[name])


def test_bad_words(place: Path):
    refused(place, "mine", 2, "which network, and how?")
    refused(place, "mine liner --data data", 2, "no such protocol 'liner'", "linear")
    refused(place, "mine linear --data data --epoch 3", 2, "--epoch", "--epochs")
    refused(place, "mine linear", 2, "which images?", "--data")
    refused(place, "mine linear --data nowhere", 2, "nowhere")
    refused(place, "mine linear --data data/train", 2, "no folder train")
    same = "mine linear --train data/val --test data/val"
    refused(place, same, 2, "data/val cannot be both")
    refused(place, "mine linear data", 2, "data: not understood")
    refused(place, "min linear --data data", 2, "there is no run min", "mine")
    refused(place, "data linear --data data", 2, "data is no run folder")
    refused(place, "supervised linear --data data", 2, "--labels folders --out runs/supervised")
    refused(
        place, "supervised-rgb knn --data data", 2, "--labels folders --network.front rgb --out"
    )
    refused(place, "mine linear --data data --arch vgg16", 2, "--arch is for random only")
    refused(place, "random linear --data data --like nothing", 2, "--like nothing")
    refused(place, "random agreement", 2, "random has no groups")
    refused(place, "mine linear --data data --layers conv7", 2, "'conv7'", "conv5")
    refused(place, "mine linear --data data --epochs 0", 2, "--epochs 0")


def test_a_run_that_is_not_trained(place: Path):
    shutil.copytree(place / "runs/mine", place / "runs/begun")
    (place / "runs/begun/closing.json").unlink()
    refused(place, "begun linear --data data", 4, "runs/begun has not been trained to its end")
    shutil.copytree(place / "runs/mine", place / "runs/cut")
    (place / "runs/cut/model.safetensors").write_bytes(b"nothing")
    refused(place, "cut linear --data data", 4, "runs/cut/model.safetensors")


def test_a_run_beside_which_nothing_can_be_written(place: Path, tmp_path: Path):
    run = Path(shutil.copytree(place / "runs/mine", tmp_path / "mine"))
    shutil.rmtree(run / "evaluations", ignore_errors=True)
    (run / "evaluations").write_text("")
    before = {*tmp_path.rglob("*")}
    code, output = child.run("evaluate mine agreement --device cpu".split(), tmp_path)
    said = "cannot write into mine/evaluations, which is a file; choose another --out"
    assert (code, output.strip()) == (2, f"deepcluster: {said}")
    assert {*tmp_path.rglob("*")} - before == {tmp_path / "output.txt"}
    code, output = child.run("evaluate mine agreement --out other --device cpu".split(), tmp_path)
    assert code == 0, output
    assert list((tmp_path / "other").glob("agreement-*.json"))


def test_data_that_cannot_be_used(place: Path, tmp_path: Path):
    shutil.copytree(place / "runs", tmp_path / "runs")
    flat = tmp_path / "flat"
    for name in ("train", "val"):
        (flat / name).mkdir(parents=True)
        for number, path in enumerate(sorted((place / "data" / name).rglob("*.png"))):
            shutil.copy(path, flat / name / f"{number}.png")
    refused(tmp_path, "mine linear --data flat", 3, "flat/train has no labels", "folder")
    words = "--preset small --epochs 1 --k 4 --batch 16 --network.width 16 --device cpu".split()
    code, output = child.run(["train", "flat/train", "--out", "runs/flat", *words], tmp_path)
    assert code == 0, output
    refused(tmp_path, "flat agreement", 3, "images of runs/flat have no labels", "--data")
    shutil.copytree(place / "data", tmp_path / "loose")
    for name in ("x.png", "y.png"):
        shutil.copy(flat / "val/0.png", tmp_path / "loose/val" / name)
    said = "loose/val: 2 of 26 images have no class (x.png, ...)"
    refused(tmp_path, "mine linear --data loose", 3, said, "the folder of its class")
    other = tmp_path / "other"
    shutil.copytree(place / "data", other)
    (other / "val/kind3").rename(other / "val/kind9")
    refused(tmp_path, "mine linear --data other", 3, "'kind3'", "other/train", "other/val")
    few = tmp_path / "few"
    shutil.copytree(place / "data", few)
    for path in sorted((few / "train/kind0").iterdir())[1:]:
        path.unlink()
    refused(tmp_path, "mine linear --data few", 3, "class 'kind0' has 1 image", "at least 2")


def test_a_missing_run_is_known_without_torch(tmp_path: Path):
    script = (
        "import sys\nfrom deepcluster.cli import main\n"
        "code = main(['evaluate', 'nowhere', 'linear', '--data', 'data'])\n"
        "assert not {'torch', 'sklearn'} & {*sys.modules}\nsys.exit(code)"
    )
    result = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True)
    assert result.returncode == 2, result.stderr
