"""The verb reproduce, from the words to what it leaves; and what it refuses."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import child
import pytest

from deepcluster.images.store import Store
from deepcluster.studies.catalogue import STUDIES
from deepcluster.studies.drawn_devkit import write_devkit


@pytest.fixture(scope="module")
def place(textures: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data/train and data/val."""
    folder = tmp_path_factory.mktemp("place")
    (folder / "data").mkdir()
    textures(40).rename(folder / "data/train")
    textures(16).rename(folder / "data/val")
    return folder


def test_the_help_lists_the_studies_without_torch():
    code = (
        "import sys; from deepcluster.cli import main; main(['reproduce', '--help']); "
        "sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for name, what in STUDIES.items():
        assert f"{name:<10} {what}" in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("tabel1 --smoke", "no such study 'tabel1'; did you mean table1?"),
        ("--smoke", "which study? deepcluster reproduce NAME: table1, table2"),
        ("table1", "which images? deepcluster reproduce table1 --data DIR"),
        ("table1 --data nowhere", "--data nowhere: there is no such folder"),
        ("table1 --data data/train", "--data data/train: it needs folders train/ and val/"),
        ("table1 --data data --second data/val", "--second data/val: it needs folders train/ and"),
        ("table1 --data data --second none", "--second none: there is no such folder"),
        ("table1 --smoke --data data", "--smoke has its own images"),
        ("draw --smoke --probe-epochs 3", "recipe and probes; leave out --probe-epochs"),
        ("table1 --smoke --no-tune", "recipe and probes; leave out --no-tune"),
        ("table1 --smoke --supervised-epochs 2", "leave out --supervised-epochs"),
        ("table1 --data data --preset smal", "no such preset 'smal'"),
        ("table1 --data data --rows randem", "--rows randem: no such row; did you mean 'random'?"),
        ("table1 --data data --seeds 1 1", "the same seed twice"),
        ("table1 --data data --epochs 0", "--epochs 0: use at least 1"),
        ("table1 --data data --supervised-steps 0.1 -1", "--supervised-steps 0.1 -1: use numbers"),
        ("table1 --data data --supervised-epochs 0", "--supervised-epochs 0: use numbers from 1"),
        ("table1 --data data --out data/train", "already holds 'kind0', which is not ours"),
        ("table1 --data data --sedes 1", "no such option --sedes; did you mean --seeds?"),
        ("uncurated --data data", "uncurated mixes two data sets: give --second DIR"),
        ("table2 --data data", "give --voc DIR, a VOCdevkit folder"),
        ("table2 --data data --voc data", "--voc data: there is no VOC2007 in it"),
        ("table1 --data data --voc data", "--voc is for studies of transfer"),
        ("table1 --data data --oxford data", "--oxford is for table5"),
        ("table1 --data data --tasks Oxford", "--tasks is for studies of transfer"),
        ("table1 --data data --networks-of data", "--networks-of data: no study was carried out"),
        ("table1 --data data --adopt PIC=data", "data is no run folder"),
        ("table1 --data data --adopt runs/mine", "say which row and which run"),
        ("table1 --data data seeds=1", "'seeds=1': write it as --seeds 1"),
        ("table5 --data data", "give --oxford DIR, --paris DIR or both"),
        ("table5 --data data --oxford data", "give the other city too, or --whiten-on DIR"),
        ("table5 --data data --oxford nowhere --paris data", "--oxford nowhere: there is no such"),
        ("table5 --smoke --paris data", "--smoke has its own images"),
        ("table5 --smoke --tasks Rome", "--tasks Rome: no such task; there are Oxford, Paris"),
        ("reassign --data data --minutes 1", "give --epochs instead"),
        ("stopping --data data --minutes 1", "give --epochs"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(place: Path, words: str, said: str, tmp_path: Path):
    out = [] if "--out" in words else ["--out", str(tmp_path / "out")]
    code, output = child.run(["reproduce", *words.split(), *out], place)
    assert code == 2, output
    assert said in output
    assert len(output.strip().splitlines()) == 1
    if "--smoke" in words:  # which has drawn its images by then
        assert not (tmp_path / "out" / "parts").exists()
    else:
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("study", ["table2", "fig2"])
def test_a_broken_devkit_is_refused_before_anything_is_trained(
    study: str, place: Path, tmp_path: Path
):
    devkit = write_devkit(tmp_path, {"train": 2, "val": 2, "test": 2})
    broken = devkit / f"ImageSets/Main/{'test' if study == 'table2' else 'val'}.txt"
    broken.write_text("")
    words = (
        f"reproduce {study} --data data --preset small --k 4 --epochs 1 --device cpu --workers 1"
    )
    out = tmp_path / "out"
    code, output = child.run([*words.split(), "--voc", str(devkit), "--out", str(out)], place)
    assert code == 3, output
    assert f"{broken} names 0 images" in output
    assert len(output.strip().splitlines()) == 1
    assert not out.exists()


def test_data_sets_whose_parts_would_be_called_the_same_have_two_names(
    textures: Callable[..., Path], tmp_path: Path
):
    for name in ("T", "other/t"):
        (tmp_path / name).mkdir(parents=True)
        textures(12, 2).rename(tmp_path / name / "train")
        textures(4, 2).rename(tmp_path / name / "val")
    words = (
        "reproduce sobel --data T --second other/t --out out --preset small --k 4 --epochs 1 "
        "--seeds 0 --rows random-sobel --probe-epochs 1 --device cpu --workers 1"
    )
    code, output = child.run(words.split(), tmp_path)
    assert code == 0, output
    data = json.loads((tmp_path / "out/data.json").read_text())
    assert [one["name"] for one in data["data"]] == ["T", "t-second"]


def test_a_study_from_a_folder_of_images_and_again(place: Path):
    words = (
        "reproduce sobel --data data --out out --preset small --k 4 --epochs 1 --seeds 0 1 "
        "--rows Sobel random-sobel --probe-epochs 1 --device cpu --workers 1 --follow-links"
    ).split()
    (place / "data/train/kind0/0000.png").rename(place / "away.png")
    (place / "data/train/kind0/0000.png").symlink_to(place / "away.png")
    code, output = child.run(words, place)
    assert code == 0, output
    assert "paper" in output
    data = json.loads((place / "out/data.json").read_text())
    assert [(one["row"], one["seed"]) for one in data["measured"]] == [
        ("Sobel", 0),
        ("Sobel", 1),
        ("random-sobel", 0),
    ]
    assert data["recipe"]["clustering.k"] == 4
    assert data["command"].startswith("deepcluster reproduce sobel --data data")
    assert "±" in (place / "out/table.md").read_text()
    (store,) = (place / "out/stores").glob("train-*")
    assert len(Store(store)) == 40  # the link's among them
    assert not list((place / "out/runs").glob("*/checkpoints"))
    code, again = child.run(words, place)
    assert code == 0
    assert "epoch " not in again
    assert json.loads((place / "out/data.json").read_text())["measured"] == data["measured"]
    at = words.index("--rows")
    one = [*words[: at + 1], "random-sobel", *words[at + 3 :]]
    code, rest = child.run(one, place)
    assert code == 0
    assert "Sobel: done before" in rest
    assert json.loads((place / "out/data.json").read_text())["measured"] == data["measured"]
    three = one.index("1", one.index("--seeds")) + 1
    code, fewer = child.run([*one[:three], "2", *one[three:]], place)
    assert code == 0
    assert "no longer in the table: Sobel" in fewer
    code, other = child.run(["reproduce", "draw", "--data", "data", "--out", "out"], place)
    assert code == 2
    assert "holds the study sobel" in other


def test_an_interrupted_study_goes_on_to_the_same_figures(place: Path):
    words = (
        "reproduce sobel --data data --preset small --k 4 --epochs 2 --seeds 0 --probe-epochs 1 "
        "--rows Sobel random-sobel --device cpu --workers 1 --out"
    ).split()

    def reached(out: str) -> list[dict]:
        measured = json.loads((place / out / "data.json").read_text())["measured"]
        return [one["judged"]["data"]["result"]["layers"] for one in measured]

    code, output = child.run([*words, "whole"], place)
    assert code == 0, output
    code, output = child.run([*words, "parted"], place, "train.step:interrupt@3")
    assert code == 130, output
    assert not (place / "parted/data.json").exists()
    code, output = child.run([*words, "parted"], place)
    assert code == 0, output
    assert "continuing after 0 epochs and 3 steps" in output
    assert reached("parted") == reached("whole")


def test_a_table_keeps_the_tasks_of_earlier_commands(tmp_path: Path):
    def columns(row: str, task: str) -> tuple[str, list[str]]:
        words = "reproduce table5 --smoke --device cpu --workers 1 --out out --rows".split()
        code, output = child.run([*words, row, "--tasks", task], tmp_path)
        assert code == 0, output
        data = json.loads((tmp_path / "out/data.json").read_text())
        assert [*data["probe"]] == data["tables"][0]["columns"]
        for line in data["tables"][0]["lines"]:
            assert len(line["ours"]) == len(line["paper"]) == len(data["probe"])
        return output, data["tables"][0]["columns"]

    assert columns("random AlexNet", "Paris")[1] == ["Paris"]
    output, both = columns("random AlexNet", "Oxford")
    assert both == ["Oxford", "Paris"]  # in the order of the study
    assert "Paris: done before" in output
    assert "Oxford / Paris" in (tmp_path / "out/table.md").read_text()
    output, one = columns("random VGG-16", "Oxford")
    assert one == ["Oxford"]
    assert "no longer in the table: Paris" in output


@pytest.mark.slow
def test_two_processes_carry_out_a_study_and_go_on_with_it(place: Path):
    """What is done is known to both; images that have changed are refused by both."""
    words = (
        "reproduce sobel --data data --preset small --k 4 --epochs 1 --seeds 0 --probe-epochs 2 "
        "--device cpu --workers 1"
    )

    def by_two(more: str) -> tuple[int, str]:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        launcher = f"--nproc-per-node 2 --master-addr 127.0.0.1 --master-port {port}"
        every = f"-m torch.distributed.run {launcher} -m deepcluster {words} {more}"
        done = subprocess.run(
            [sys.executable, *every.split()],
            cwd=place,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        return done.returncode, done.stdout + done.stderr

    code, said = by_two("--out two --rows Sobel")
    assert code == 0, said
    code, said = by_two("--out two --rows Sobel random-sobel")
    assert code == 0, said
    assert said.count("done before") == 2  # of the leader alone
    code, said = by_two("--out three --networks-of two --rows Sobel")
    assert code == 0, said
    assert "trained before: two/runs/sobel-seed0" in said
    first, second = sorted((place / "data/val/kind0").iterdir())[:2]
    kept = first.read_bytes()
    first.write_bytes(second.read_bytes())
    code, said = by_two("--out two --rows Sobel")
    first.write_bytes(kept)
    assert code != 0
    assert "the images of data/val have changed since" in said


@pytest.mark.slow
def test_the_smoke_of_table1_shows_trained_above_random(tmp_path: Path):
    code, output = child.run(["reproduce", "table1", "--smoke"], tmp_path)
    assert code == 0, output
    data = json.loads((tmp_path / "reproductions/table1-smoke/data.json").read_text())
    reached = {
        one["row"]: {
            layer["layer"]: layer["top1"] for layer in one["judged"]["pictures"]["result"]["layers"]
        }
        for one in data["measured"]
    }
    assert reached["DeepCluster"]["conv3"] > reached["random"]["conv3"] + 0.02


@pytest.mark.slow
@pytest.mark.parametrize(
    ("study", "row"),
    [
        ("fig2", "k = 9"),
        ("draw", "weighted"),
        ("reassign", "every 7 passes"),
        ("sobel", "random-rgb"),
        ("dimensions", "no PCA"),
        ("depth", "VGG-16"),
        ("stopping", "1 epoch"),
        ("uncurated", "curated"),
        ("variants", "uncurated"),
        ("classif", "uncurated, PIC"),
        ("mlp", "DeepCluster"),
    ],
)
def test_the_smoke_of_a_study_of_probes_by_one_row(study: str, row: str, tmp_path: Path):
    words = ["reproduce", study, "--smoke", "--rows", row, "--device", "cpu"]
    code, output = child.run(words, tmp_path)
    assert code == 0, output
    left = tmp_path / f"reproductions/{study}-smoke"
    (measured,) = json.loads((left / "data.json").read_text())["measured"]
    assert measured["row"] == row
    for judged in measured["judged"].values():
        chance = 1 / 18  # of pictures; there are fewer directions of gratings
        assert all(chance < layer["top1"] <= 1 for layer in judged["result"]["layers"])
    assert (left / "figure.png").stat().st_size > 5000
    line = next(one for one in (left / "table.md").read_text().splitlines() if f"| {row} |" in one)
    assert line.count("|") == 5  # row, paper, ours, note
    code, again = child.run(words, tmp_path)
    assert code == 0
    assert again.count("done before") == len(measured["judged"]) + bool(measured["training"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("study", "tasks", "rows"),
    [
        # VGG-16 takes minutes.
        ("table4", ["detection fc6-8"], ["random AlexNet", "DeepCluster AlexNet"]),
        ("table5", ["Oxford", "Paris"], ["random AlexNet", "DeepCluster AlexNet"]),
        ("table2", ["segmentation fc6-8"], ["random-sobel", "supervised"]),
        ("table3", ["classification fc6-8"], ["random", "uncurated"]),
        ("pic", ["classification fc6-8"], ["random", "PIC"]),
    ],
)
def test_the_smoke_of_tasks_on_drawn_data(
    study: str, tasks: list[str], rows: list[str], tmp_path: Path
):
    words = ["reproduce", study, "--smoke", "--rows", *rows, "--tasks", *tasks, "--device", "cpu"]
    code, output = child.run(words, tmp_path)
    assert code == 0, output
    data = json.loads((tmp_path / f"reproductions/{study}-smoke/data.json").read_text())
    for one in data["measured"]:
        assert list(one["judged"]) == tasks
        for judged in one["judged"].values():
            assert 0 < next(iter(judged["figures"].values())) <= 1
    code, again = child.run(words, tmp_path)
    assert code == 0
    assert again.count("done before") == 2 * len(tasks) + 1
