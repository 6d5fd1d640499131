"""A detector that learns, goes on where it was stopped, and the protocol on a small devkit."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import detection_child
import numpy as np
import pytest
import torch
from detection_child import COURSE, SCALE, a_model, paint
from devkit import annotate, write_devkit
from safetensors.torch import load_file

from deepcluster import cli
from deepcluster.evaluation import detector_training, object_search, voc_detection
from deepcluster.evaluation.bench import Bench
from deepcluster.evaluation.boxes import overlaps
from deepcluster.evaluation.detection_map import Detections, detection_precisions
from deepcluster.evaluation.detector_images import Pictures, Scale, Seen
from deepcluster.evaluation.detector_training import Halfway, Lessons, taught
from deepcluster.evaluation.kept_views import Kept, View
from deepcluster.evaluation.object_search import ObjectSearch
from deepcluster.evaluation.proposals import Regions
from deepcluster.evaluation.voc import VocImage
from deepcluster.evaluation.voc_detection import VOCDetection
from deepcluster.evaluation.voc_objects import Box, VocObject
from deepcluster.runtime import interruption
from deepcluster.runtime.errors import NumericsError, UsageError
from deepcluster.runtime.interruption import Interrupted
from deepcluster.runtime.run_folder import RunFolder
from deepcluster.runtime.world import World


@pytest.fixture(scope="module")
def painted(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[VocImage], Regions]:
    return paint(tmp_path_factory.mktemp("painted"))


def learns(painted: tuple[list[VocImage], Regions], bench: Bench, folder: Path) -> None:
    images, regions = painted
    model = a_model().to(bench.world.device)
    protocol = VOCDetection()
    before = protocol.search(model, images, regions, SCALE, bench)
    half = Halfway(RunFolder(folder), "half.safetensors")
    losses = taught(model, images, regions, SCALE, COURSE, bench, half).losses
    tenth = max(1, len(losses) // 45)
    first, last = np.mean(losses[:tenth], axis=0), np.mean(losses[-tenth:], axis=0)
    assert last[0] < 0.5 * first[0]  # of the classes
    assert last[1] < 0.75 * first[1]  # of the boxes
    after = protocol.search(model, images, regions, SCALE, bench)
    maps = [
        np.mean([one.eleven_point for one in detection_precisions(found, images)[:3]])
        for found in (before, after)
    ]
    assert maps[0] < 0.2
    assert maps[1] > 0.65
    assert (after.boxes >= 0).all()
    assert (after.boxes <= (64, 48, 64, 48)).all()


def test_a_detector_learns_what_is_where(painted, tmp_path: Path):
    learns(painted, Bench(workers=1), tmp_path)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_detector_learns_on_a_gpu_in_bfloat16(painted, tmp_path: Path):
    world = World(device=torch.device("cuda"))
    learns(painted, Bench(world, workers=2, autocast=torch.bfloat16), tmp_path)


def test_an_interrupted_course_goes_on_bit_for_bit(
    painted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    images, regions = painted
    course = replace(COURSE, iterations=9)
    whole, halved = a_model(), a_model()
    half = Halfway(RunFolder(tmp_path), "half.safetensors")
    taught(whole, images, regions, SCALE, course, Bench(workers=1), half)
    half.forget()
    done = []
    step = detector_training._step

    def stopping(*given):
        done.append(1)
        if len(done) == 4:
            monkeypatch.setattr(interruption, "_asked", interruption.TERMINATED)
        return step(*given)

    monkeypatch.setattr(detector_training, "_step", stopping)
    with pytest.raises(Interrupted):
        taught(halved, images, regions, SCALE, course, Bench(workers=1), half)
    monkeypatch.setattr(interruption, "_asked", None)
    again = a_model()
    taught(again, images, regions, SCALE, course, Bench(workers=1), half)
    assert len(done) == 9
    for name, value in whole.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name


def test_momentum_comes_back_as_its_weights_lie(
    painted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """On a GPU convolutions have their channels last, and a step takes both as they lie."""
    images, regions = painted
    half = Halfway(RunFolder(tmp_path), "half.safetensors")
    course = replace(COURSE, learnt="all", iterations=2)
    monkeypatch.setattr(detector_training, "WORTH_SAVING", 0.0)
    taught(a_model(), images, regions, SCALE, course, Bench(workers=1), half)
    model = a_model().to(memory_format=torch.channels_last)
    model.learn("all", 0.1)
    optimizer = detector_training._optimizer(model, course, torch.device("cpu"))
    assert half.resumed(model, optimizer, World()).iteration == 2
    for name, value in detector_training._learnt(model).items():
        momentum = optimizer.state[value]["momentum_buffer"]
        assert momentum.stride() == value.stride(), name
        assert torch.equal(momentum, load_file(tmp_path / half.name)[f"momentum.{name}"])


def test_a_course_without_momentum_is_kept_too(
    painted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    images, regions = painted
    half = Halfway(RunFolder(tmp_path), "half.safetensors")
    course = replace(COURSE, momentum=0.0, iterations=2)
    monkeypatch.setattr(detector_training, "WORTH_SAVING", 0.0)
    first, again = a_model(), a_model()
    taught(first, images, regions, SCALE, course, Bench(workers=1), half)
    assert taught(again, images, regions, SCALE, course, Bench(workers=1), half).iteration == 2
    assert torch.equal(first.scores.weight, again.scores.weight)


def test_lessons_show_every_image_once_a_lap(painted):
    images, regions = painted
    lessons = Lessons(images, regions, SCALE, COURSE)
    places = [batch.view.place for iteration in range(12) for batch in lessons.at(iteration)]
    assert sorted(places) == list(range(24))
    again = [batch.view.place for iteration in range(12, 24) for batch in lessons.at(iteration)]
    assert sorted(again) == list(range(24))
    assert places != again
    flips = [batch.view.is_flipped for iteration in range(100) for batch in lessons.at(iteration)]
    assert 60 < sum(flips) < 140


def test_regions_are_sorted_once_for_all_that_learn_from_them(painted):
    images, regions = painted
    first = Lessons(images, regions, SCALE, COURSE).candidates
    assert Lessons(images, regions, SCALE, replace(COURSE, seed=5)).candidates is first
    nearer = Lessons(images, regions, SCALE, replace(COURSE, lowest_background=0.3)).candidates
    assert nearer is not first
    assert sum(len(one.background) for one in nearer) < sum(len(one.background) for one in first)


def test_a_flipped_lesson_is_the_mirror_of_the_other(painted):
    """The same object, seen in the flipped maps: its cells are mirrored."""
    images, regions = painted
    lessons = Lessons(images, regions, Scale(96, 128), COURSE)  # twice as large
    place = lessons.at(0)[0].view.place
    straight, turned = lessons.lesson(0, False), lessons.lesson(0, True)
    assert straight.view == View(place, False)
    assert turned.view == View(place, True)
    one, other = lessons.asked([straight]), lessons.asked([turned])
    mirrored = torch.stack([128 - one.boxes[:, 2], 128 - one.boxes[:, 0]], dim=1)
    torch.testing.assert_close(other.boxes[:, [0, 2]], mirrored)
    torch.testing.assert_close(other.boxes[:, [1, 3]], one.boxes[:, [1, 3]])
    torch.testing.assert_close(other.offsets[:, 0], -one.offsets[:, 0])
    torch.testing.assert_close(other.offsets[:, 1:], one.offsets[:, 1:])


def test_an_object_one_pixel_wide_is_learnt_from_and_judged(painted, tmp_path: Path):
    """Also where the image is made smaller: nothing is divided by zero or has an infinite log."""
    images, regions = painted
    thin = [VocObject(0, Box(9, 9, 10, 40)), VocObject(1, Box(20, 30, 60, 31))]
    thin.append(VocObject(2, Box(63, 47, 64, 48)))  # the last pixel of all
    images = [replace(image, objects=tuple(thin)) for image in images]
    regions = Regions([boxes[:4] for boxes in regions.boxes], "by hand")  # of none of them
    scale, course = Scale(24, 32), replace(COURSE, iterations=3)
    lessons = Lessons(images, regions, scale, course)
    asked = lessons.asked(lessons.at(0))
    assert len(asked.holding) >= 3
    assert asked.offsets.isfinite().all()
    half = Halfway(RunFolder(tmp_path), "half.safetensors")
    bench = Bench(workers=1)
    model = a_model()
    assert np.isfinite(taught(model, images, regions, scale, course, bench, half).losses).all()
    found = VOCDetection(threshold=0.0).search(model, images, regions, scale, bench)
    assert np.isfinite(found.boxes).all()
    boxes = np.array([thing.box for thing in thin], dtype=np.float64)
    alone = Detections(np.zeros(3, np.int64), np.arange(3), np.ones(3), boxes)
    precisions = detection_precisions(alone, images[:1])[:3]
    assert [one.all_point for one in precisions if one] == [1.0] * 3


def test_what_two_lessons_ask_is_what_each_asks(painted):
    images, regions = painted
    lessons = Lessons(images, regions, SCALE, COURSE)
    both = lessons.at(3)
    first, second = (lessons.asked([one]) for one in both)
    together = lessons.asked(both)
    count = len(first.labels)
    assert torch.equal(together.of, torch.cat([first.of, second.of + 1]))
    assert torch.equal(together.boxes, torch.cat([first.boxes, second.boxes]))
    assert torch.equal(together.holding, torch.cat([first.holding, second.holding + count]))
    assert torch.equal(together.offsets, torch.cat([first.offsets, second.offsets]))


def test_the_step_grows_at_first_and_falls_in_the_end():
    course = replace(COURSE, step=2.0, iterations=40)
    assert [course.step_at(iteration) for iteration in (0, 1, 2, 29, 30, 39)] == [
        1,
        2,
        2,
        2,
        0.2,
        0.2,
    ]
    assert replace(course, iterations=3).step_at(0) == 2.0  # too few to grow


def test_scale_keeps_within_both_sides():
    assert Scale(600, 1000).size(500, 375) == (800, 600)
    assert Scale(600, 1000).size(1000, 200) == (1000, 200)
    assert Scale(600, 1000)(torch.zeros(3, 375, 500, dtype=torch.uint8)).shape == (3, 600, 800)


def test_what_is_seen_is_kept_while_it_fits():
    kept = Kept(room=100)  # two of 40 bytes
    rows = torch.zeros(3, 10)
    for place in range(3):
        kept.add(View(place), rows[place])
    assert [kept.get(View(place)) is not None for place in range(3)] == [True, True, False]
    assert kept.get(View(0, True)) is None
    assert kept.get(View(0))._base is None  # the batch is not held by one image of it


def test_pictures_are_decoded_once_while_they_fit(painted, monkeypatch: pytest.MonkeyPatch):
    images, _ = painted
    asked = []
    picture = VocImage.picture

    def counted(image: VocImage):
        asked.append(image.name)
        return picture(image)

    monkeypatch.setattr(VocImage, "picture", counted)
    some = images[:3]
    pictures = Pictures(torch.device("cpu"), workers=1, room=2 * 3 * 64 * 48)
    first, again = list(pictures(some)), list(pictures(some))
    assert asked == [image.name for image in (*some, some[2])]
    assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))


def test_images_of_several_canvases_are_seen_as_each_alone(painted):
    """Kept or not, alone or together: the same maps."""
    images, _ = painted
    model = a_model().eval()
    scale = Scale(70, 140)  # the sides of some become more than one canvas long
    tall = replace(images[1], width=48, height=64)
    pixels = list(Pictures(torch.device("cpu"), 1)(images[:3]))
    pixels[1] = pixels[1].transpose(1, 2).contiguous()
    some = [images[0], tall, images[2]]
    views = [View(2), View(1, True), View(0), View(2, True)]

    def seen(room: int) -> Seen:
        make = pixels.__getitem__
        return Seen(model, some, scale, make, fronts=Kept(room), maps=Kept(room))

    with torch.no_grad():
        plain = {view: seen(0).together([view])[0][1][0] for view in views}
        kept = seen(2**30)
        kept.together(views[:2])
        for one in (seen(0), kept, kept):
            found = one.together(views)
            assert sorted(number for numbers, _ in found for number in numbers) == [0, 1, 2, 3]
            for numbers, maps in found:
                for number, own in zip(numbers, maps, strict=True):
                    torch.testing.assert_close(own, plain[views[number]], rtol=1e-5, atol=1e-5)


def test_a_flipped_view_shows_the_mirrored_picture(painted):
    images, _ = painted
    (pixels,) = Pictures(torch.device("cpu"), 1)(images[:1])
    seen, mirrored = (
        Seen(a_model(), images[:1], SCALE, [picture].__getitem__)
        for picture in (pixels, pixels.flip(2))
    )
    shape = SCALE.canvas(images[0])
    found = seen.computed([View(0, True)], shape)
    assert torch.equal(found, mirrored.computed([View(0)], shape))
    assert not torch.equal(found, seen.computed([View(0)], shape))


def test_each_class_has_boxes_of_its_own(painted, tmp_path: Path):
    """After one step those of the classes that it showed have moved, and no others."""
    images, regions = painted
    model = a_model()
    before = model.offsets.weight.detach().clone().unflatten(0, (-1, 4))
    course = replace(COURSE, iterations=1, decay=0.0, dropout=0.0)
    half = Halfway(RunFolder(tmp_path), "half.safetensors")
    taught(model, images, regions, SCALE, course, Bench(workers=1), half)
    moved = (model.offsets.weight.unflatten(0, (-1, 4)) != before).any(dim=2).any(dim=1)
    shown = {
        int(label)
        for lesson in Lessons(images, regions, SCALE, course).at(0)
        for label in lesson.sampled.labels[: len(lesson.sampled.aims)]
    }
    assert shown != {0}
    assert set(moved.nonzero()[:, 0].tolist()) == shown


def test_biases_take_twice_the_step_and_do_not_decay():
    model = a_model()
    model.learn("all", 0.5)
    course = replace(COURSE, decay=0.01)
    optimizer = detector_training._optimizer(model, course, torch.device("cpu"))
    weights, biases = optimizer.param_groups
    assert (weights["times"], weights["weight_decay"]) == (1.0, 0.01)
    assert (biases["times"], biases["weight_decay"]) == (2.0, 0.0)
    assert {value.ndim for value in biases["params"]} == {1}
    assert {value.ndim for value in weights["params"]} == {2, 4}


def test_the_scale_follows_the_size_of_training():
    assert VOCDetection().scale(224) == Scale(600, 1000)
    assert VOCDetection().scale(128) == Scale(343, 572)
    assert VOCDetection(short_side=300).scale(128) == Scale(300, 500)
    assert VOCDetection(short_side=300, long_side=400).scale(224) == Scale(300, 400)


@pytest.mark.slow
def test_two_processes_learn_and_find_what_one_does(tmp_path: Path):
    detection_child.work(World(), tmp_path)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    launcher += ["--master-addr", "127.0.0.1", "--master-port", str(port)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    script = str(Path(detection_child.__file__))
    subprocess.run([*launcher, script, str(tmp_path)], env=environment, check=True, timeout=300)
    one, *two = (
        load_file(tmp_path / f"left-{name}.safetensors") for name in ("0-of-1", "0-of-2", "1-of-2")
    )
    for left in two:
        assert left.keys() == one.keys()
        for name, value in one.items():
            torch.testing.assert_close(left[name], value, rtol=1e-4, atol=1e-4)


def test_what_is_reported_of_an_image():
    """By hand: per class, the surest first, no box that a surer one overlaps by more than 0.3."""
    near, far = [0.0, 0.0, 10.0, 10.0], [50.0, 50.0, 60.0, 60.0]
    beside = [0.0, 6.0, 10.0, 16.0]  # 40 of 160 common: 0.25
    inside = [0.0, 0.0, 10.0, 6.0]  # 0.6 of near
    places = torch.tensor([near, inside, beside, far])
    boxes = places[:, None].expand(4, 2, 4)  # the same for both classes
    shares = torch.tensor([[0.9, 0.02], [0.8, 0.5], [0.7, 0.0], [0.005, 0.3]])
    search = ObjectSearch(threshold=0.01, suppression=0.3, detections=100)
    found = search._kept(shares, boxes).tolist()
    assert [[label, round(share, 3), *box] for label, share, *box in found] == [
        [0, 0.9, *near],
        [0, 0.7, *beside],  # as inside is gone, which is too much of near
        [1, 0.5, *inside],  # another class
        [1, 0.3, *far],
    ]  # near, of class 1, is too much of inside; far, of class 0, below the threshold
    assert [row[1] for row in replace(search, detections=2)._kept(shares, boxes).tolist()] == [
        pytest.approx(0.9),
        pytest.approx(0.7),
    ]


@pytest.mark.parametrize(("most", "first"), [(5, 8), (40, 8), (100, 8), (100, 1_000)])
def test_looking_at_the_surest_boxes_first_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, most: int, first: int
):
    """Beside suppression written out, one box after another; some shares are equal."""
    monkeypatch.setattr(object_search, "_FIRST_JUDGED", first)
    randomness = np.random.default_rng(most + first)
    corners = randomness.uniform(0, 60, (80, 3, 2))
    boxes = np.concatenate([corners, corners + randomness.uniform(5, 40, (80, 3, 2))], axis=2)
    shares = randomness.integers(1, 40, (80, 3)) / 120
    left: list[list[float]] = []
    for place, label in sorted(np.ndindex(80, 3), key=lambda at: -shares[at]):
        same = np.array([box for kind, _, *box in left if kind == label]).reshape(-1, 4)
        if not (overlaps(boxes[place, label][None], same) > 0.3).any():
            left.append([label, shares[place, label], *boxes[place, label]])
    search = ObjectSearch(threshold=0.0, suppression=0.3, detections=most)
    found = search._kept(torch.from_numpy(shares), torch.from_numpy(boxes))
    np.testing.assert_allclose(found.numpy(), left[:most], rtol=1e-12)


SMALL = (
    "--input-size 64 --width 16 --short-side 80 --regions 60 --passes 2 "
    "--device cpu --workers 1 --proposals grouping"
).split()


def test_the_protocol_from_end_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    write_devkit(tmp_path, {"train": 3, "val": 3, "test": 4})
    words = ["evaluate", "random-rgb", "voc-detection", "--data", ".", *SMALL]
    used: list[tuple[str, str]] = []
    teach = VOCDetection._judged

    def watched(self, contender, seed, step, learn, judge, *more):
        used.append((learn[0].split, judge[0].split))
        return teach(self, contender, seed, step, learn, judge, *more)

    monkeypatch.setattr(VOCDetection, "_judged", watched)
    assert cli.main([*words, "--steps", "0.001", "0.01", "--seeds", "0", "1"]) == 0
    said = capsys.readouterr().out
    assert "objects that no region covers can hardly be found" in " ".join(said.split())
    first, second = re.findall(r"overlap (\S+ ?%) of the objects|recall is (\S+ ?%) at", said)
    assert first[0] == second[1]
    assert "spread over seeds" in said
    assert "chosen on val" in said
    (file,) = Path("evaluations").glob("random-rgb-voc-detection-*.json")
    record = json.loads(file.read_text())
    assert record["settings"]["long_side"] == 133  # as 600 is to 1000
    result = record["result"]
    assert 0 <= result["mean"]["eleven_point"] <= 1
    assert result["regions"]["test"]["recall"] > 0.5
    made = sorted(path.name.rpartition("-")[0] for path in Path("evaluations/stores").iterdir())
    assert made == ["regions-grouping-1-test", "regions-grouping-1-trainval"]  # for val, chosen
    on_val = {float(step): figure for step, figure in result["choice"]["on_val"].items()}
    best = result["choice"]["step"]
    assert on_val[best] == max(on_val.values())
    assert {0.001, 0.01} <= {*on_val}
    assert len(on_val) == 4 or min(on_val) < best < max(on_val)  # two more, where it is outermost
    # What is chosen is chosen on val; test is looked at by what was chosen alone.
    assert used == [("train", "val")] * len(on_val) + [("trainval", "test")] * 2
    assert [(seed, run["iterations"]) for seed, run in result["seeds"].items()] == [
        ("0", 2),
        ("1", 2),
    ]
    assert not list(Path("evaluations/stages").glob("*.safetensors"))  # nothing half done is left
    # Again: every stage is kept, and the figures are the same.
    assert cli.main([*words, "--steps", "0.001", "0.01", "--seeds", "0", "1"]) == 0
    assert "kept from before" in capsys.readouterr().out
    assert json.loads(file.read_text())["result"] == result


def test_a_result_does_not_overwrite_that_of_other_regions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    write_devkit(tmp_path, {"train": 2, "val": 2, "test": 2})
    words = ["evaluate", "random-rgb", "voc-detection", "--data", ".", *SMALL, "--steps", "0.01"]
    results = Path("evaluations")
    assert cli.main(words) == 0
    (first,) = results.glob("*.json")
    assert cli.main(words) == 0
    assert [*results.glob("*.json")] == [first]
    make = voc_detection.made_once

    def fewer(*given) -> Regions:
        found = make(*given)
        return replace(found, boxes=[boxes[:-1] for boxes in found.boxes])

    monkeypatch.setattr(voc_detection, "made_once", fewer)
    assert cli.main(words) == 0
    files = [json.loads(file.read_text()) for file in results.glob("*.json")]
    assert len(files) == 2
    for file in files:
        assert {*file["data"]} == {"trainval", "test"}
        for split, images in file["data"].items():
            named = file["result"]["regions"][split]
            assert images["regions"] == {key: named[key] for key in ("source", "fingerprint")}


def test_nothing_is_judged_on_what_has_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """An image of test that is in train and not in trainval."""
    monkeypatch.chdir(tmp_path)
    folder = write_devkit(tmp_path, {"train": 2, "val": 2, "test": 2}, class_sets=False)
    train = folder / "ImageSets/Main/train.txt"
    train.write_text(train.read_text() + "000005\n")
    words = ["evaluate", "random", "voc-detection", *SMALL, "--data", "."]
    assert cli.main(words) == 3
    assert "1 images, such as 000005, are both in train and in test" in capsys.readouterr().err


def test_a_last_step_too_far_is_noticed(painted, tmp_path: Path):
    """The loss of the only step is that before it; the detector would find nothing, that is all."""
    images, regions = painted
    model = a_model()
    half = Halfway(RunFolder(tmp_path), "half.safetensors")
    course = replace(COURSE, step=1e30, iterations=1)
    taught(model, images, regions, SCALE, course, Bench(workers=1), half)
    with pytest.raises(NumericsError, match="not finite: learning has diverged"):
        VOCDetection().search(model, images, regions, SCALE, Bench(workers=1))


def test_all_learns_the_convolutions(painted, tmp_path: Path):
    images, regions = painted
    model = a_model()
    model.convolutions[0][1].running_mean.fill_(0.1)  # as a network that has seen images
    before = {name: value.clone() for name, value in model.convolutions.state_dict().items()}
    half = Halfway(RunFolder(tmp_path), "half.safetensors")
    course = replace(COURSE, learnt="all", iterations=3)
    taught(model, images, regions, SCALE, course, Bench(workers=1), half)
    after = model.convolutions.state_dict()
    assert not torch.equal(before["0.0.weight"], after["0.0.weight"])
    for name in ("weight", "bias", "running_mean", "running_var"):  # of batch norm
        assert torch.equal(before[f"0.1.{name}"], after[f"0.1.{name}"])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"regions": 0}, "--regions 0: use at least 1"),
        ({"long_side": 30}, "--long-side 30"),
        ({"steps": ()}, "--steps"),
        ({"passes": 0.0}, "--passes 0"),
        ({"suppression": 1.5}, "--suppression 1.5"),
        ({"boxes": "nowhere"}, "--boxes nowhere: there is no such folder"),
    ],
)
def test_settings_that_make_no_sense_are_refused(change, said):
    with pytest.raises(UsageError, match=said):
        replace(VOCDetection(), **change).validate()


def test_where_every_step_diverges_nothing_is_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    write_devkit(tmp_path, {"train": 2, "val": 2, "test": 2})

    def diverges(*_: object) -> None:
        raise NumericsError("the detector diverged")

    monkeypatch.setattr(VOCDetection, "_judged", diverges)
    words = ["evaluate", "random-rgb", "voc-detection", "--data", ".", *SMALL]
    assert cli.main([*words, "--steps", "0.001", "0.01"]) == 5
    assert "learning diverges with every step; try smaller" in capsys.readouterr().err


def test_bad_input_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    words = ["evaluate", "random", "voc-detection", *SMALL]
    assert cli.main([*words, "--data", "nowhere"]) == 2
    folder = write_devkit(tmp_path, {"train": 2, "val": 2, "test": 2})
    assert cli.main([*words, "--data", ".", "--arch", "resnet18"]) == 2
    whole = {place: place.read_text() for place in (folder / "ImageSets/Main").glob("*_test.txt")}
    whole[folder / "ImageSets/Main/test.txt"] = (folder / "ImageSets/Main/test.txt").read_text()
    for place, text in whole.items():
        learnt = place.with_name(place.name.replace("test", "trainval")).read_text()
        place.write_text(text + learnt)
    assert cli.main([*words, "--data", "."]) == 3
    for place, text in whole.items():
        place.write_text(text)
    for name in (folder / "ImageSets/Main/test.txt").read_text().split():
        annotate(folder, name, [("cat", (1, 1, 40, 40), True)], (96, 80))
    for place in (folder / "ImageSets/Main").glob("*_test.txt"):
        place.unlink()  # labels follow from the objects
    assert cli.main([*words, "--data", "."]) == 3
    (folder / "ImageSets/Main/test.txt").unlink()
    assert cli.main([*words, "--data", "."]) == 3
    said = capsys.readouterr()
    lines = [line for line in said.err.splitlines() if line]
    assert len(lines) == 5
    assert "nowhere" in lines[0]
    assert "alexnet or vgg16" in lines[1]
    assert "4 images, such as 000001, are both in trainval and in test" in lines[2]
    assert "has no object that is not difficult" in lines[3]
    assert "test" in lines[4]
