"""Bad input gets one sentence that names the thing and the fix, the right exit code, no loss."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import child
import pytest
import torch
from PIL import Image

from deepcluster import cli
from deepcluster.cli import main

QUICK = f"{child.PLAIN} --out run --k 4 --epochs 1 --batch 16 --network.width 16 --device cpu"


def refused(words: list[str], folder: Path, code: int, *parts: str) -> str:
    """The one sentence with which a command is refused."""
    got, output = child.run(words, folder)
    complaint = output.splitlines()[-1]
    assert got == code, output
    assert complaint.startswith("deepcluster: ")
    assert "Traceback" not in output
    for part in parts:
        assert part in complaint
    return output


@pytest.fixture
def images(textures: Callable[[int], Path]) -> Path:
    return textures(24)


def test_missing_folder(tmp_path: Path):
    refused(["train", "nowhere"], tmp_path, 2, "nowhere")


def test_missing_folder_is_known_within_five_seconds_without_torch(tmp_path: Path):
    begun = time.monotonic()
    script = (
        "import sys\nfrom deepcluster.cli import main\ncode = main(['train', 'nowhere'])\n"
        "assert not {'torch', 'sklearn'} & {*sys.modules}\nsys.exit(code)"
    )
    result = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True)
    assert result.returncode == 2, result.stderr
    assert time.monotonic() - begun < 5


def test_help_imports_neither_torch_nor_scikit_learn():
    script = (
        "import sys\nfrom deepcluster.cli import main\nmain(['--help'])\n"
        "assert not {'torch', 'sklearn', 'torchvision'} & {*sys.modules}"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "train" in result.stdout


def test_folder_without_images(tmp_path: Path):
    (tmp_path / "films").mkdir()
    (tmp_path / "films" / "one.mp4").write_bytes(b"film")
    refused(["train", "films"], tmp_path, 3, "films", ".mp4")


def test_a_file_instead_of_a_folder(tmp_path: Path):
    (tmp_path / "one.jpg").write_bytes(b"")
    refused(["train", "one.jpg"], tmp_path, 2, "one.jpg", "folder")


def test_more_groups_than_images(images: Path, tmp_path: Path):
    words = ["train", str(images), "--out", "run", "--k", "50", "--device", "cpu"]
    refused(words, tmp_path, 2, "--k 50", "24 usable images", "try --k 2")
    assert not (tmp_path / "run" / "settings.json").exists()


@pytest.mark.parametrize("k", ["1", "0", "-3"])
def test_fewer_than_two_groups(k: str, images: Path, tmp_path: Path):
    refused(["train", str(images), "--k", k], tmp_path, 2, f"--k {k}", "at least 2")


@pytest.mark.parametrize(
    ("flag", "meant"),
    [("--epoch", "--epochs"), ("--clustering.kk", "--clustering.k"), ("--batchh", "--batch")],
)
def test_a_typo_in_a_flag_suggests_the_right_one(
    flag: str, meant: str, images: Path, tmp_path: Path
):
    refused(["train", str(images), flag, "3"], tmp_path, 2, f"no such option {flag}", meant)


def test_a_typo_in_the_verb_suggests_the_right_one(tmp_path: Path):
    refused(["trian", "photos"], tmp_path, 2, "trian", "did you mean train?")


def test_a_typo_in_the_preset_suggests_the_right_one(images: Path, tmp_path: Path):
    refused(["train", str(images), "--preset", "smal"], tmp_path, 2, "smal", "did you mean small?")


@pytest.mark.parametrize("flag", ["--epochs", "--k", "--input-size"])
def test_a_value_of_the_wrong_kind_names_the_flag(flag: str, images: Path, tmp_path: Path):
    refused(["train", str(images), flag, "many"], tmp_path, 2, f": {flag}: 'many' is no whole")


def test_the_equals_sign_of_other_tools_is_explained(images: Path, tmp_path: Path):
    refused(["train", str(images), "k=50"], tmp_path, 2, "--k 50")


def test_no_images_named(tmp_path: Path):
    refused(["train"], tmp_path, 2, "which images?")


def test_groups_cannot_be_counted_out_for_power_iteration(images: Path, tmp_path: Path):
    words = ["train", str(images), "--preset", "small-pic", "--k", "5"]
    refused(words, tmp_path, 2, "--k", "power iteration")


def test_an_unknown_network_is_named(images: Path, tmp_path: Path):
    words = ["train", str(images), "--preset", "small", "--k", "4", "--arch", "resnet19"]
    refused(words, tmp_path, 2, "resnet19", "resnet18")


@pytest.mark.parametrize(
    ("flag", "value", "part"),
    [
        ("--epochs", "0", "--epochs 0: use at least 1"),
        ("--minutes", "-1", "--minutes -1: use more than 0"),
        ("--minutes", "nan", "--minutes nan"),
        ("--input-size", "32", "use at least 64"),
        ("--batch", "1", "use at least 2"),
        ("--workers", "-3", "use at least 1"),
        ("--draw.reassign", "0", "use more than 0"),
        ("--training.step", "-1", "use more than 0"),
        ("--training.momentum", "-1", "use at least 0"),
        ("--training.weight-decay", "-1", "use at least 0"),
        ("--network.dropout", "2", "use at least 0 and at most 0.99"),
        ("--network.width", "0", "use at least 1"),
        ("--whitening.dimensions", "0", "--dimensions 0: use at least 1"),
        ("--clustering.iterations", "-1", "use at least 1"),
        ("--speed.look-batch", "0", "use at least 1"),
        ("--max-unusable", "-1", "a share from 0 to 1"),
        ("--precision", "int8", "int8"),
        ("--mayseed", "2", "no such option --mayseed"),
        ("--device", "cuda", "no CUDA device"),
        ("--device", "gpu", "use cpu, cuda or auto"),
    ],
)
def test_amounts_that_cannot_work(flag: str, value: str, part: str, images: Path, tmp_path: Path):
    if value == "cuda" and torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    words = ["train", str(images), "--preset", "small", "--k", "4", flag, value]
    refused(words, tmp_path, 2, part)


def test_an_output_folder_that_holds_something_else(images: Path, tmp_path: Path):
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "to-mother.txt").write_text("Dear mother")
    words = ["train", str(images), "--out", "letters"]
    refused(words, tmp_path, 2, "letters", "to-mother.txt", "another --out")
    assert (tmp_path / "letters" / "to-mother.txt").read_text() == "Dear mother"


def test_an_output_folder_of_another_run(images: Path, tmp_path: Path):
    assert child.run(["train", str(images), *QUICK.split()], tmp_path)[0] == 0

    def state() -> dict[Path, int]:
        files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
        return {path: path.stat().st_mtime_ns for path in files if path.name != "lock"}

    before = state()
    refused(["train", str(images), *QUICK.split(), "--seed", "5"], tmp_path, 4, "seed: 0 there")
    assert state() == before


def test_an_output_folder_that_cannot_be_written(images: Path, tmp_path: Path):
    if os.geteuid() == 0:
        out = "/proc/deepcluster"  # root may write anywhere else
    else:
        (tmp_path / "closed").mkdir(mode=0o555)
        out = "closed/run"
    words = ["train", str(images), "--preset", "small", "--k", "4", "--out", out]
    refused(words, tmp_path, 6, out.split("/")[1], "another --out")


def test_no_space(images: Path, tmp_path: Path):
    code, output = child.run(
        ["train", str(images), *QUICK.split()], tmp_path, "checkpoint.data:no-space"
    )
    assert code == 6
    assert "no space left" in output.splitlines()[-1]
    assert "MB free" in output


def test_too_little_space_is_known_before_any_image_is_read(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from deepcluster.presets import paper_alexnet
    from deepcluster.runtime.errors import StorageError
    from deepcluster.runtime.run_folder import RunFolder
    from deepcluster.session import _refuse_small_disk

    space = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: space._replace(free=10**9))
    with pytest.raises(StorageError, match=r"need 1,399 MB and 1,000 MB are free"):
        _refuse_small_disk(RunFolder(tmp_path / "run"), paper_alexnet(), 0)


def test_two_runs_in_one_folder(images: Path, tmp_path: Path):
    from deepcluster.runtime.run_folder import RunFolder

    with RunFolder(tmp_path / "run").locked():
        words = ["train", str(images), *QUICK.split()]
        refused(words, tmp_path, 4, "in use by process", str(os.getpid()))


def test_unusable_images_are_listed_and_left_out(images: Path, tmp_path: Path):
    half = (images / "kind0" / "0000.png").read_bytes()
    (images / "kind0" / "0000.png").write_bytes(half[: len(half) // 2])
    words = ["train", str(images), *QUICK.split()]
    code, output = child.run(words, tmp_path)
    assert code == 0, output
    assert "1 of 24 files cannot be used" in output
    assert "kind0/0000.png: " in output
    assert "23 images" in output


def test_many_unusable_images_stop_before_training_unless_told_otherwise(
    images: Path, tmp_path: Path
):
    for number in range(0, 24, 4):
        (images / "kind0" / f"{number:04d}.png").write_bytes(b"")
    words = ["train", str(images), *QUICK.split()]
    refused(words, tmp_path, 3, "6 of 24 files", "--max-unusable")
    assert not (tmp_path / "run" / "settings.json").exists()
    code, output = child.run([*words, "--max-unusable", "0.5"], tmp_path)
    assert code == 0, output


def test_copies_of_one_image(tmp_path: Path):
    folder = tmp_path / "copies"
    folder.mkdir()
    for number in range(30):
        Image.linear_gradient("L").save(folder / f"{number}.png")
    refused(["train", "copies", *QUICK.split()], tmp_path, 3, "copies of one")


def test_an_image_that_disappears_is_named(images: Path, tmp_path: Path):
    assert child.run(["train", str(images), *QUICK.split()], tmp_path, "whiten:term")[0] == 143
    (images / "kind1" / "0001.png").unlink()
    code, output = child.run(["train", str(images), *QUICK.split()], tmp_path)
    assert code == 4
    assert "1 removed" in output


@pytest.mark.parametrize(
    "content",
    ["[1]", "{", '{"editor.fontSize": 12}', '{"format": 99, "effective": {}, "data": ""}'],
)
def test_settings_that_are_not_a_runs(content: str, images: Path, tmp_path: Path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "settings.json").write_text(content)
    refused(["train", str(images), *QUICK.split()], tmp_path, 4, "run", "")
    assert (tmp_path / "run" / "settings.json").read_text() == content


@pytest.mark.parametrize("damage", ["cut", "gone"])
def test_a_damaged_index_is_made_again(damage: str, images: Path, tmp_path: Path):
    words = ["train", str(images), *QUICK.split()]
    assert child.run(words, tmp_path)[0] == 0
    index = tmp_path / "run" / "index.parquet"
    whole = index.read_bytes()
    if damage == "cut":
        index.write_bytes(whole[: len(whole) // 2])
    else:
        index.unlink()
    code, output = child.run([*words, "--epochs", "2"], tmp_path)
    assert code == 0, output
    assert index.read_bytes() == whole


def test_a_damaged_closing_note_means_that_the_closing_pass_is_made_again(
    images: Path, tmp_path: Path
):
    words = ["train", str(images), *QUICK.split()]
    assert child.run(words, tmp_path)[0] == 0
    (tmp_path / "run" / "closing.json").write_text("{")
    code, output = child.run(words, tmp_path)
    assert code == 0, output
    assert "done: 4 groups" in output


def test_a_listener_that_leaves_does_not_end_the_run(images: Path, tmp_path: Path):
    script = f"{sys.executable} -m deepcluster train {images} {QUICK} | head -1"
    subprocess.run(["bash", "-c", script], cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "run" / "closing.json").exists()


def test_a_typo_in_a_flag_of_the_demo(tmp_path: Path):
    refused(["demo", "--sed", "1"], tmp_path, 2, "did you mean --seed?")


def test_names_that_the_terminal_cannot_show(images: Path, tmp_path: Path):
    (images / "kind0" / "caf\N{LATIN SMALL LETTER E WITH ACUTE}.png").write_bytes(b"")
    result = subprocess.run(
        [sys.executable, "-m", "deepcluster", "train", str(images), *QUICK.split()],
        cwd=tmp_path,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    assert "empty file" in result.stdout


def test_a_reader_who_leaves_is_told_nothing():
    reader, writer = os.pipe()
    os.close(reader)
    words = [sys.executable, "-m", "deepcluster", "--help"]
    found = subprocess.run(words, stdout=writer, stderr=subprocess.PIPE, timeout=120, check=False)
    os.close(writer)
    assert (found.returncode, found.stderr) == (141, b"")


def test_debug_shows_where_an_error_came_from(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "nowhere-at-all", "--debug"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("Traceback")
    assert said.endswith("deepcluster: nowhere-at-all: no such file or directory\n")


def test_a_place_that_nobody_may_use_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def denied(_words: list[str]) -> int:
        raise PermissionError(errno.EACCES, "Permission denied", "closed/x.csv")

    monkeypatch.setattr(cli, "_carry_out", denied)
    assert main(["embed"]) == 6
    said = capsys.readouterr().err
    assert said.startswith("deepcluster: no permission to use closed/x.csv; name another place")


@pytest.mark.parametrize(
    ("words", "goes"),
    [
        ("train photos", "continues"),
        ("pack photos store", "continues"),
        ("evaluate run voc-detection", "continues"),
        ("evaluate run linear", "begins anew"),
        ("check photos", "begins anew"),
        ("", "begins anew"),
    ],
)
def test_who_insists_on_stopping_is_told_the_truth(
    words: str, goes: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def insist(_words: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_carry_out", insist)
    assert main(words.split()) == 130
    assert capsys.readouterr().err == (
        f"deepcluster: stopped at once; what was saved is whole, and the same command {goes}\n"
    )
