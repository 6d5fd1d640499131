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

import numpy as np
import pytest
import torch
from child import newest_checkpoint

IMAGES = 67  # prime: divisible neither by the ranks nor by the batch


def command(images: Path, out: str, epochs: int = 2) -> list[str]:
    flags = f"--preset small --out {out} --k 6 --epochs {epochs} --batch 16 --network.width 32"
    more = "--whitening.dimensions 8 --speed.look_batch 16 --workers 1 --device cpu --seed 1"
    return ["train", str(images), *flags.split(), *more.split()]


def started(folder: Path, processes: int, words: list[str], fault: str = "") -> subprocess.Popen:
    launcher = [sys.executable, "-m", "deepcluster"]
    if processes > 1:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node"]
        launcher += [str(processes), "--master-addr", "127.0.0.1", "--master-port", str(port)]
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


def test_two_processes_train_as_one_does_up_to_batch_norm(runs: Path):
    losses = {}
    for name in ("by-1", "by-2"):
        lines = (runs / name / "journal.jsonl").read_text().splitlines()
        losses[name] = [json.loads(line)["loss"] for line in lines]
    assert losses["by-1"] == pytest.approx(losses["by-2"], rel=0.05)
    assert len(losses["by-2"]) == 2


def test_the_closing_pass_of_two_processes_covers_every_image(runs: Path):
    features = np.load(runs / "by-2/features.npy")
    assert features.shape[0] == IMAGES
    assert np.linalg.norm(features.astype(np.float64), axis=1) == pytest.approx(1, abs=1e-2)


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
    assert "continuing after 1 epochs and 3 steps" in output


def test_a_bad_command_is_refused_once(tmp_path: Path):
    process = started(tmp_path, 2, command(tmp_path / "nowhere", "run"))
    code, output = finished(process)
    assert code != 0
    assert "nowhere" in output


def wait_for(path: Path, process: subprocess.Popen) -> None:
    for _ in range(1200):
        if path.exists():
            return
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.05)
    raise TimeoutError(f"{path} did not appear")


def children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def test_the_fresh_head_is_the_same_in_both_processes_after_an_epoch(tmp_path: Path):
    torch.multiprocessing.start_processes(
        _train_an_epoch, args=(str(tmp_path),), nprocs=2, start_method="forkserver"
    )
    first, second = (np.load(tmp_path / f"head-{rank}.npy") for rank in (0, 1))
    fresh = np.load(tmp_path / "fresh.npy")
    assert np.array_equal(first, second)
    assert not np.array_equal(first, fresh)


def _train_an_epoch(rank: int, folder: str) -> None:
    import worlds_child

    worlds_child.train_an_epoch(rank, folder)
