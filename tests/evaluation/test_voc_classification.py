"""VOC classification: its loss, its crops, what it reaches on planted classes, and the verb."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from devkit import write_devkit
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision.transforms import RandomResizedCrop

from deepcluster.evaluate_command import evaluate
from deepcluster.evaluation.bench import Bench
from deepcluster.evaluation.candidates import Candidate
from deepcluster.evaluation.classification_figures import judged_classes
from deepcluster.evaluation.evaluated import Evaluated
from deepcluster.evaluation.labelled_images import cropped_from, packed
from deepcluster.evaluation.multi_label import (
    Classifiers,
    Course,
    MultiLabelled,
    multi_label_loss,
    part_view,
)
from deepcluster.evaluation.subject import Shape
from deepcluster.evaluation.transfer import Contender, Material, Outcome, Stages
from deepcluster.evaluation.voc_classification import VOCClassification
from deepcluster.evaluation.voc_objects import CLASSES
from deepcluster.images.crops import TEN, normalize
from deepcluster.networks import Network
from deepcluster.runtime.errors import DataError, UsageError
from deepcluster.runtime.run_folder import RunFolder

QUICK = VOCClassification(
    epochs=12, batch=8, steps=(0.03,), decays=(1e-6,), hidden=32, dropout=0.0, test_crops="ten"
)


def test_the_loss_is_that_of_torch_on_what_is_judged():
    torch.manual_seed(0)
    scores = torch.randn(1, 6, 3, 20)
    labels = torch.randint(-1, 2, (6, 20))
    expected = torch.zeros(())
    for candidate in range(3):
        judged = labels != 0
        expected += F.binary_cross_entropy_with_logits(
            scores[0, :, candidate][judged], (labels > 0).float()[judged], reduction="sum"
        )
    torch.testing.assert_close(multi_label_loss(scores, labels, 6), expected / 6)


@given(st.integers(64, 500), st.integers(64, 500), st.integers(0, 2**31))
def test_a_crop_is_a_square_between_a_tenth_and_half_of_the_image(width, height, seed):
    view = part_view("any", 0.1, 0.5)
    numbers = np.random.default_rng(seed).random((1, view.numbers))
    left, top, right, bottom = view.boxes(np.array([width]), np.array([height]), 64, numbers)[0]
    side = right - left
    assert side == bottom - top
    assert 0 <= left < right <= width
    assert 0 <= top < bottom <= height
    biggest = min(width, height)
    assert (side - 1) ** 2 <= 0.5 * width * height
    assert (side + 1) ** 2 >= 0.1 * width * height or side == biggest


def test_crops_follow_the_law_of_torchvision():
    view = part_view("any", 0.1, 0.5)
    count = 4000
    numbers = np.random.default_rng(0).random((count, view.numbers))
    wide, high = np.full(count, 300), np.full(count, 200)
    boxes = view.boxes(wide, high, 64, numbers)
    blank = torch.empty(3, 200, 300)
    torch.manual_seed(0)
    theirs = np.array(
        [RandomResizedCrop.get_params(blank, [0.1, 0.5], [1.0, 1.0]) for _ in range(count)]
    )
    for ours, other in ((boxes[:, 2] - boxes[:, 0], theirs[:, 3]), (boxes[:, 0], theirs[:, 1])):
        assert ours.mean() == pytest.approx(other.mean(), rel=0.04)
        assert ours.std() == pytest.approx(other.std(), rel=0.06)


def test_a_crop_shows_its_box():
    """One at a time, as a CPU cuts them, and many at once, as a GPU does: the same part."""
    view = part_view("any", 0.1, 0.5)
    numbers = np.random.default_rng(1).random((20, view.numbers))
    boxes = view.boxes(np.full(20, 120), np.full(20, 90), 32, numbers)
    pixels = np.random.default_rng(2).integers(0, 256, (90, 120, 3), dtype=np.uint8)
    image = Image.fromarray(pixels)
    for row, box in zip(numbers, boxes.tolist(), strict=True):
        part = image.crop(box).resize((32, 32), Image.Resampling.BILINEAR)
        expected = np.asarray(part)[:, :: -1 if row[-1] < 0.5 else 1].transpose(2, 0, 1)
        np.testing.assert_array_equal(view.cut(image, 32, row.tolist()).numpy(), expected)


def test_what_is_difficult_is_not_ranked():
    """By hand: of four images the surest is not judged, the others are right, wrong, right."""
    labels = np.array([[0], [1], [-1], [1]])
    (found,) = judged_classes(np.array([[0.9], [0.8], [0.7], [0.6]]), labels)
    assert found.plain == pytest.approx((1 + 2 / 3) / 2)
    assert found.eleven_point == pytest.approx((6 * 1 + 5 * 2 / 3) / 11)


class Seeing(nn.Module):
    """A convnet that gives the mean of each colour, so that bright channels can be told."""

    width = 3

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(3)

    @property
    def layers(self) -> dict[str, nn.Module]:
        return {"norm": self.norm}

    def forward(self, images: Tensor) -> Tensor:
        return self.norm(images).mean(dim=(2, 3))


def contender() -> Contender:
    def network(seed: int) -> Evaluated:
        torch.manual_seed(0)
        seeing = Network(nn.Identity(), Seeing(), nn.Identity())  # type: ignore[arg-type]
        return Evaluated(seeing, Shape(front="rgb", input_size=64))

    return Contender("planted", network)


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A devkit in which images of class 0 are red, and all others are not."""
    root = tmp_path_factory.mktemp("planted")
    folder = write_devkit(root, {"train": 20, "val": 20, "test": 40})
    for path in sorted((folder / "JPEGImages").iterdir()):
        labels = {
            line.split()[0]: int(line.split()[1])
            for split in ("trainval", "test")
            for line in (folder / f"ImageSets/Main/dog_{split}.txt").read_text().splitlines()
        }
        pixels = np.random.default_rng(0).integers(0, 60, (80, 96, 3), dtype=np.uint8)
        pixels[..., 0] += np.uint8(150 * (labels[path.stem] == 1))
        Image.fromarray(pixels).save(path)
    return root


def judged(settings: VOCClassification, data: Path, out: Path) -> Outcome:
    settings.validate()
    stages = Stages(RunFolder(out))
    return settings(contender(), Material(data, out / "stores"), Bench(workers=1), stages)


def test_a_class_that_can_be_seen_is_found_and_others_are_not(planted: Path, tmp_path: Path):
    outcome = judged(QUICK, planted, tmp_path)
    classes = outcome.result["seeds"]["0"]["classes"]
    assert classes["dog"] == {"eleven_point": 1.0, "all_point": 1.0, "plain": 1.0}
    others = [classes[name]["plain"] for name in CLASSES if name != "dog"]
    assert np.mean(others) < 0.5
    mean = np.mean([classes[name]["eleven_point"] for name in CLASSES])
    assert outcome.result["mean"]["eleven_point"] == pytest.approx(mean)
    assert outcome.result["spread"] is None
    assert outcome.data["test"]["images"] == 40
    assert outcome.settled == {"epochs": 12, "decays": [1e-6], "hidden": 32}
    assert [row[0] for row in outcome.tables[0].rows] == ["mean over classes", *CLASSES]


def test_candidates_are_chosen_on_val_and_stages_are_kept(planted: Path, tmp_path: Path):
    settings = replace(QUICK, steps=(1e-6, 0.03), epochs=6, seeds=(0, 1))
    first = judged(settings, planted, tmp_path)
    choice = first.result["choice"]
    figures = {one["step"]: one["eleven_point_on_val"] for one in choice["candidates"]}
    assert first.result["step"] == max(figures, key=lambda step: figures[step])
    assert first.result["spread"]["eleven_point"] >= 0
    chosen_in = f"{sum(choice['seconds'].values()):.1f} s to choose among {len(figures)} candidates"
    assert first.remarks[-2] == chosen_in
    assert first.remarks[-1].endswith(" s to learn and test with 2 seeds")
    kept = sorted(path.name for path in (tmp_path / "stages").iterdir())
    assert len(kept) == 3
    (tmp_path / "stages" / next(name for name in kept if "seed-1" in name)).unlink()
    again = judged(settings, planted, tmp_path)
    assert again.result["seeds"]["0"] == first.result["seeds"]["0"]  # its seconds too
    for part in ("mean", "classes"):
        assert again.result["seeds"]["1"][part] == first.result["seeds"]["1"][part]


def test_steps_beyond_those_given_are_tried_where_the_best_is_the_outermost(
    planted: Path, tmp_path: Path
):
    settings = replace(QUICK, steps=(1e-6, 1e-5), decays=(0.0, 1e-6), epochs=2, farther=1)
    outcome = judged(settings, planted, tmp_path)
    tried = [(one["step"], one["decay"]) for one in outcome.result["choice"]["candidates"]]
    given = [(step, decay) for step in (1e-6, 1e-5) for decay in (0.0, 1e-6)]
    beyond = {step for step, _ in tried[4:]}
    assert tried[:4] == given
    assert len(beyond) == 1
    assert beyond <= {3e-7, 3e-5}
    assert [decay for _, decay in tried[4:]] == [0.0, 1e-6]
    kept = {path.name for path in (tmp_path / "stages").iterdir()}
    none = judged(replace(settings, farther=0), planted, tmp_path)
    assert len(none.result["choice"]["candidates"]) == 4
    assert any("at the edge of those tried" in remark for remark in none.remarks)
    if none.result["step"] == outcome.result["step"]:  # what it reaches does not depend on that
        seeds = {path.name for path in (tmp_path / "stages").iterdir() if "seed" in path.name}
        assert seeds <= kept


def test_on_val_is_the_choice_alone(planted: Path, tmp_path: Path):
    settings = replace(QUICK, steps=(1e-6, 0.03), epochs=2, seeds=(0, 1))
    whole = judged(settings, planted, tmp_path)
    on_val = judged(replace(settings, on="val"), planted, tmp_path)
    assert on_val.result["seeds"]["0"] == whole.result["choice"]  # the kept one, seconds too
    each = [one["eleven_point_on_val"] for one in on_val.result["seeds"].values()]
    assert on_val.result["mean"] == {"eleven_point": pytest.approx(sum(each) / 2)}
    assert set(on_val.data) == {"train", "val"}
    single = judged(replace(settings, on="val", steps=(0.03,), seeds=(0,)), planted, tmp_path)
    assert single.result["seeds"]["0"]["step"] == 0.03


def test_scores_are_the_mean_over_ten_crops(planted: Path, tmp_path: Path):
    """Crop by crop, from the network's own output and the classifier's own weights, in float64."""
    bench = Bench(workers=1, look_batch=7)
    store = packed(planted / "VOCdevkit/VOC2007/JPEGImages", 64, "rgb", tmp_path, bench)
    images = cropped_from(store, 64, bench)
    labels = np.random.default_rng(0).choice([-1, 0, 1], (20, 5))
    part = MultiLabelled(images, np.arange(20, 40), labels)
    network = contender().network(0).network.eval()
    view = part_view("any", 0.1, 0.5)
    candidates = [Candidate(0.01, 0.0), Candidate(0.1, 0.0)]
    course = Course(2, 10, 0.9, "constant", view, seed=0)
    classifiers = Classifiers(network, candidates, 6, 0.0, course, bench, fine_tuned=False)
    classifiers.learn(part, "learning", {})

    crops = [torch.cat(list(images.seen(range(20, 40), 20, 1, place=place))) for place in TEN]
    centre = torch.cat(list(images.seen(range(20, 40), 20, 1)))
    rows = network.trunk(normalize(centre)).detach().double()
    origin, length = rows.mean(0), rows.var(0, correction=0).sum().sqrt()
    for number in range(2):
        w6, b6, w7, b7, w8, b8 = (
            parameter[number].detach().double() for parameter in classifiers.readout.parameters[0]
        )
        total = torch.zeros(20, 5, dtype=torch.float64)
        for crop in crops:
            x = (network.trunk(normalize(crop)).detach().double() - origin) / length * 3**0.5
            total += ((x @ w6.T + b6).relu() @ w7.T + b7).relu() @ w8.T + b8
        scores = classifiers.judge(part, "ten", view, "testing", {})[:, number]
        np.testing.assert_allclose(scores, total.numpy() / 10, atol=1e-4)

    found = classifiers.judge(part, "random", view, "testing", {})
    classifiers.bench = Bench(workers=2)  # neither batches nor threads change a crop
    again = classifiers.judge(part, "random", view, "testing", {})
    np.testing.assert_allclose(found, again, atol=1e-5)


@pytest.mark.parametrize("seen_images", [True, False])
def test_frozen_means_frozen_and_all_means_all(planted: Path, tmp_path: Path, seen_images: bool):
    networks: list[Network] = []

    def network(seed: int) -> Evaluated:
        subject = contender().network(seed)
        if seen_images:
            subject.network.trunk.convnet.norm.running_mean.fill_(0.1)
        networks.append(subject.network)
        return subject

    for train in ("fc6-8", "all"):
        settings = replace(QUICK, train=train, epochs=2)  # type: ignore[arg-type]
        settings(
            Contender("watched", network),
            Material(planted, tmp_path / "stores"),
            Bench(workers=1),
            Stages(RunFolder(tmp_path / train)),
        )
        learnt = networks[-1].state_dict()
        fresh = network(0).network.state_dict()
        changed = {name for name in fresh if not torch.equal(fresh[name], learnt[name])}
        wanted = {f"trunk.convnet.norm.{part}" for part in ("weight", "bias", "running_mean")}
        if train == "all":
            assert wanted <= changed
        elif seen_images:
            assert not changed
        else:  # an untrained network's batch norms get statistics, and nothing else changes
            parts = ("running_mean", "running_var", "num_batches_tracked")
            assert changed == {f"trunk.convnet.norm.{part}" for part in parts}


@pytest.mark.parametrize(
    ("change", "flag"),
    [
        ({"seeds": ()}, "--seeds"),
        ({"seeds": (1, 1)}, "--seeds"),
        ({"epochs": 0}, "--epochs"),
        ({"steps": (0.0,)}, "--steps"),
        ({"least": 0.0}, "--least"),
        ({"least": 0.6}, "--most"),
        ({"hidden": 0}, "--hidden"),
    ],
)
def test_settings_that_cannot_be_carried_out(change: dict[str, object], flag: str):
    with pytest.raises(UsageError, match=flag):
        replace(QUICK, **change).validate()  # type: ignore[arg-type]


def test_an_image_that_cannot_be_decoded_is_left_out_by_name(planted: Path, tmp_path: Path):
    shutil.copytree(planted, tmp_path / "kit")
    path = tmp_path / "kit/VOCdevkit/VOC2007/JPEGImages/000041.jpg"
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.warns(UserWarning, match="1 of VOC2007 test: 000041: image cannot be decoded"):
        outcome = judged(replace(QUICK, epochs=1), tmp_path / "kit", tmp_path)
    assert outcome.data["test"]["images"] == 39
    assert [left["name"] for left in outcome.data["test"]["left_out"]] == ["000041"]


def test_a_devkit_without_a_set_is_refused(planted: Path, tmp_path: Path):
    shutil.copytree(planted, tmp_path / "kit")
    (tmp_path / "kit/VOCdevkit/VOC2007/ImageSets/Main/test.txt").unlink()
    with pytest.raises(DataError, match=r"Main/test.txt: no such file"):
        judged(QUICK, tmp_path / "kit", tmp_path)


def test_a_devkit_without_images_is_refused_by_name(planted: Path, tmp_path: Path):
    shutil.copytree(planted, tmp_path / "kit")
    shutil.rmtree(tmp_path / "kit/VOCdevkit/VOC2007/JPEGImages")
    with pytest.raises(DataError, match="JPEGImages"):
        judged(QUICK, tmp_path / "kit", tmp_path)


def test_nothing_is_judged_on_what_was_learnt_from(planted: Path, tmp_path: Path):
    shutil.copytree(planted, tmp_path / "kit")
    sets = tmp_path / "kit/VOCdevkit/VOC2007/ImageSets/Main"
    for place in sets.glob("*trainval.txt"):
        with place.with_name(place.name.replace("trainval", "test")).open("a") as lines:
            lines.write(place.read_text().splitlines()[0] + "\n")
    said = r"VOC2007: 1 images, such as 000001, are both in trainval and in test"
    with pytest.raises(DataError, match=said):
        judged(QUICK, tmp_path / "kit", tmp_path)


def test_nothing_is_judged_on_what_has_chosen(planted: Path, tmp_path: Path):
    """Images of test that are in val and not in trainval."""
    shutil.copytree(planted, tmp_path / "kit")
    sets = tmp_path / "kit/VOCdevkit/VOC2007/ImageSets/Main"
    for place in sets.glob("*test.txt"):
        with place.with_name(place.name.replace("test", "val")).open("a") as lines:
            lines.write(place.read_text().splitlines()[0] + "\n")
    choosing = replace(QUICK, steps=(0.01, 0.1))
    with pytest.raises(DataError, match="in val and in test of ImageSets: what chooses must not b"):
        judged(choosing, tmp_path / "kit", tmp_path)
    judged(replace(choosing, on="val", epochs=1, steps=(0.1,)), tmp_path / "kit", tmp_path)


def test_the_verb_from_words_to_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    write_devkit(tmp_path, {"train": 6, "val": 6, "test": 6})
    monkeypatch.chdir(tmp_path)
    words = "random-rgb voc-classification --data . --device cpu --workers 1 --decays 1e-6".split()
    words += "--input-size 64 --width 16 --epochs 1 --batch 6 --steps 0.01 0.03".split()
    assert evaluate(words) == 0
    output = capsys.readouterr().out
    assert "mean over classes" in output
    assert "chosen on val" in output
    assert "no test image shows" in output
    assert all(len(line) <= 100 for line in output.splitlines())
    written = output.splitlines()[-1].removeprefix("written to ")
    record = json.loads((tmp_path / written).read_text())
    assert record["protocol"] == "voc-classification"
    assert record["network"]["front"] == "rgb"
    assert record["settings"]["train"] == "fc6-8"
    assert record["data"]["test"]["images"] == 6
    assert 0 < record["result"]["mean"]["eleven_point"] <= 1
    assert evaluate(words) == 0
    assert capsys.readouterr().out.count("kept from before") == 2
    with pytest.raises(UsageError, match=r"which images\? give --data DIR"):
        evaluate(words[:2])


@pytest.mark.slow
def test_two_processes_find_what_one_finds(tmp_path: Path):
    write_devkit(tmp_path, {"train": 20, "val": 20, "test": 20})
    words = "evaluate random-rgb voc-classification --data . --device cpu --workers 1 --epochs 2"
    words += " --input-size 64 --width 16 --batch 10 --steps 0.01 0.03 --decays 1e-6 --dropout 0"
    for train in ("fc6-8", "all"):
        means = []
        for processes in (1, 2):
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            launcher = f"--nproc-per-node {processes} --master-addr 127.0.0.1 --master-port {port}"
            out = tmp_path / f"{train}-{processes}"
            every = f"-m torch.distributed.run {launcher} -m deepcluster {words} --train {train}"
            subprocess.run(
                [sys.executable, *every.split(), "--out", str(out)],
                cwd=tmp_path,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                check=True,
            )
            (written,) = out.glob("*.json")
            means.append(json.loads(written.read_text())["result"]["mean"]["plain"])
        # Batch norm that learns sees the half of a batch that its own process has.
        assert means[0] == pytest.approx(means[1], abs=1e-6 if train == "fc6-8" else 0.1)
