"""One process against two, by torchrun and gloo, as a user would start them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import by_hand
import child
import numpy as np
import pytest
import torch
import worlds_child
from child import newest_checkpoint
from safetensors.torch import load_file

from deepcluster.features import PCA
from deepcluster.images.crops import normalize
from deepcluster.images.store import Store
from deepcluster.images.stored import StoredImages
from deepcluster.networks import build_network
from deepcluster.runtime.seeds import generator
from deepcluster.runtime.world import World

IMAGES = 67  # prime: divisible neither by the ranks nor by the batch


def command(images: Path, out: str, epochs: int = 2) -> list[str]:
    flags = f"{child.PLAIN} --out {out} --k 6 --epochs {epochs} --batch 16 --network.width 32"
    more = "--whitening.dimensions 8 --speed.look_batch 16 --workers 1 --device cpu --seed 1"
    return ["train", str(images), *flags.split(), *more.split()]


def started(folder: Path, processes: int, words: list[str], fault: str = "") -> subprocess.Popen:
    launcher = [sys.executable, "-m", "deepcluster"]
    if processes > 1:
        launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node"]
        launcher += [str(processes), "--master-addr", "127.0.0.1", "--master-port", f"{a_port()}"]
        launcher += ["-m", "deepcluster"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "DEEPCLUSTER_FAULT": fault}
    return subprocess.Popen(
        [*launcher, *words],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def a_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def finished(process: subprocess.Popen) -> tuple[int, str]:
    output, _ = process.communicate(timeout=240)
    return process.returncode, output


@pytest.fixture(scope="module")
def images(textures: Callable[[int], Path]) -> Path:
    return textures(IMAGES)


@pytest.fixture(scope="module")
def runs(images: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that holds a run by one process and one by two."""
    folder = tmp_path_factory.mktemp("worlds")
    for processes in (1, 2):
        code, output = finished(started(folder, processes, command(images, f"by-{processes}")))
        assert code == 0, output
    return folder


def test_two_processes_find_the_same_groups_of_the_same_network(runs: Path):
    alone = np.load(runs / "by-1/assignments/epoch-0000.npy")
    together = np.load(runs / "by-2/assignments/epoch-0000.npy")
    assert len(alone) == IMAGES
    assert np.array_equal(alone, together)


def test_what_two_processes_leave_belongs_to_the_network_they_leave(runs: Path, images: Path):
    settings = json.loads((runs / "by-2/settings.json").read_text())["effective"]
    network = build_network(
        "alexnet", "sobel", 64, width=settings["network.width"], generator=generator(1, "network")
    ).eval()
    network.trunk.load_state_dict(load_file(runs / "by-2/model.safetensors"))
    groups = load_file(runs / "by-2/groups.safetensors")
    store = StoredImages(Store(runs / "by-2/store"), 64)
    pixels = torch.cat(list(store.seen(range(IMAGES), batch=IMAGES, workers=1)))
    with torch.no_grad():
        features = PCA(groups["pca.mean"], groups["pca.projection"])(
            network.trunk(normalize(pixels))
        )
    saved = torch.from_numpy(np.load(runs / "by-2/features.npy").astype(np.float32))
    assert torch.allclose(features, saved, atol=0.01)  # of both processes' rows


def test_the_closing_pass_of_two_processes_covers_every_image(runs: Path):
    features = np.load(runs / "by-2/features.npy")
    assert features.shape[0] == IMAGES
    assert np.linalg.norm(features.astype(np.float64), axis=1) == pytest.approx(1, abs=1e-2)


@pytest.mark.slow
def test_two_processes_tell_the_distances_between_images_of_power_iteration(
    images: Path, tmp_path: Path
):
    """As by hand from every image's features, and as `predict` tells them again."""
    words = "--preset small-pic --out run --epochs 1 --batch 16 --network.width 32 --device cpu"
    command = ["train", str(images), *words.split(), "--clustering.neighbours", "3"]
    code, output = finished(started(tmp_path, 2, command))
    assert code == 0, output
    saved = child.table(tmp_path / "run/clusters.parquet")
    rows = np.load(tmp_path / "run/features.npy").astype(np.float64)
    own, other = by_hand.distances_to_own_and_other(rows, np.array(saved["cluster"]))
    np.testing.assert_allclose(saved["distance"], own, atol=1e-5)
    np.testing.assert_allclose(saved["margin"], other - own, atol=1e-5)
    words = ["predict", "run", str(images), "--out", "p.parquet", "--device", "cpu"]
    assert child.run(words, tmp_path)[0] == 0
    found = child.table(tmp_path / "p.parquet")
    assert found["cluster"] == saved["cluster"]
    np.testing.assert_allclose(found["distance"], saved["distance"], atol=2e-3)


@pytest.mark.parametrize(
    "flags",
    [
        "--training.head matched --training.schedule cosine --clustering-start previous "
        "--training.head-momentum 0.5 --jitter.erase 0.5 --network.patches 2",
        pytest.param(
            "--labels folders --training.schedule cosine --training.head-momentum 0.5",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_two_processes_with_a_head_that_stays_begin_as_one_does(
    flags: str, images: Path, tmp_path: Path
):
    for processes in (1, 2):
        words = [*command(images, f"by-{processes}"), *flags.split()]
        code, output = (
            child.run(words, tmp_path)
            if processes == 1
            else finished(started(tmp_path, processes, words))
        )
        assert code == 0, output
    alone, together = (
        [json.loads(line) for line in (tmp_path / f"by-{n}/journal.jsonl").read_text().splitlines()]
        for n in (1, 2)
    )
    first = "assignments/epoch-0000.npy"
    assert np.array_equal(*(np.load(tmp_path / f"by-{n}" / first) for n in (1, 2)))
    assert [line["schedule"] for line in alone] == [line["schedule"] for line in together]
    assert together[0]["draws"] == IMAGES
    # Batch norm and dropout see other shares: the same but for that.
    assert together[0]["loss"] == pytest.approx(alone[0]["loss"], rel=0.02)


def test_a_process_killed_ends_the_others_soon_and_says_so(images: Path, tmp_path: Path):
    process = started(tmp_path, 2, command(images, "run", epochs=200))
    wait_for(tmp_path / "run/checkpoints/epoch-0001-step-00000000", process)
    workers = [int(pid) for pid in children(process.pid)]
    os.kill(workers[1], signal.SIGKILL)
    begun = time.monotonic()
    code, output = finished(process)
    assert time.monotonic() - begun < 60
    assert code != 0
    assert "another process of this run ended" in output
    code, output = finished(started(tmp_path, 2, command(images, "run", epochs=2)))
    assert code == 0, output
    assert "continuing after" in output or "already finished" in output


def test_terminated_together_they_save_inside_the_epoch_and_one_alone_goes_on(
    images: Path, tmp_path: Path
):
    # Four steps an epoch: both are told to stop in the second epoch, after its third step.
    process = started(tmp_path, 2, command(images, "run"), fault="train.step:term@7")
    code, output = finished(process)
    assert code != 0, output
    assert newest_checkpoint(tmp_path) == "epoch-0001-step-00000003"
    code, output = finished(started(tmp_path, 1, command(images, "run")))
    assert code == 0, output
    assert "continuing after 1 epoch and 3 steps" in output


def test_a_bad_command_is_refused_once(images: Path, tmp_path: Path):
    process = started(tmp_path, 2, [*command(images, "run"), "--epoch", "3"])
    code, output = finished(process)
    assert code != 0
    assert output.count("no such option --epoch; did you mean --epochs?") == 1


def wait_for(path: Path, process: subprocess.Popen) -> None:
    for _ in range(1200):
        if path.exists():
            return
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.05)
    raise TimeoutError(f"{path} did not appear")


def children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def together(work: str, folder: Path) -> None:
    how = (work, str(folder), a_port())
    torch.multiprocessing.start_processes(
        worlds_child.carry_out, args=how, nprocs=2, start_method="forkserver"
    )


def test_nothing_runs_on_in_a_world_that_was_left(tmp_path: Path):
    together("leave_a_learner", tmp_path)


def test_the_fresh_head_is_the_same_in_both_processes_after_an_epoch(tmp_path: Path):
    together("train_an_epoch", tmp_path)
    first, second = (load_file(tmp_path / f"network-{rank}.safetensors") for rank in (0, 1))
    fresh = load_file(tmp_path / "fresh.safetensors")["weight"]
    assert torch.equal(first["head.weight"], second["head.weight"])
    assert not torch.equal(first["head.weight"], fresh)


def test_a_carried_head_is_the_same_in_both_processes(tmp_path: Path):
    together("carry_a_head", tmp_path)
    first, second = (load_file(tmp_path / f"carried-{rank}.safetensors") for rank in (0, 1))
    assert [name for name in first if not torch.equal(first[name], second[name])] == []
    last = load_file(tmp_path / "last.safetensors")["weight"]
    assert torch.equal(first["start"], last[[1, 2, 0]])
    assert not torch.equal(first["weight"], first["start"])


def test_k_means_starts_from_the_same_means_in_one_process_and_in_two(tmp_path: Path):
    together("mean_of_labelled", tmp_path)
    worlds_child.mean_of_labelled(World(), str(tmp_path))
    alone, first, second = (
        load_file(tmp_path / f"means-{rank}-of-{size}.safetensors")["means"]
        for rank, size in ((0, 1), (0, 2), (1, 2))
    )
    assert torch.equal(first, second)
    assert torch.allclose(first, alone)


def test_batch_norm_is_the_same_in_both_processes_after_an_epoch(tmp_path: Path):
    together("train_an_epoch", tmp_path)
    first, second = (load_file(tmp_path / f"network-{rank}.safetensors") for rank in (0, 1))
    averages = [name for name in first if "running" in name]
    assert len(averages) == 10
    assert [name for name in averages if not torch.equal(first[name], second[name])] == []


def test_without_batch_norm_two_processes_take_the_same_steps_as_one(tmp_path: Path):
    together("train_without_batch_norm", tmp_path)
    worlds_child.train_without_batch_norm(World(), str(tmp_path))
    alone, first, second = (
        load_file(tmp_path / f"plain-{rank}-of-{size}.safetensors")
        for rank, size in ((0, 1), (0, 2), (1, 2))
    )
    for name, weight in alone.items():
        assert torch.equal(first[name], second[name])
        assert torch.allclose(first[name], weight, atol=1e-5), name
