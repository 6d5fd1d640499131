"""`evaluate RUN retrieval` from the words to the file that it leaves; and what it refuses."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import child
import numpy as np
import pytest
from PIL import Image

WORDS = "evaluate random retrieval --size 64 --input-size 64 --width 8 --device cpu --workers 1"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("place")
    (folder / "city/images").mkdir(parents=True)
    (folder / "city/gt_files").mkdir()
    (folder / "other").mkdir()
    randomness = np.random.default_rng(0)
    for name in ("city/images/hall_1", "city/images/hall_2", "city/images/x_3", "other/a"):
        pixels = randomness.integers(0, 255, (64, 80, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{name}.png")
    files = {"query": "oxc1_hall_1 0 0 70 60", "good": "hall_1", "ok": "hall_2\nhall_9", "junk": ""}
    for kind, text in files.items():
        (folder / f"city/gt_files/hall_1_{kind}.txt").write_text(text + "\n")
    return folder


def test_retrieval_and_what_it_leaves(place: Path):
    words = f"{WORDS} --data city --whiten-on other --dimensions 4 --seeds 0 1"
    code, output = child.run(words.split(), place)
    assert code == 0, output
    assert "3 images and 1 query; the whitening is learnt on other" in output
    assert "random: R-MAC of conv5 at 64 px, 3 images" in output
    assert "1 image that the ground truth names is not there: hall_9" in output
    record = json.loads((place / output.splitlines()[-1].removeprefix("written to ")).read_text())
    assert record["protocol"] == "retrieval"
    assert record["data"]["absent"] == ["hall_9"]
    assert record["data"]["whitening"] == "other"
    assert len(record["data"]["whitening_fingerprint"]) == 16
    assert record["settings"]["layer"] == "conv5"
    assert record["settings"]["dimensions"] == record["result"]["seeds"][0]["width"]
    assert record["network"]["front"] == "sobel"
    figures = record["result"]["levels"]["all"]
    assert 0 < figures["map"] <= 1
    assert len(record["result"]["seeds"]) == 2
    code, again = child.run(words.split(), place)
    assert code == 0
    assert again.count("kept from before") == 2


@pytest.mark.parametrize(
    ("words", "code", "part"),
    [
        ("--data city", 2, "give --whiten-on DIR"),
        ("--data nowhere --whiten-on other", 2, "nowhere"),
        ("--data other --whiten-on other", 3, "other has no ground truth"),
        ("--data city --whiten-on other --layer conv9", 2, "'conv9'"),
        ("--data city --whiten-on other --layer fc7", 2, "--layer fc7"),
        ("--data city --whiten-on other --size 10", 2, "--size 10"),
    ],
)
def test_what_is_refused(place: Path, words: str, code: int, part: str):
    got, output = child.run([*WORDS.split(), *words.split()], place)
    assert got == code, output
    assert "Traceback" not in output
    assert part in output.splitlines()[-1]


def test_where_no_query_has_anything_to_find_there_is_no_table(place: Path, tmp_path: Path):
    shutil.copytree(place / "city", tmp_path / "city")
    (tmp_path / "city/gt_files/hall_1_good.txt").write_text("")
    (tmp_path / "city/images/hall_2.png").write_bytes(b"damaged")
    code, output = child.run(f"{WORDS} --data city --whiten-on none".split(), tmp_path)
    assert code == 3, output
    assert "R-MAC" not in output
    *_, last = output.splitlines()
    assert "no query can be asked of city/images: hall_1: no image that shows it" in last


@pytest.mark.slow
def test_two_processes_find_what_one_finds(place: Path, tmp_path: Path):
    place = shutil.copytree(place, tmp_path / "place")
    whole = (place / "city/images/x_3.png").read_bytes()
    (place / "city/images/y_4.png").write_bytes(whole[: len(whole) // 2])  # of the second's share
    records = []
    for processes, out in ((1, "one"), (2, "two")):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        launcher = f"--nproc-per-node {processes} --master-addr 127.0.0.1 --master-port {port}"
        words = f"{WORDS} --data city --whiten-on city --dimensions 4 --out {out}"
        every = f"-m torch.distributed.run {launcher} -m deepcluster {words}"
        subprocess.run(
            [sys.executable, *every.split()],
            cwd=place,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            check=True,
        )
        (written,) = (place / out).glob("*.json")
        result = json.loads(written.read_text())["result"]
        result["seeds"][0].pop("seconds")
        records.append(result)
    assert records[0] == records[1]
    assert records[0]["seeds"][0]["unusable"] == ["y_4.png: truncated"]
