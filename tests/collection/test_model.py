"""A trained network is one object that embeds any images."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import child
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

import deepcluster
from deepcluster.cli import main
from deepcluster.collection import groups
from deepcluster.collection.model import Model
from deepcluster.runtime.errors import DataError, ResumeError, UsageError
from deepcluster.runtime.run_folder import RunFolder


@pytest.fixture(scope="module")
def model(run: Path) -> Model:
    return deepcluster.load(run, device="cpu")


@pytest.fixture
def copy(run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run, tmp_path / "copy"))


def files(images: Path) -> list[Path]:
    return sorted(images.rglob("*.png"))


def test_features_are_those_that_the_run_grouped(model: Model, images: Path, run: Path):
    found = model.embed(images, whiten=True, normalize=True)
    saved = np.load(run / "features.npy").astype(np.float32)
    assert np.abs(found - saved).max() < 1e-3  # float16


def test_an_image_has_one_vector_whatever_its_batch(model: Model, images: Path):
    for how in ({"normalize": True}, {"whiten": True}, {"layer": "conv3"}):
        whole = model.embed(images, **how)
        assert np.ptp(whole, axis=0).max() > 0.05  # images differ far more than batches may
        for batch in (1, 3, 7, 31):
            assert np.abs(model.embed(images, batch=batch, **how) - whole).max() < 1e-5
        alone = model.embed(files(images)[5], **how)
        assert np.abs(alone - whole[5]).max() < 1e-5


def test_vectors_are_computed_as_by_hand(model: Model, images: Path, run: Path):
    """Evaluation mode, centre crop of what the store keeps, ImageNet's mean and deviation."""
    from deepcluster.beginning import new_network
    from deepcluster.images.crops import look, normalize
    from deepcluster.images.kept import Pixels, kept
    from deepcluster.presets import small
    from deepcluster.settings import Architecture, Run

    network = new_network(Run(network=Architecture(input_size=64, width=32)))
    network.trunk.load_state_dict(load_file(run / "model.safetensors"))
    network.to(memory_format=torch.channels_last)  # rounds as the other does
    with Image.open(files(images)[7]) as picture:
        grey = kept(np.asarray(picture.convert("RGB")), "grey", Pixels())[..., 0]
    pixels = look(Image.fromarray(grey), small().network.input_size)
    with torch.no_grad():
        expected = network.eval().trunk(normalize(pixels[None]))[0]
    found = model.embed([files(images)[7]])[0]
    torch.testing.assert_close(torch.from_numpy(found), expected, rtol=1e-5, atol=1e-8)


def test_any_way_to_hand_over_images_is_the_same(model: Model, images: Path, tmp_path: Path):
    some = files(images)[:6]
    expected = model.embed(some)
    pixels = np.stack([np.asarray(Image.open(path).convert("RGB")) for path in some])
    channels_first = torch.from_numpy(pixels).permute(0, 3, 1, 2)
    (tmp_path / "list.txt").write_text("\n".join(map(str, some)))
    for given in (
        pixels,
        list(pixels),
        [Image.fromarray(one) for one in pixels],
        [str(path) for path in some],
        np.array([str(path) for path in some]),
        np.array(some, dtype=object),  # as a column of a data frame has them
        tmp_path / "list.txt",
        str(tmp_path / "list.txt"),
        torch.utils.data.TensorDataset(channels_first, torch.arange(6)),
        torch.utils.data.TensorDataset(channels_first / 255),
    ):
        assert np.array_equal(model.embed(given), expected)
    assert np.array_equal(model.embed([some[2], some[2]]), expected[[2, 2]])
    grey = pixels[..., 0]
    assert np.array_equal(model.embed(grey), model.embed(np.repeat(grey[..., None], 3, axis=3)))


def test_a_layer_is_averaged_over_its_places(model: Model, images: Path):
    one = files(images)[0]
    names = ["conv1", "conv2", "conv3", "conv4", "conv5", "fc6", "fc7", "pooled"]
    assert model.layers == names
    assert np.array_equal(model.embed(one, "pooled"), model.embed(one, "conv5"))
    seen = {}
    hook = model.network.layers["conv2"].register_forward_hook(
        lambda module, inputs, output: seen.update(conv2=output[0])
    )
    try:
        model.embed(one)
    finally:
        hook.remove()
    expected = seen["conv2"].mean(dim=(1, 2)).numpy()
    np.testing.assert_allclose(model.embed(one, "conv2")[0], expected, rtol=1e-5, atol=1e-6)
    assert np.array_equal(model.embed(one, "fc7"), model.embed(one))
    assert model.embed(one, "conv5", normalize=True).shape == (1, 256)
    assert np.linalg.norm(model.embed(one, normalize=True)) == pytest.approx(1, abs=1e-5)


def test_whitened_rows_of_the_run_have_unit_covariance(model: Model, images: Path):
    rows = model.embed(images, whiten=True).astype(np.float64)
    covariance = np.cov(rows.T, bias=True)
    np.testing.assert_allclose(covariance, np.eye(len(covariance)), atol=1e-3)


def test_what_cannot_be_embedded_is_said_in_one_sentence(
    model: Model, images: Path, tmp_path: Path
):
    (tmp_path / "half.png").write_bytes(files(images)[0].read_bytes()[:300])
    with pytest.raises(DataError, match=r"half\.png: truncated"):
        model.embed([files(images)[0], tmp_path / "half.png"])
    with pytest.raises(DataError, match=r"gone\.png: unreadable: no such file"):
        model.embed([tmp_path / "gone.png"])
    with pytest.raises(UsageError, match=r"conv9.*conv1"):
        model.embed(images, "conv9")
    with pytest.raises(UsageError, match="fc7, not of conv3"):
        model.embed(images, "conv3", whiten=True)
    with pytest.raises(UsageError, match="float64: give uint8"):
        model.embed(np.zeros((2, 8, 8)))
    with pytest.raises(UsageError, match=r"\(8, 8\): give N x H x W"):
        model.embed(np.zeros((8, 8), dtype=np.uint8))
    with pytest.raises(UsageError, match=r"\(8, 9, 3\) looks like one picture .*array\[None\]"):
        model.embed(np.zeros((8, 9, 3), dtype=np.uint8))
    assert model.embed(np.zeros((8, 9, 3), dtype=np.uint8)[None]).shape[0] == 1
    with pytest.raises(UsageError, match="from a int"):
        model.embed(3)


def test_only_safetensors_and_json_are_read(copy: Path, images: Path):
    for path in copy.iterdir():
        if path.is_file() and path.suffix not in (".safetensors", ".json"):
            path.unlink()
    for folder in ("store", "checkpoints", "assignments"):
        shutil.rmtree(copy / folder)
    assert len(deepcluster.load(copy).embed(files(images)[:2])) == 2


def test_damaged_settings_are_named(copy: Path, images: Path, capsys: pytest.CaptureFixture):
    """Of this version by their hash; of an earlier one, which kept none, by what is missing."""
    place = copy / "settings.json"
    good = json.loads(place.read_text())
    closing = json.loads((copy / "closing.json").read_text())

    def spoilt(**changes: object) -> None:
        place.write_text(json.dumps({**good, "effective": {**good["effective"], **changes}}))

    def refused(said: str) -> None:
        with pytest.raises(ResumeError, match=said):
            deepcluster.load(copy)
        out = copy.parent / "x.csv"
        for words in (
            ["embed", str(copy), str(images), "--out", str(out)],
            ["outliers", str(copy)],
            ["evaluate", str(copy), "agreement"],
        ):
            assert main(words) == 4, words
            error = capsys.readouterr().err
            assert "settings.json" in error
            assert error.count("\n") == 1
        assert not list(copy.parent.glob("x.csv*"))

    spoilt(**{"network.input_size": 96})
    refused(r"copy/settings\.json is damaged or was changed")
    place.write_text(json.dumps({**good, "effective": {}}))
    refused(r"copy/settings\.json is damaged or was changed")
    place.write_text(json.dumps({**good, "images": "/moved"}))
    assert len(deepcluster.load(copy).embed(files(images)[:1])) == 1  # images may move
    del closing["settings_sha256"]
    (copy / "closing.json").write_text(json.dumps(closing))
    for broken, said in (
        ({}, r"copy/settings\.json has no network\.arch"),
        ([], "are no table"),
        (
            {n: v for n, v in good["effective"].items() if n != "pixels.keep"},
            r"settings\.json has no pixels\.keep: .*put the run's own file back",
        ),
        ({**good["effective"], "network.front": "sobol"}, "names no network"),
        ({**good["effective"], "network.input_size": "big"}, "names no network"),
    ):
        place.write_text(json.dumps({**good, "effective": broken}))
        with pytest.raises(ResumeError, match=said):
            deepcluster.load(copy)


@pytest.mark.parametrize("name", ["model.safetensors", "groups.safetensors"])
def test_a_damaged_file_is_named(copy: Path, name: str):
    content = bytearray((copy / name).read_bytes())
    content[-1] ^= 1
    (copy / name).write_bytes(content)
    with pytest.raises(ResumeError, match=f"{name} is damaged"):
        deepcluster.load(copy)
    (copy / name).unlink()
    with pytest.raises(ResumeError, match=f"{name} cannot be read"):
        deepcluster.load(copy)


def test_every_verb_knows_a_run_by_its_name_in_runs(
    run: Path, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    Path("runs").mkdir()
    Path("runs/mine").symlink_to(run)
    Path("mine").mkdir()  # such as the images of the run
    one, other = (path.relative_to(images) for path in (files(images)[0], files(images)[-1]))
    Path("labels.csv").write_text(f"path,label\n{one},a\n{other},b\n")
    for words in (
        f"embed mine {images} --out e.npy",
        f"predict mine {images} --out p.csv",
        f"similar mine {one}",
        "duplicates mine",
        "outliers mine",
        "label mine --labels labels.csv --out l.csv",
        "export mine --to safetensors --out mine.safetensors",
    ):
        assert main(words.split()) == 0, words


def test_how_far_a_member_may_be_is_read_without_the_paths(tmp_path: Path, monkeypatch):
    distance = np.arange(200, dtype=np.float32)
    cluster = np.where(distance < 100, 1, -1)
    pq.write_table(pa.table({"cluster": cluster, "distance": distance}), tmp_path / "c.parquet")
    monkeypatch.setattr(RunFolder, "verified", lambda folder, name: tmp_path / "c.parquet")
    assert groups._farthest(RunFolder(tmp_path)) == pytest.approx(0.99 * 99)


def test_what_is_no_finished_run_is_refused(copy: Path, tmp_path: Path):
    with pytest.raises(UsageError, match="no such run"):
        deepcluster.load(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="is no run"):
        deepcluster.load(tmp_path / "empty")
    closing = json.loads((copy / "closing.json").read_text())
    del closing["sha256"]
    (copy / "closing.json").write_text(json.dumps(closing))
    with pytest.raises(ResumeError, match=r"earlier version.*closing pass again"):
        deepcluster.load(copy)
    (copy / "closing.json").unlink()
    with pytest.raises(ResumeError, match="not finished"):
        deepcluster.load(copy)


def test_a_run_of_an_earlier_version_is_closed_again(images: Path, copy: Path):
    """It kept no hashes and had fewer settings; what it says to do helps."""
    settings = json.loads((copy / "settings.json").read_text())
    for name in ("network.clustered", "network.views", "jitter.blur", "clustering.metric"):
        del settings["effective"][name]
    (copy / "settings.json").write_text(json.dumps(settings))
    before = np.load(copy / "features.npy")
    (copy / "closing.json").unlink()
    flags = f"{child.PLAIN} --k 4 --epochs 2 --batch 32 --network.width 32 --device cpu --out copy"
    words = flags.split()
    code, output = child.run(["train", str(images), *words], copy.parent)
    assert code == 0, output
    assert np.array_equal(np.load(copy / "features.npy"), before)
    assert deepcluster.load(copy, "cpu").embed(files(images)[0]).shape == (1, 32)
    code, output = child.run(["train", str(images), *words, "--jitter.blur", "0.5"], copy.parent)
    assert code == 4
    assert "jitter.blur" in output


def test_a_run_of_a_newer_version_says_what_to_upgrade(copy: Path):
    settings = json.loads((copy / "settings.json").read_text())
    (copy / "settings.json").write_text(json.dumps({**settings, "format": 99, "version": "9.1"}))
    closing = json.loads((copy / "closing.json").read_text())
    for version in (closing, {**closing, "settings_sha256": None}):
        (copy / "closing.json").write_text(json.dumps(version))
        with pytest.raises(ResumeError, match=r"deepcluster 9\.1.*pip install --upgrade"):
            deepcluster.load(copy)
        for words in (["evaluate", str(copy), "agreement"], ["show", str(copy), "sizes"]):
            assert main(words) == 4


def test_a_run_in_bfloat16_is_closed_in_float32(images: Path, tmp_path: Path):
    words = "--preset small --k 4 --epochs 1 --network.width 32 --device cpu --out run".split()
    code, output = child.run(["train", str(images), *words, "--precision", "bfloat16"], tmp_path)
    assert code == 0, output
    found = deepcluster.load(tmp_path / "run").embed(images, whiten=True, normalize=True)
    assert np.abs(found - np.load(tmp_path / "run/features.npy")).max() < 1e-3
