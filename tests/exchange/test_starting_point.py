"""A run may begin with weights that are there already, and only with ones that fit."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import child
import pytest
import torch
import torchvision
from safetensors.torch import load_file, save_file

from deepcluster.exchange.starting_point import begin_with
from deepcluster.networks import Network, build_network
from deepcluster.runtime.errors import DataError, UsageError


def network(arch: str = "alexnet", front: str = "sobel", width: int = 16, seed: int = 0) -> Network:
    generator = torch.Generator().manual_seed(seed)
    return build_network(arch, front, 64, width=width, generator=generator)


def equal(one: dict, other: dict) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


def test_a_run_begins_another(trained: Callable[..., Path]):
    ours = network(seed=9)
    assert begin_with(ours, trained()) == []
    assert equal(ours.trunk.state_dict(), load_file(trained() / "model.safetensors"))


def test_a_safetensors_file_under_our_names(tmp_path: Path):
    theirs, ours = network(seed=1), network(seed=2)
    save_file(theirs.trunk.state_dict(), tmp_path / "x.safetensors")
    assert begin_with(ours, tmp_path / "x.safetensors") == []
    assert equal(ours.trunk.state_dict(), theirs.trunk.state_dict())


@pytest.mark.parametrize("suffix", ["pth", "safetensors"])
def test_a_weight_file_of_torchvision(suffix: str, tmp_path: Path):
    torch.manual_seed(5)
    plain = torchvision.models.resnet18().eval()
    path = tmp_path / f"resnet18.{suffix}"
    if suffix == "pth":
        torch.save(plain.state_dict(), path)
    else:
        save_file(plain.state_dict(), path)
    ours = network("resnet18", "rgb").eval()
    assert begin_with(ours, path) == ["fc.bias", "fc.weight"]
    plain.fc = torch.nn.Identity()
    images = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(ours.trunk(images), plain(images), rtol=1e-5, atol=1e-5)


def test_what_does_not_fit_is_listed(tmp_path: Path):
    path = tmp_path / "x.safetensors"
    save_file(network(width=24).trunk.state_dict(), path)
    with pytest.raises(DataError, match=r"of another shape convnet\.fc6.*24 x 256 there, 16 x"):
        begin_with(network(), path)
    state = network().trunk.state_dict()
    del state["convnet.fc7.1.bias"]
    save_file({**state, "strange": torch.ones(1)}, path)
    with pytest.raises(DataError, match=r"missing convnet\.fc7\.1\.bias; left over strange"):
        begin_with(network(), path)
    save_file(torchvision.models.resnet18().state_dict(), path)
    with pytest.raises(DataError, match=r"conv1\.weight \(64 x 3 x 7 x 7 there, 64 x 2"):
        begin_with(network("resnet18", "sobel"), path)
    with pytest.raises(DataError, match="and 28 more; left over"):
        begin_with(network(), path)
    with pytest.raises(UsageError, match="no such file or run"):
        begin_with(network(), tmp_path / "gone.pth")


def test_a_weight_file_that_wants_to_execute_something_is_refused(tmp_path: Path):
    class Canary:
        def __reduce__(self) -> tuple:
            return os.system, (f"touch {tmp_path / 'executed'}",)

    torch.save({"conv1.weight": Canary()}, tmp_path / "x.pth")
    with pytest.raises(DataError, match=r"posix\.system"):
        begin_with(network(), tmp_path / "x.pth")
    (tmp_path / "y.pth").write_bytes(pickle.dumps(Canary()))
    with pytest.raises(DataError):
        begin_with(network(), tmp_path / "y.pth")
    assert not (tmp_path / "executed").exists()


def test_train_begins_with_the_weights(
    trained: Callable[..., Path], textures: Callable[[int], Path], tmp_path: Path
):
    images = textures(16)
    words = "--preset small --network.front sobel --k 3 --epochs 1 --network.width 16 --device cpu"
    words = [*words.split(), "--out", "run"]
    # A step of nearly nothing leaves the weights as they were.
    still = ["--training.step", "1e-12", "--training.weight-decay", "0"]
    code, output = child.run(
        ["train", str(images), *words, *still, "--init", str(trained())], tmp_path
    )
    assert code == 0, output
    assert f"beginning with {trained()}" in output
    before = load_file(trained() / "model.safetensors")
    after = load_file(tmp_path / "run/model.safetensors")
    for name in (name for name in before if name.endswith(("0.weight", "1.weight"))):
        torch.testing.assert_close(after[name], before[name], rtol=0, atol=1e-6)
    # Going on needs the file no more, but the same word.
    code, output = child.run(["train", str(images), *words, *still], tmp_path)
    assert code == 4
    assert "network.init" in output


def test_given_weights_take_the_place_of_patches_but_not_where_both_are_asked_for(
    trained: Callable[..., Path], textures: Callable[[int], Path], tmp_path: Path
):
    words = "--preset small --network.front sobel --k 3 --epochs 1 --network.width 16 --device cpu"
    words = [*words.split(), "--out", "run"]
    words = ["train", str(textures(16)), *words, "--init", str(trained())]
    code, output = child.run([*words, "--network.patches", "1"], tmp_path)
    assert code == 2
    assert "filters begin in one way; leave one of the two out" in output
    assert not (tmp_path / "run").exists()
    assert child.run(words, tmp_path)[0] == 0
    effective = json.loads((tmp_path / "run/settings.json").read_text())["effective"]
    assert effective["network.patches"] == 0


def test_train_refuses_what_does_not_fit_before_it_reads_images(
    trained: Callable[..., Path], textures: Callable[[int], Path], tmp_path: Path
):
    words = "--preset small --k 3 --epochs 1 --network.width 24 --device cpu --out run".split()
    code, output = child.run(
        ["train", str(textures(16)), *words, "--init", str(trained())], tmp_path
    )
    assert code == 3
    assert "does not fit this network: of another shape" in output
    assert "weights of 2 channels want --network.front sobel" in output
    assert not (tmp_path / "run").exists()
