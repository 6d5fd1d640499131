"""The authors' checkpoints come in, and nothing in them is executed."""

from __future__ import annotations

import json
import os
import pickle
import pickletools
import shutil
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import python2
import torch
from PIL import Image
from torch import nn

import deepcluster
from deepcluster.cli import main
from deepcluster.runtime.errors import UsageError

ALEXNET = [(96, 11, 4, 2), "M", (256, 5, 1, 2), "M", (384, 3, 1, 1), (384, 3, 1, 1)]
ALEXNET += [(256, 3, 1, 1), "M"]
VGG = [64, 64, "M", 128, 128, "M", 256, 256, 256, "M", 512, 512, 512, "M", 512, 512, 512, "M"]


class AuthorsNetwork(nn.Module):
    """The layout of the authors' networks, written from the names in their checkpoints."""

    def __init__(self, arch: str, sobel: bool, width: int = 24) -> None:
        super().__init__()
        channels = 2 if sobel else 3
        parts: list[nn.Module] = []
        for entry in ALEXNET if arch == "alexnet" else VGG:
            if entry == "M":
                parts.append(nn.MaxPool2d(*((3, 2) if arch == "alexnet" else (2, 2))))
                continue
            filters, *rest = entry if isinstance(entry, tuple) else (entry, 3, 1, 1)
            parts += [nn.Conv2d(channels, filters, *rest), nn.BatchNorm2d(filters), nn.ReLU()]
            channels = filters
        self.features = nn.DataParallel(nn.Sequential(*parts))
        if arch == "alexnet":
            self.classifier = nn.Sequential(
                nn.Dropout(),
                nn.Linear(256 * 6 * 6, width),
                nn.ReLU(),
                nn.Dropout(),
                nn.Linear(width, width),
            )
        else:
            self.classifier = nn.Sequential(
                nn.Linear(512 * 7 * 7, width), nn.ReLU(), nn.Dropout(), nn.Linear(width, width)
            )
        self.top_layer = nn.Linear(width, 30)
        self.sobel = None
        if sobel:
            grey, edges = nn.Conv2d(3, 1, 1), nn.Conv2d(1, 2, 3, padding=1)
            with torch.no_grad():
                grey.weight.fill_(1 / 3)
                grey.bias.zero_()
                across = torch.tensor([[1.0, 0.0, -1.0], [2.0, 0.0, -2.0], [1.0, 0.0, -1.0]])
                edges.weight.copy_(torch.stack([across, across.T])[:, None])
                edges.bias.zero_()
            self.sobel = nn.Sequential(grey, edges)

    def fc7(self, images: torch.Tensor) -> torch.Tensor:
        maps = images if self.sobel is None else self.sobel(images)
        return self.classifier(self.features.module(maps).flatten(1))


def made(arch: str, sobel: bool) -> AuthorsNetwork:
    torch.manual_seed(3)
    network = AuthorsNetwork(arch, sobel).eval()
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):  # as if it had been trained
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 2)
            module.weight.data.uniform_(0.5, 1.5)
            module.bias.data.normal_(0, 0.1)
    return network


def content(network: AuthorsNetwork, arch: str) -> dict:
    state = OrderedDict(
        (name, value)
        for name, value in network.state_dict().items()
        if not name.endswith("num_batches_tracked")  # torch 0.3 had none
    )
    group = {"lr": 0.05, "momentum": 0.9, "dampening": 0, "nesterov": False, "params": [2**40 + 7]}
    momentum = {2**40 + 7: {"momentum_buffer": torch.ones(3)}}
    optimizer = {"state": momentum, "param_groups": [group]}
    return {"epoch": 480, "arch": arch, "state_dict": state, "optimizer": optimizer}


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    pixels = np.random.default_rng(1).integers(0, 255, (300, 260, 3), dtype=np.uint8)
    Image.fromarray(pixels).resize((260, 300)).save(tmp_path / "picture.png")
    return tmp_path / "picture.png"


def authors_pixels(picture: Path) -> torch.Tensor:
    """Resize to 256, centre crop of 224, ImageNet's mean and deviation, as their code has it."""
    from torchvision.transforms import v2

    transform = v2.Compose([v2.Resize(256), v2.CenterCrop(224), v2.PILToTensor()])
    pixels = transform(Image.open(picture).convert("RGB")).float() / 255
    mean = torch.tensor([0.485, 0.456, 0.406])[:, None, None]
    deviation = torch.tensor([0.229, 0.224, 0.225])[:, None, None]
    return ((pixels - mean) / deviation)[None]


@pytest.mark.parametrize(
    ("arch", "sobel"), [("alexnet", True), ("alexnet", False), ("vgg16", True)]
)
def test_the_same_image_gives_the_same_fc7(
    arch: str, sobel: bool, picture: Path, tmp_path: Path, capsys: pytest.CaptureFixture
):
    network = made(arch, sobel)
    checkpoint = tmp_path / "checkpoint.pth.tar"
    python2.save(content(network, arch), checkpoint)
    assert main(["import", str(checkpoint), "--out", str(tmp_path / "run")]) == 0
    assert "left out: top_layer, optimizer" in capsys.readouterr().out
    model = deepcluster.load(tmp_path / "run", device="cpu")
    settings = json.loads((tmp_path / "run/settings.json").read_text())["effective"]
    assert settings["network.front"] == ("sobel" if sobel else "rgb")
    assert settings["clustering.k"] == 30
    pixels = authors_pixels(picture)
    with torch.no_grad():
        expected = network.fc7(pixels)
        torch.testing.assert_close(model.network.trunk(pixels), expected, rtol=1e-5, atol=1e-5)
    assert expected.abs().max() > 0.05
    # From the file on, cutting included: the crop's bytes may differ by one in rounding.
    found = torch.from_numpy(model.embed(picture))
    assert (found - expected).norm() / expected.norm() < 0.01


def test_the_file_is_of_the_kind_that_python_2_wrote(tmp_path: Path):
    python2.save(content(made("alexnet", True), "alexnet"), tmp_path / "x.pth.tar")
    data = (tmp_path / "x.pth.tar").read_bytes()
    assert b"features.module.0.weight" in data
    start = data.index(pickle.PROTO + b"\2", data.index(b"type_sizes"))
    kinds = {code.name for code, _, _ in pickletools.genops(data[start:])}
    assert "SHORT_BINSTRING" in kinds
    assert not kinds & {"BINUNICODE", "SHORT_BINUNICODE"}


def test_an_imported_run_embeds_and_says_that_it_has_no_groups(
    picture: Path, tmp_path: Path, capsys: pytest.CaptureFixture
):
    checkpoint, run = tmp_path / "c.pth.tar", str(tmp_path / "run")
    python2.save(content(made("alexnet", True), "alexnet"), checkpoint)
    assert main(["import", str(checkpoint), "--out", run]) == 0
    out = tmp_path / "f.npy"
    words = ["embed", run, str(picture), "--out", str(out), "--layer", "conv5", "--device", "cpu"]
    assert main(words) == 0
    assert np.load(out).shape == (1, 256)
    capsys.readouterr()
    assert main(["predict", run, str(picture), "--out", str(tmp_path / "p.csv")]) == 2
    assert "has no groups" in capsys.readouterr().err
    for words in (
        ["outliers", run],
        ["duplicates", run],
        ["similar", run, str(picture)],
        ["evaluate", run, "agreement"],
        ["evaluate", run, "agreement", "--data", str(tmp_path), "--device", "cpu"],
        ["show", run, "clusters"],
        ["report", run],
    ):
        assert main(words) == 2, words
        error = capsys.readouterr().err
        assert "imported" in error
        assert error.count("\n") == 1
    with pytest.raises(UsageError, match="has no groups: it was imported"):
        deepcluster.DeepCluster.load(run)
    settings = json.loads((tmp_path / "run/settings.json").read_text())["effective"]
    assert settings["network.front"] == "sobel"
    assert not [name for name in settings if name.startswith(("training", "epochs", "seed"))]
    assert main(["import", str(checkpoint), "--out", run]) == 2
    assert "is a run already" in capsys.readouterr().err


def test_an_imported_run_can_be_evaluated(
    textures: Callable[[int], Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.chdir(tmp_path)  # where evaluate keeps its stores
    run = str(tmp_path / "run")
    python2.save(content(made("alexnet", True), "alexnet"), tmp_path / "c.pth.tar")
    assert main(["import", str(tmp_path / "c.pth.tar"), "--out", run]) == 0
    (tmp_path / "data").mkdir()
    for part in ("train", "val"):
        textures(24).rename(tmp_path / "data" / part)
    words = ["evaluate", run, "knn", "--data", str(tmp_path / "data"), "--device", "cpu"]
    assert main(words) == 0
    assert "nearest of 24 images" in capsys.readouterr().out
    card = (tmp_path / "run/MODEL_CARD.md").read_text()
    assert "imported from c.pth.tar" in card
    assert "clustering.k" not in card  # how it was trained is not known here
    shutil.copytree(run, tmp_path / "other")
    capsys.readouterr()
    assert main(["diff", run, str(tmp_path / "other")]) == 0
    told = capsys.readouterr().out
    assert "was trained is not known" in told
    assert "training." not in told
    assert "has no list of images" in told
    shutil.rmtree(tmp_path / "other")
    assert main(["runs", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[-2:] == ["480", "imported"]


class Canary:
    """What executes when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple:
        return os.system, (f"touch {self.mark}",)


@pytest.mark.parametrize("layout", ["plain", "zip", "legacy", "python 2"])
def test_a_pickle_that_wants_to_execute_something_is_refused(
    layout: str, tmp_path: Path, capsys: pytest.CaptureFixture
):
    mark, path = tmp_path / "executed", tmp_path / "evil.pth.tar"
    evil = {"arch": "alexnet", "state_dict": OrderedDict(), "x": Canary(mark)}
    if layout == "plain":
        path.write_bytes(pickle.dumps(evil))
    elif layout == "python 2":
        python2.save(evil, path)
    else:
        torch.save(evil, path, _use_new_zipfile_serialization=layout == "zip")
    assert main(["import", str(path), "--out", str(tmp_path / "run")]) == 3
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert not mark.exists()
    assert not (tmp_path / "run/model.safetensors").exists()
    assert "wants to run posix.system" in error
    assert "nothing was executed" in error
    assert str(path) in error
    # The canary is alive: an ordinary unpickler executes it.
    if layout == "plain":
        pickle.loads(path.read_bytes())
        assert mark.exists()


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda c: c.update(arch="resnet50"), "called 'resnet50'"),
        (lambda c: c.pop("state_dict"), "no state_dict"),
        (lambda c: c["state_dict"].pop("features.module.4.weight"), "missing features.4.weight"),
        (lambda c: c["state_dict"].update(strange=torch.ones(1)), "not known strange"),
        (lambda c: c["state_dict"]["sobel.1.weight"].neg_(), "sobel.1.weight is not the paper's"),
        (
            lambda c: c["state_dict"].update(
                {"features.module.4.weight": torch.ones(256, 9, 5, 5)}
            ),
            "size mismatch",
        ),
    ],
)
def test_other_checkpoints_are_told_apart(
    spoil, said: str, tmp_path: Path, capsys: pytest.CaptureFixture
):
    spoiled = content(made("alexnet", True), "alexnet")
    spoil(spoiled)
    python2.save(spoiled, tmp_path / "x.pth.tar")
    assert main(["import", str(tmp_path / "x.pth.tar"), "--out", str(tmp_path / "run")]) == 3
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_what_is_no_checkpoint_at_all(tmp_path: Path, capsys: pytest.CaptureFixture):
    (tmp_path / "x").write_bytes(b"hello")
    (tmp_path / "empty").touch()
    half = tmp_path / "half"
    python2.save(content(made("alexnet", True), "alexnet"), half)
    half.write_bytes(half.read_bytes()[: half.stat().st_size // 2])
    for name, code in (("x", 3), ("empty", 3), ("half", 3), ("gone", 2)):
        assert main(["import", str(tmp_path / name), "--out", str(tmp_path / "run")]) == code
        assert capsys.readouterr().err.count("\n") == 1
