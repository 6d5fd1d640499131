"""`evaluate RUN voc-segmentation` from the words to the file that it leaves."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import child
import pytest
from devkit import write_devkit

WORDS = (
    "evaluate random voc-segmentation --data VOCdevkit --input-size 64 --width 8 --device cpu "
    "--workers 1 --year 2007 --epochs 1 --steps 0.01"
)


def test_segmentation_and_what_it_leaves(tmp_path: Path):
    write_devkit(tmp_path, {"train": 4, "val": 4, "test": 4})
    code, output = child.run([*WORDS.split(), "--train", "all"], tmp_path)
    assert code == 0, output
    assert "random: VOC2007 segmentation, all learnt, 32s" in output
    record = json.loads(
        (tmp_path / output.splitlines()[-1].removeprefix("written to ")).read_text()
    )
    assert record["protocol"] == "voc-segmentation"
    assert record["settings"]["train"] == "all"
    assert record["data"]["train"]["images"] == 4  # every second has a mask
    assert 0 <= record["result"]["mean_iou"] <= 1
    for words, complaint in (
        ("--arch resnet18", "must be alexnet or vgg16"),
        ("--train fc6", "--train"),
        ("--year 2012", "there is no VOC2012 in it; to use"),
        ("--learn-on val", ""),
    ):
        got, output = child.run([*WORDS.split(), *words.split()], tmp_path)
        assert got == (2 if complaint else 0), output
        assert complaint in output.splitlines()[-1]
        assert "Traceback" not in output


@pytest.mark.slow
def test_two_processes_find_what_one_finds(tmp_path: Path):
    write_devkit(tmp_path, {"train": 4, "val": 4, "test": 4})
    figures = []
    for processes, out in ((1, "one"), (2, "two")):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        launcher = f"--nproc-per-node {processes} --master-addr 127.0.0.1 --master-port {port}"
        every = f"-m torch.distributed.run {launcher} -m deepcluster {WORDS} --out {out}"
        subprocess.run(
            [sys.executable, *every.split()],
            cwd=tmp_path,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            check=True,
        )
        (written,) = (tmp_path / out).glob("*.json")
        figures.append(json.loads(written.read_text())["result"]["seeds"]["0"]["confusion"])
    assert figures[0] == figures[1]
