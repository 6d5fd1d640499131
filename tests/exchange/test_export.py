"""What other programs read of a run, and the card that goes with it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import child
import numpy as np
import pytest
import torch
import torchvision
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file
from skimage import data

import deepcluster
from deepcluster.cli import main
from deepcluster.collection.sight import Preprocessing
from deepcluster.exchange.model_card import model_card
from deepcluster.exchange.torchvision_names import torchvision_names
from deepcluster.exchange.whole_graph import WholeGraph
from deepcluster.images.crops import normalize
from deepcluster.images.kept import Pixels, kept
from deepcluster.networks import build_network, looked_at
from deepcluster.runtime.errors import UsageError
from deepcluster.runtime.run_folder import RunFolder, settings_hash

Trained = Callable[..., Path]


def test_safetensors_hold_weights_preprocessing_and_settings(trained: Trained, tmp_path: Path):
    run, out = trained(), tmp_path / "x.safetensors"
    assert main(["export", str(run), "--to", "safetensors", "--out", str(out)]) == 0
    ours, theirs = load_file(run / "model.safetensors"), load_file(out)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    with safe_open(out, "pt") as file:
        about = file.metadata()
    assert json.loads(about["preprocessing"])["centre_crop"] == 64
    assert json.loads(about["preprocessing"])["resize_short_side"] == 73
    assert json.loads(about["settings.network"])["arch"] == "alexnet"
    assert json.loads(about["settings.clustering"])["k"] == 4
    assert json.loads(about["settings.run"])["epochs"] == 1


def test_a_backbone_loads_into_the_plain_torchvision_network(
    trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture
):
    run = trained("--arch resnet18 --network.front rgb")
    out = tmp_path / "x.safetensors"
    assert main(["export", str(run), "--to", "torchvision", "--out", str(out)]) == 0
    assert "fc.bias, fc.weight" in capsys.readouterr().out
    plain = torchvision.models.resnet18().eval()
    result = plain.load_state_dict(load_file(out), strict=False)
    assert sorted(result.missing_keys) == ["fc.bias", "fc.weight"]
    assert result.unexpected_keys == []
    plain.fc = torch.nn.Identity()
    model = deepcluster.load(run, "cpu")
    images = torch.randn(3, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(plain(images), model.network.trunk(images), rtol=1e-5, atol=1e-5)


def test_vgg16_has_the_places_of_torchvisions():
    generator = torch.Generator().manual_seed(0)
    network = build_network("vgg16", "rgb", 224, generator=generator).eval()
    own = network.trunk.state_dict()
    weights = {theirs: own[ours] for ours, theirs in torchvision_names(network).items()}
    assert len(weights) == len(own)
    with torch.device("meta"):
        plain = torchvision.models.vgg16_bn()
    plain = plain.to_empty(device="cpu").eval()
    result = plain.load_state_dict(weights, strict=False, assign=True)
    assert sorted(result.missing_keys) == ["classifier.6.bias", "classifier.6.weight"]
    assert result.unexpected_keys == []
    plain.classifier = plain.classifier[:4]
    images = torch.randn(1, 3, 224, 224)
    with torch.no_grad():
        torch.testing.assert_close(plain(images), network.trunk(images), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("flags", "said"),
    [("", "sees edges"), ("--network.front rgb", "no alexnet with these layers")],
)
def test_what_torchvision_has_not_is_said(
    flags: str, said: str, trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture
):
    out = tmp_path / "x.safetensors"
    assert main(["export", str(trained(flags)), "--to", "torchvision", "--out", str(out)]) == 2
    assert said in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize(
    "flags", ["", "--preset small-pic --clustering.neighbours 3 --network.views 3"]
)
def test_a_folder_for_the_hub_embeds_and_predicts_without_private_paths(
    flags: str, trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture
):
    run, out = trained(flags), tmp_path / "hub"
    assert main(["export", str(run), "--to", "huggingface", "--out", str(out)]) == 0
    assert "embed and predict take the folder" in capsys.readouterr().out
    card = (out / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: deepcluster\n")
    assert "## What not to use it for" in card
    assert "index.parquet" not in card  # which is not there
    assert ("features of the training images are here" in card) == bool(flags)
    assert json.loads((out / "config.json").read_text())["settings"]["network.arch"] == "alexnet"
    images = json.loads((run / "settings.json").read_text())["images"]
    assert images
    for path in out.iterdir():
        assert images.encode() not in path.read_bytes()
    picture = next(Path(images).rglob("0*.png"))
    ours, theirs = (deepcluster.load(place, "cpu").embed(picture) for place in (run, out))
    assert np.array_equal(ours, theirs)
    for number, place in enumerate((run, out)):
        words = ["predict", str(place), images, "--out", str(tmp_path / f"{number}.csv")]
        assert main([*words, "--device", "cpu"]) == 0
    assert (tmp_path / "0.csv").read_text() == (tmp_path / "1.csv").read_text()
    estimator = deepcluster.DeepCluster.load(out, "cpu")
    saved = child.table(run / "clusters.parquet")
    files = [Path(images) / path for path in saved["path"]]
    assert estimator.predict(files).tolist() == saved["cluster"]
    assert not hasattr(estimator, "labels_")
    assert "<img" not in estimator._repr_html_()
    capsys.readouterr()
    for verb in ("outliers", "duplicates"):
        assert main([verb, str(out)]) == 2
        assert "it was exported, and comes without images" in capsys.readouterr().err
    words = ["train", images, "--preset", "small", "--epochs", "3", "--out", str(out)]
    assert main(words) == 2
    assert "no training can go on there" in capsys.readouterr().err
    assert main(["runs", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[-1] == "exported"


PICTURES = [(400, 600), (700, 500), (200, 71), (64, 64), (40, 300), (9, 11), (1000, 300)]


@pytest.mark.parametrize(("height", "width"), PICTURES)
@pytest.mark.parametrize(
    ("colour", "pixels"),
    [
        ("grey", Pixels()),
        ("rgb", Pixels(short_side=100)),
        ("rgb", Pixels(shape="square")),
        ("rgb", Pixels(keep="files")),
    ],
    ids=["grey", "rgb", "square", "files"],
)
def test_the_graph_cuts_as_embed_does(height: int, width: int, colour: str, pixels: Pixels):
    """Matrix products against what packs and cuts: a level of grey here and there."""
    generator = torch.Generator().manual_seed(0)
    front = "sobel" if colour == "grey" else "rgb"
    network = build_network("alexnet", front, 64, width=8, generator=generator).eval()
    graph = WholeGraph(network, 64, colour, pixels)
    picture = np.array(Image.fromarray(data.astronaut()).resize((width, height)))
    seen = []
    hook = network.trunk.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    with torch.no_grad():
        graph(torch.from_numpy(picture)[None])
    hook.remove()
    cut = Preprocessing(64, colour, pixels)
    small = kept(picture, *cut.manner) if pixels.keep == "store" else picture
    expected = normalize(cut.cut(small)[None])
    assert seen[0].shape == expected.shape
    levels = (seen[0] - expected).abs() * 0.224 * 255
    assert float(levels.max()) < 1.05
    assert float((levels > 0.5).float().mean()) < 0.02


def test_onnx_computes_what_embed_computes(
    trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture
):
    onnxruntime = pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")
    run, out = trained(), tmp_path / "x.onnx"
    assert main(["export", str(run), "--to", "onnx", "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "largest difference from torch" in said
    assert "from embed on 8 pictures" in said
    session = onnxruntime.InferenceSession(str(out), providers=["CPUExecutionProvider"])
    model = deepcluster.load(run, "cpu")
    picture = Image.fromarray(data.chelsea())
    for size in ((200, 150), (90, 300), (300, 640), (900, 700)):
        pixels = np.array(picture.resize(size))
        (found,) = session.run(None, {"images": np.stack([pixels] * 3)})
        expected = model.embed(pixels[None])
        assert found.shape == (3, 16)
        assert np.abs(found - expected).max() < 0.005 * np.abs(expected).max()
    about = session.get_modelmeta().custom_metadata_map
    assert json.loads(about["settings.network"])["input_size"] == 64


def test_a_graph_of_another_layer_gives_what_the_run_groups():
    generator = torch.Generator().manual_seed(0)
    network = build_network("alexnet", "sobel", 64, width=8, generator=generator).eval()
    graph = WholeGraph(network, 64, "grey", Pixels(), "conv4", views=6)
    images = torch.randn(2, 1, 64, 64)
    with torch.no_grad():
        expected = looked_at(network, "conv4", 6)(images)
        torch.testing.assert_close(graph.feature(images), expected)
        assert graph(torch.zeros(1, 90, 80, 3, dtype=torch.uint8)).shape == (1, expected.shape[1])
    with pytest.raises(UsageError, match="the run groups fc6"):
        WholeGraph(network, 64, "grey", Pixels(), "fc6")


def test_a_missing_extra_is_named_with_the_line_to_type(
    trained: Trained,
    tmp_path: Path,
    capsys: pytest.CaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("deepcluster.exchange.export.find_spec", lambda name: None)
    assert main(["export", str(trained()), "--to", "onnx", "--out", str(tmp_path / "x")]) == 2
    assert "pip install 'deepcluster[onnx]'" in capsys.readouterr().err


def test_bad_input(
    trained: Trained,
    tmp_path: Path,
    capsys: pytest.CaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.chdir(tmp_path)
    run = str(trained())
    Path("mine.onnx").write_text("mine")
    for kind in ("safetensors", "onnx", "huggingface"):  # a place below a file cannot be written
        assert main(["export", run, "--to", kind, "--out", "mine.onnx/x"]) == 6
        error = capsys.readouterr().err
        assert error.startswith("deepcluster: cannot write mine.onnx/x")
        assert error.endswith("; write to another place\n")
    for words, code, said in (
        (["export", run, "--to", "safetensors", "--out", "mine.onnx"], 2, "mine.onnx exists"),
        (["export", run, "--to", "caffe"], 2, "caffe"),
        (["export", run], 2, "--to"),
        (["export", "gone", "--to", "onnx"], 2, "gone: no such run"),
    ):
        assert main(words) == code
        error = capsys.readouterr().err
        assert said in error
        assert error.count("\n") == 1
    assert Path("mine.onnx").read_text() == "mine"
    assert main(["export", run, "--to", "safetensors"]) == 0
    assert Path("run.safetensors").exists()


def test_every_run_has_a_model_card(trained: Trained):
    run = trained()
    card = (run / "MODEL_CARD.md").read_text()
    settings = json.loads((run / "settings.json").read_text())
    closing = json.loads((run / "closing.json").read_text())
    for said in (
        "24 images",
        settings["data"],
        "1 files left out; 1 empty file",
        "| `clustering.k` | 4 |",
        f"| clustering loss | {closing['clustering_loss']:.4f} |",
        f"| NMI with the folders | {closing['nmi_labels']:.3f} |",
        f"deepcluster {deepcluster.__version__}, torch {torch.__version__}",
        "## What not to use it for",
    ):
        assert said in card
    assert settings["images"] not in card
    assert f"| `epochs` | {closing['epochs']} |" in card


def test_a_card_tells_how_many_epochs_a_given_time_allowed(trained: Trained, tmp_path: Path):
    run = Path(shutil.copytree(trained(), tmp_path / "copy"))
    settings, closing = (
        json.loads((run / name).read_text()) for name in ("settings.json", "closing.json")
    )
    settings["effective"] |= {"epochs": 500, "minutes": 0.5}
    (run / "settings.json").write_text(json.dumps(settings))
    card = model_card(RunFolder(run), closing)
    made = f"{closing['epochs']} made in the 0.5 minutes given"
    assert f"| `epochs` | 500 at the most; {made} |" in card


def test_labels_and_earlier_weights_are_owned_up_to_and_where_they_lay_is_not_told(
    trained: Trained, tmp_path: Path
):
    """The run's own record, as if it had begun with a file and followed the folders."""
    run = Path(shutil.copytree(trained(), tmp_path / "copy"))
    settings, closing = (
        json.loads((run / name).read_text()) for name in ("settings.json", "closing.json")
    )
    assert "without labels" in model_card(RunFolder(run), closing)
    settings["effective"] |= {"labels": "folders", "network.init": "/home/somebody/began.pth"}
    closing["settings_sha256"] = settings_hash(settings)
    for name, content in (("settings.json", settings), ("closing.json", closing)):
        (run / name).write_text(json.dumps(content))
    card = model_card(RunFolder(run), closing)
    assert "without labels" not in card
    assert "never saw" not in card
    assert "the weights of `began.pth`" in card
    assert "(8 dimensions)" in card
    assert "warned of `dimensions-shrunk`" in card
    for kind in ("safetensors", "huggingface"):
        assert main(["export", str(run), "--to", kind, "--out", str(tmp_path / kind)]) == 0
    told = [tmp_path / "safetensors", *(tmp_path / "huggingface").iterdir()]
    assert [path.name for path in told if b"somebody" in path.read_bytes()] == []
    deepcluster.load(tmp_path / "huggingface")


def test_a_damaged_run_is_not_exported(
    trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture
):
    copy = Path(shutil.copytree(trained(), tmp_path / "copy"))
    with (copy / "model.safetensors").open("r+b") as file:
        file.seek(-3, 2)
        file.write(b"\7")
    assert main(["export", str(copy), "--to", "huggingface", "--out", str(tmp_path / "x")]) == 4
    assert "model.safetensors is damaged" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()
