"""Segmentation from a devkit to figures, on pictures whose classes are directions of stripes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from phases import Phases
from PIL import Image

from deepcluster.evaluation import voc_segmentation
from deepcluster.evaluation.bench import Bench
from deepcluster.evaluation.evaluated import Evaluated, untrained
from deepcluster.evaluation.segmented_images import SegmentedImages
from deepcluster.evaluation.segmenter_training import taught
from deepcluster.evaluation.subject import Shape
from deepcluster.evaluation.transfer import Contender, Material, Outcome, Stages
from deepcluster.evaluation.voc import find_devkit
from deepcluster.evaluation.voc_segmentation import NAMES, VOCSegmentation
from deepcluster.runtime.errors import DataError, ImagesLeftOut, NumericsError, UsageError
from deepcluster.runtime.run_folder import RunFolder

QUICK = VOCSegmentation(epochs=12, batch=4, steps=(0.03,), dropout=0.0)
LEFT, RIGHT = 1, 5  # aeroplane and bottle


def write_devkit(root: Path, counts: dict[str, int], year: int = 2012) -> Path:
    """Half of each image has upright or level stripes, and a column of border beside them."""
    folder = root / f"VOCdevkit/VOC{year}"
    for name in ("JPEGImages", "SegmentationClass", "ImageSets/Segmentation"):
        (folder / name).mkdir(parents=True)
    randomness = np.random.default_rng(0)
    number = 0
    for split, count in counts.items():
        names = []
        for place in range(count):
            number += 1
            names.append(name := f"2012_{number:06d}")
            height, width = (64, 80) if place % 3 else (80, 64)
            pixels = randomness.normal(128, 8, (height, width, 3))
            mask = np.zeros((height, width), np.uint8)
            y, x = np.mgrid[:height, :width]
            upright = place % 2 == 0
            middle = width // 2
            half = slice(0, middle) if place // 2 % 2 else slice(middle, width)
            wave = 90 * np.sin((x if upright else y) * 2 * np.pi / 8)
            pixels[:, half] += wave[:, half, None]
            mask[:, half] = LEFT if upright else RIGHT
            mask[:, middle] = 255
            picture = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
            picture.save(folder / f"JPEGImages/{name}.jpg")
            save_mask(folder / f"SegmentationClass/{name}.png", mask)
        (folder / f"ImageSets/Segmentation/{split}.txt").write_text("\n".join(names) + "\n")
    return folder


def save_mask(place: Path, mask: np.ndarray) -> None:
    image = Image.fromarray(mask)
    image.putpalette([level for level in range(256) for _ in range(3)])
    image.save(place)


@pytest.fixture(scope="module")
def devkit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_devkit(tmp_path_factory.mktemp("devkit"), {"train": 16, "val": 6})


def subject(seed: int) -> Evaluated:
    return untrained(Shape(input_size=64, width=32), seed)


def outcome(settings: VOCSegmentation, devkit: Path, out: Path, network=subject) -> Outcome:
    settings.validate()
    stages = Stages(RunFolder(out))
    return settings(Contender("random", network), Material(devkit), Bench(workers=1), stages)


def test_fc6_to_fc8_on_frozen_convolutions(devkit: Path, tmp_path: Path):
    networks = []

    def network(seed: int) -> Evaluated:
        networks.append(subject(seed))
        return networks[-1]

    found = outcome(QUICK, devkit, tmp_path, network)
    assert json.loads(json.dumps(found.result)) == found.result
    assert found.settled == {"learn_on": "train", "judge_on": "val", "epochs": 12}
    first = found.result["seeds"]["0"]
    # All background would be 1/6 over three classes; scores 32 pixels apart bound what is right.
    assert found.result["mean_iou"] > 0.4
    assert first["classes"]["cat"] is None
    assert {kind for kind, share in first["classes"].items() if share is not None} >= {
        "background",
        "aeroplane",
        "bottle",
    }
    assert np.array(first["confusion"]).sum() == 6 * (64 * 80) - 64 * 4 - 80 * 2  # no border
    assert (first["trained_on"], first["tested_on"]) == (16, 6)
    assert [row[0] for row in found.tables[0].rows] == ["mean over classes", *NAMES, "pixels right"]
    before = subject(0).network.trunk.convnet.convolutions.state_dict()
    for name, tensor in networks[-1].network.trunk.convnet.convolutions.state_dict().items():
        # An untrained network's batch norms first get statistics; its weights stay.
        assert torch.equal(tensor, before[name]) or ".1." in name, name


def test_all_layers_learn_and_the_same_again_is_the_same(devkit: Path, tmp_path: Path):
    settings = replace(QUICK, train="all", epochs=2, steps=(0.01,), finest=8, dropout=0.5)
    networks = []

    def network(seed: int) -> Evaluated:
        networks.append(subject(seed))
        return networks[-1]

    first = outcome(settings, devkit, tmp_path / "one", network)
    before = subject(0).network.trunk.convnet.convolutions.state_dict()
    after = networks[-1].network.trunk.convnet.convolutions.state_dict()
    assert not torch.equal(after["conv1.0.weight"], before["conv1.0.weight"])
    assert not torch.equal(after["conv1.1.running_mean"], before["conv1.1.running_mean"])
    again = outcome(settings, devkit, tmp_path / "two")
    assert again.result["seeds"]["0"]["confusion"] == first.result["seeds"]["0"]["confusion"]


def test_the_step_is_chosen_on_training_images_and_stages_are_kept(devkit: Path, tmp_path: Path):
    settings = replace(QUICK, epochs=2, steps=(1e-6, 0.03), farther=0, seeds=(0, 1))
    first = outcome(settings, devkit, tmp_path)
    choice = first.result["choice"]
    assert choice["held_out"] == 3
    best = max(choice["candidates"], key=lambda one: one["mean_iou"])
    assert first.result["step"] == best["step"] == choice["step"]
    figures = [one["mean_iou"] for one in first.result["seeds"].values()]
    assert first.result["mean_iou"] == pytest.approx(np.mean(figures))
    assert first.result["spread"] == pytest.approx(np.std(figures, ddof=1))
    kept = sorted(path.name.rpartition("-")[0] for path in (tmp_path / "stages").iterdir())
    assert kept == [
        "voc-segmentation-choice-0.03",
        "voc-segmentation-choice-1e-06",
        "voc-segmentation-seed-0",
        "voc-segmentation-seed-1",
    ]
    assert outcome(settings, devkit, tmp_path).result == first.result  # seconds too
    spent = [f"{sum(choice['seconds'].values()):.1f} s to choose among 2 candidates"]
    spent += [f"{sum(one['seconds']['all'] for one in first.result['seeds'].values()):.1f} s to"]
    assert first.remarks[-2:] == [spent[0], f"{spent[1]} learn and test with 2 seeds"]
    # Another set to judge on learns the seeds anew, and chooses nothing anew.
    (devkit / "ImageSets/Segmentation/test.txt").write_text("2012_000017\n2012_000018\n")
    outcome(replace(settings, judge_on="test", seeds=(0,)), devkit, tmp_path)
    assert len(list((tmp_path / "stages").iterdir())) == 5
    # The best was the largest: one step more is tried, and the others are kept.
    wider = outcome(replace(settings, farther=1, seeds=(0,)), devkit, tmp_path).result["choice"]
    assert [one["step"] for one in wider["candidates"]] == [1e-6, 0.03, 0.1]
    assert wider["candidates"][:2] == choice["candidates"]


def test_a_course_is_shown_as_a_whole(devkit: Path, tmp_path: Path):
    display = Phases()
    settings = replace(QUICK, epochs=3, steps=(1e-6, 0.03), farther=1)
    bench = Bench(workers=1, display=display)
    stages = Stages(RunFolder(tmp_path), bench=bench)
    settings(Contender("random", subject), Material(devkit), bench, stages)
    learnt = [one for one in display.ended if one[0].startswith(("choosing", "learning"))]
    assert learnt == [
        ("choosing, step 1e-06 (1 of 2)", 39, 39),
        ("choosing, step 0.03 (2 of 2)", 39, 39),
        ("choosing, step 0.1 (3 of 3)", 39, 39),
        ("learning, seed 0", 48, 48),
    ]


def test_what_chooses_the_step_was_not_learnt_from(
    devkit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    learnt: list[list[int]] = []
    judged: list[list[int]] = []
    taught, confusion_of = voc_segmentation.taught, voc_segmentation.confusion_of

    def teach(subject, train, ids, *more):
        learnt.append(ids.tolist())
        return taught(subject, train, ids, *more)

    def judge(network, segmented, ids, *more):
        judged.append(ids.tolist())
        return confusion_of(network, segmented, ids, *more)

    monkeypatch.setattr(voc_segmentation, "taught", teach)
    monkeypatch.setattr(voc_segmentation, "confusion_of", judge)
    outcome(replace(QUICK, epochs=1, steps=(0.003, 0.03), farther=0), devkit, tmp_path)
    *choosing, last = zip(learnt, judged, strict=True)
    assert len(choosing) == 2
    for kept, held in choosing:
        assert sorted(kept + held) == list(range(16))
        assert len(held) == 3
    assert last == (list(range(16)), list(range(6)))  # then from all, and of the other set


def test_what_a_network_has_seen_is_kept_until_it_learns(devkit: Path):
    """Bringing layers to one scale shows images to batch norms that will learn; not yet."""
    trained = subject(0)
    for name, buffer in trained.network.named_buffers():
        if name.endswith("running_mean"):
            buffer.fill_(0.1)
    before = {name: tensor.clone() for name, tensor in trained.network.named_buffers()}
    images = SegmentedImages(find_devkit(devkit, 2012).segmented("train"), Bench(workers=1))
    course = replace(QUICK, train="all", epochs=0)._course(0.03, 0)
    network = taught(trained, images, np.arange(16), course, Bench(workers=1), 21, "", {})
    assert network is not None
    for name, tensor in network.convolutions.named_buffers():
        assert torch.equal(tensor, before[f"trunk.convnet.convolutions.{name}"]), name


def test_a_step_that_diverges_is_out(devkit: Path, tmp_path: Path):
    settings = replace(QUICK, epochs=2, steps=(1e30, 0.03))
    assert outcome(settings, devkit, tmp_path).result["step"] == 0.03
    with pytest.raises(NumericsError, match="learning has diverged"):
        outcome(replace(settings, steps=(1e30,)), devkit, tmp_path)
    with pytest.raises(NumericsError, match="diverges with every step"):
        outcome(replace(settings, steps=(1e30, 1e31)), devkit, tmp_path)


def test_a_last_step_too_far_is_noticed(devkit: Path, tmp_path: Path):
    """The loss of the only step is that before it; what comes of it shows in the scores alone."""
    settings = replace(QUICK, epochs=1, batch=16, schedule="constant", steps=(1e30,))
    with pytest.raises(NumericsError, match="not finite: learning has diverged"):
        outcome(settings, devkit, tmp_path)
    chosen = outcome(replace(settings, steps=(0.03, 1e30), farther=0), devkit, tmp_path)
    assert chosen.result["choice"]["candidates"][1] == {"step": 1e30, "mean_iou": None}
    assert chosen.result["step"] == 0.03


def test_masks_that_are_all_border(tmp_path: Path):
    folder = write_devkit(tmp_path, {"train": 4, "val": 2})
    quick = replace(QUICK, epochs=1, batch=1)

    def blank(numbers: range) -> None:
        for number in numbers:
            place = folder / f"SegmentationClass/2012_{number:06d}.png"
            with Image.open(place) as mask:
                size = mask.size
            save_mask(place, np.full((size[1], size[0]), 255, np.uint8))

    blank(range(1, 2))  # one batch without a pixel to learn from teaches nothing, and harms nothing
    assert outcome(quick, tmp_path, tmp_path / "out").result["mean_iou"] > 0
    blank(range(5, 7))
    with pytest.raises(DataError, match="2 of the 2 masks of val are all border"):
        outcome(quick, tmp_path, tmp_path / "out")
    blank(range(1, 5))
    with pytest.raises(DataError, match="of train are all border"):
        outcome(quick, tmp_path, tmp_path / "out")
    with pytest.raises(DataError, match="no pixel is judged; try another --held-out or --seeds"):
        outcome(replace(quick, steps=(0.01, 0.03)), tmp_path, tmp_path / "out")


def test_the_sets_of_2007_and_what_cannot_be_used(tmp_path: Path):
    counts = {"trainval": 6, "test": 4}
    folder = write_devkit(tmp_path, counts, 2007)
    save_mask(folder / "SegmentationClass/2012_000002.png", np.zeros((9, 9), np.uint8))
    (folder / "SegmentationClass/2012_000008.png").unlink()
    quick = replace(QUICK, epochs=1)
    with pytest.warns(ImagesLeftOut, match="mask of another size"):
        found = outcome(quick, tmp_path, tmp_path / "out")
    assert found.data["train"]["set"] == "Segmentation/trainval"
    assert found.data["train"]["left_out"][0]["name"] == "2012_000002"
    assert found.data["test"]["set"] == "Segmentation/test"
    assert found.data["test"]["images"] == 3
    with pytest.raises(UsageError, match="both in trainval and in trainval"), pytest.warns():
        outcome(replace(quick, judge_on="trainval"), tmp_path, tmp_path / "out")
    with pytest.raises(UsageError, match="there is no VOC2012 in it"):
        outcome(replace(quick, year=2012), tmp_path, tmp_path / "out")
    elsewhere = folder.rename(tmp_path / "mine")
    with pytest.warns(ImagesLeftOut):
        found = outcome(replace(quick, year=2007), elsewhere, tmp_path / "out")
    assert found.data["test"]["set"] == "Segmentation/test"
    folder = elsewhere.rename(folder)
    (folder / "ImageSets/Segmentation/train.txt").write_text("2012_000001\n")
    with pytest.raises(DataError, match="the set train has 1 usable image"), pytest.warns():
        outcome(replace(quick, learn_on="train"), tmp_path, tmp_path / "out")


def test_a_damaged_test_image_is_found_before_anything_is_learnt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = write_devkit(tmp_path, {"train": 4, "val": 2})
    damaged = folder / "JPEGImages/2012_000006.jpg"
    damaged.write_bytes(damaged.read_bytes()[:-200])

    def learnt(*_: object) -> None:
        raise AssertionError("hours of learning")

    monkeypatch.setattr(voc_segmentation, "taught", learnt)
    with pytest.raises(DataError, match=r"2012_000006\.jpg: truncated"):
        outcome(QUICK, tmp_path, tmp_path / "out")


@pytest.mark.parametrize(
    "change",
    [
        {"seeds": ()},
        {"seeds": (1, 1)},
        {"epochs": 0},
        {"steps": ()},
        {"farther": -1},
        {"dropout": 1.0},
    ],
)
def test_settings_that_make_no_sense(change: dict):
    with pytest.raises(UsageError, match=f"--{next(iter(change))}"):
        replace(QUICK, **change).validate()
