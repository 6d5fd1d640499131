"""What the verb evaluate refuses before it reads an image, in one sentence; and its help."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import child
import pytest

from deepcluster.evaluate_flags import PROTOCOLS, Transferred, name_of
from deepcluster.evaluation.bench import Bench
from deepcluster.evaluation.evaluated import untrained
from deepcluster.evaluation.linear_probe import LinearProbe, chosen_layers
from deepcluster.evaluation.subject import Shape
from deepcluster.runtime.display import Display


@pytest.fixture(scope="module")
def without_images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data/train, data/val and voc, in which reading finds nothing (exit code 3)."""
    folder = tmp_path_factory.mktemp("place")
    for part in ("train", "val"):
        (folder / "data" / part / "kind0").mkdir(parents=True)
    for year in (2007, 2012):
        (folder / f"voc/VOC{year}/JPEGImages").mkdir(parents=True)
    return folder


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("mlp --hidden 0", "--hidden 0: use at least 1"),
        ("mlp --dropout 1.5", "--dropout 1.5: use 0 to below 1"),
        ("mlp --dropout nan", "--dropout nan: use 0 to below 1"),
        ("linear --width -3", "--width -3: use at least 1"),
        ("linear --width 0", "--width 0: use at least 1"),
        ("voc-classification --width 0", "--width 0: use at least 1"),
        ("linear --input-size 0", "--input-size 0: use at least 64"),
        ("linear --steps inf", "--steps inf: use numbers above 0"),
        ("linear --steps 1 nan", "--steps 1 nan: use numbers above 0"),
        ("linear --steps 0", "--steps 0: use numbers above 0"),
        ("linear --steps", "--steps: use numbers above 0"),
        ("linear --decays 1e-6 inf", "--decays 1e-06 inf: use numbers from 0 on"),
        ("knn --neighbours 0", "--neighbours 0: use numbers from 1 on"),
        ("knn --neighbours 20 -1", "--neighbours 20 -1: use numbers from 1 on"),
        ("knn --temperature 0", "--temperature 0: use a number above 0"),
        ("knn --temperature inf", "--temperature inf: use a number above 0"),
        ("voc-detection --passes inf", "--passes inf: use a number above 0"),
        ("voc-detection --steps inf", "--steps inf: use numbers above 0"),
        ("voc-detection --decay inf", "--decay inf: use 0 or above"),
        ("voc-classification --steps 0.01 nan", "--steps 0.01 nan: use numbers above 0"),
        ("voc-classification --decays inf", "--decays inf: use 0 or above"),
        ("voc-segmentation --steps 0.1 inf", "--steps 0.1 inf: use numbers above 0"),
        ("voc-segmentation --decay inf", "--decay inf: use 0 or above"),
        ("knn --layer conv3 --dimensions 0", "--dimensions 0: use at least 1"),
    ],
)
def test_impossible_numbers(without_images: Path, words: str, sentence: str):
    small = "" if "--width" in words or "--input-size" in words else "--input-size 64 --width 8"
    flags = f"--data data --device cpu {small}"
    code, output = child.run(["evaluate", "random", *f"{words} {flags}".split()], without_images)
    assert (code, output.strip()) == (2, f"deepcluster: {sentence}")


@pytest.mark.parametrize(
    ("words", "inside"),
    [
        ("random knn --data data --out data/train", "data/train"),
        ("random linear --data data --out data/val/results", "data/val"),
        ("random mlp --train data/train --test data/val --out link", "data/val"),
        ("random agreement --data data/train --out data/train/kind0", "data/train"),
        ("random agreement --data data --out data/train", "data/train"),
        ("random retrieval --data data/val --out data/../data/val", "data/val"),
        ("random retrieval --images data/val --out data/val/results", "data/val"),
        (
            "random voc-classification --data voc --out voc/VOC2007/JPEGImages/results",
            "voc/VOC2007/JPEGImages",
        ),
        (
            "random voc-detection --data voc/VOC2007 --stores voc/VOC2007/JPEGImages",
            "voc/VOC2007/JPEGImages",
        ),
        (
            "random voc-segmentation --data voc --out voc/VOC2012/JPEGImages",
            "voc/VOC2012/JPEGImages",
        ),
        ("random knn --data data --stores data/train/stores", "data/train"),
        ("random agreement --data data --stores link", "data/val"),
        ("random linear --train data/train --test data/val --stores data/val", "data/val"),
    ],
)
def test_no_result_is_written_among_images(without_images: Path, words: str, inside: str):
    link = without_images / "link"
    if not link.is_symlink():
        link.symlink_to("data/val/kind0")
    before = sorted(without_images.rglob("*"))
    code, output = child.run(["evaluate", *words.split()], without_images)
    flag, place = words.split()[-2:]
    assert (code, output.strip()) == (
        2,
        f"deepcluster: {flag} {place} lies in {inside}, among the images; choose another {flag}, "
        "nothing was written",
    )
    assert {*without_images.rglob("*")} - {*before} <= {without_images / "output.txt"}


@pytest.mark.parametrize("protocol", ["linear", "mlp", "knn", "voc-classification", "retrieval"])
@pytest.mark.parametrize(
    ("out", "what"),
    [
        ("letter", "letter, which is a file"),
        ("letter/new", "letter, which is a file"),
        ("gone", "gone, which is a link to nothing"),
    ],
)
def test_a_place_that_cannot_be_written(without_images: Path, protocol: str, out: str, what: str):
    (without_images / "letter").write_text("Dear mother")
    (without_images / "letter").chmod(0o777)  # root is refused by no bits either
    if not (without_images / "gone").is_symlink():
        (without_images / "gone").symlink_to("nowhere")
    before = {*without_images.rglob("*")}
    words = f"evaluate random {protocol} --data data --device cpu --out {out}"
    code, output = child.run(words.split(), without_images)
    said = f"cannot write into {what}; choose another --out"
    assert (code, output.strip()) == (2, f"deepcluster: {said}")
    assert {*without_images.rglob("*")} - before <= {without_images / "output.txt"}


def test_parts_that_cannot_be_kept(without_images: Path):
    kept = without_images / "kept"
    kept.mkdir()
    (kept / "stages").write_text("")
    words = "evaluate random voc-detection --data data --device cpu --out kept"
    code, output = child.run(words.split(), without_images)
    said = "cannot write into kept/stages, which is a file; choose another --out"
    assert (code, output.strip()) == (2, f"deepcluster: {said}")


@pytest.mark.parametrize(("arch", "count"), [("googlenet", 13), ("shufflenet_v2_x0_5", 6)])
def test_all_layers_of_a_torchvision_network_are_probed(arch: str, count: int):
    network = untrained(Shape(arch=arch, input_size=64), seed=0).network
    assert len(chosen_layers(network, ())) == count
    assert chosen_layers(network, ()) == list(network.layers)


@pytest.mark.parametrize(("arch", "count"), [("alexnet", 5), ("vgg16", 13)])
def test_the_convolutions_of_a_plain_network_are_probed(arch: str, count: int):
    network = untrained(Shape(arch=arch, input_size=64, width=8), seed=0).network
    assert chosen_layers(network, ()) == [f"conv{number + 1}" for number in range(count)]


@pytest.mark.parametrize(
    ("steps", "said"), [((1.0,), "1 layer, 1 candidate\n"), ((1.0, 3.0), "1 layer, 2 candidates\n")]
)
def test_one_candidate_is_one(steps, said, capsys, monkeypatch):
    monkeypatch.setattr("deepcluster.evaluation.linear_probe.probed", lambda *given: None)
    network = untrained(Shape(input_size=64, width=8), seed=0).network
    probe = LinearProbe(layers=("conv1",), steps=steps, decays=(0.0,))
    probe(network, None, None, Bench(display=Display()))  # type: ignore[arg-type]
    assert capsys.readouterr().out == said


def test_the_help_names_all_protocols_and_supervised_runs_fits_a_screen_and_needs_no_torch():
    code = (
        "import sys; from deepcluster.cli import main; main(['evaluate', '--help']); "
        "sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    shown = done.stdout.rstrip()
    assert all(f"\n  {name} " in shown for name in PROTOCOLS)
    assert all(name in shown for name in ("supervised,", "supervised-rgb", "supervised-sobel"))
    assert "train --labels folders" in shown
    assert len(shown.splitlines()) <= 24
    assert max(map(len, shown.splitlines())) <= 100


def test_settings_have_their_own_name_however_the_help_shows_them():
    transferred = [kind() for kind in PROTOCOLS.values() if issubclass(kind, Transferred)]
    names = [name_of(kind.settings) for kind in transferred]
    assert names == ["VOCClassification", "VOCDetection", "VOCSegmentation", "Retrieval"]


def test_the_settings_of_a_protocol_are_shown_whatever_the_run(tmp_path: Path):
    code, output = child.run(["evaluate", "NAME", "linear", "--help"], tmp_path)
    assert code == 0, output
    assert "--held-out" in output


@pytest.mark.parametrize("protocol", list(PROTOCOLS))
def test_the_help_says_plainly_what_a_flag_takes(tmp_path: Path, protocol: str):
    code, output = child.run(["evaluate", "NAME", protocol, "--help"], tmp_path)
    assert code == 0, output
    assert "None" not in output
    assert "(default: )" not in output
    sentences = [line[1:-1].strip() for line in output.splitlines() if line[1:].startswith("   ")]
    assert sentences
    assert not [sentence for sentence in sentences if "  " in sentence]
    of_random = ("--like", "--arch", "--input-size", "--width")
    assert [flag for flag in of_random if f" {flag} " in output] == (
        [] if protocol == "agreement" else [*of_random]
    )
