"""Four epochs = two epochs + kill -9 anywhere + the same command, bit for bit."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import child
import numpy as np
import pytest
from child import newest_checkpoint

from deepcluster.runtime.faults import POINTS

IMAGES = 48
STEPS = 3  # in an epoch


def command(images: Path, **flags: object) -> list[str]:
    settings = {
        "out": "run",
        "k": 6,
        "epochs": 4,
        "batch": 16,
        "network.width": 32,
        "whitening.dimensions": 8,
        "speed.look_batch": 16,
        "workers": 1,
        "device": "cpu",
        **flags,
    }
    words = ["train", str(images), *child.PLAIN.split()]
    for name, value in settings.items():
        words += [f"--{name}", str(value)]
    return words


CARRIED = {
    "training.schedule": "cosine",
    "training.head": "matched",
    "training.head_momentum": 0.5,
    "clustering_start": "previous",
    "jitter.erase": 0.5,
}
"""A run in which more than the trunk goes from one epoch to the next."""


def outcome(run: Path) -> dict[str, bytes]:
    """All that a run is for, without its durations."""
    names = ["model.safetensors", "features.npy", "groups.safetensors"]
    names += [f"assignments/epoch-{epoch:04d}.npy" for epoch in range(4)]
    result = {name: (run / name).read_bytes() for name in names}
    result["clusters"] = repr(child.table(run / "clusters.parquet")).encode()
    journal = [json.loads(line) for line in (run / "journal.jsonl").read_text().splitlines()]
    for entry in journal:
        del entry["seconds"], entry["images_per_second"]
    result["journal"] = json.dumps(journal, sort_keys=True).encode()
    return result


@pytest.fixture(scope="session")
def images(textures: Callable[[int], Path]) -> Path:
    return textures(IMAGES)


@pytest.fixture(scope="session")
def uninterrupted(images: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("uninterrupted")
    code, output = child.run(command(images), folder)
    assert code == 0, output
    return outcome(folder / "run")


@pytest.fixture(scope="session")
def uninterrupted_carried(
    images: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("uninterrupted-carried")
    code, output = child.run(command(images, **CARRIED), folder)
    assert code == 0, output
    return outcome(folder / "run")


def assert_continues(
    images: Path,
    folder: Path,
    fault: str,
    expected: dict[str, bytes],
    exit_code: int,
    **flags: object,
) -> str:
    code, output = child.run(command(images, **flags), folder, fault)
    assert code == exit_code, output
    code, output = child.run(command(images, **flags), folder)
    assert code == 0, output
    got = outcome(folder / "run")
    assert [name for name in expected if got[name] != expected[name]] == []
    return output


# Each named point, in the third epoch where it has one: two epochs are done. Of the saves the
# second, whichever epoch makes it: one that ends while the disk is busy leaves its own out.
IN_THE_THIRD_EPOCH = {
    "pack.block": 1,
    "index.write": 1,
    "features.batch": 2 * 3 + 2,
    "features.flush": 3,
    "whiten": 3,
    "kmeans.iteration": 9,  # k-means ends early at a fixed point, so an earlier epoch's
    "train.step": 2 * STEPS + 2,
    "checkpoint.open": 2,
    "checkpoint.data": 3 + 2,
    "checkpoint.manifest": 2,
    "checkpoint.rename": 2,
    "checkpoint.prune": 2,
    "journal.write": 3,
    "closing.write": 1,
}


def test_every_named_point_is_tried():
    assert {*IN_THE_THIRD_EPOCH, "tile.image"} == set(POINTS)  # tiles have tests of their own


@pytest.mark.parametrize("point", ["features.batch", "kmeans.iteration", "train.step"])
def test_kill_in_each_phase_changes_nothing(
    point: str, images: Path, uninterrupted: dict[str, bytes], tmp_path: Path
):
    fault = f"{point}:kill@{IN_THE_THIRD_EPOCH[point]}"
    assert_continues(images, tmp_path, fault, uninterrupted, -signal.SIGKILL)


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (f"features.batch:kill@{IN_THE_THIRD_EPOCH['features.batch']}", -signal.SIGKILL),
        (f"train.step:kill@{2 * STEPS + 2}", -signal.SIGKILL),
        (f"train.step:term@{2 * STEPS + 2}", 143),
    ],
)
def test_a_carried_head_and_a_schedule_go_on_bit_for_bit(
    fault: str,
    code: int,
    images: Path,
    uninterrupted_carried: dict[str, bytes],
    tmp_path: Path,
):
    assert_continues(images, tmp_path, fault, uninterrupted_carried, code, **CARRIED)


@pytest.fixture(scope="session")
def uninterrupted_from_patches(
    images: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("uninterrupted-from-patches")
    code, output = child.run(command(images, **{"network.patches": 2}), folder)
    assert code == 0, output
    return outcome(folder / "run")


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ("kmeans.iteration:kill@3", -signal.SIGKILL),  # while filters are looked for
        ("features.batch:term@2", 143),  # in the first look, whose rows so far are kept
    ],
)
def test_a_run_from_patches_goes_on_bit_for_bit(
    fault: str,
    code: int,
    images: Path,
    uninterrupted: dict[str, bytes],
    uninterrupted_from_patches: dict[str, bytes],
    tmp_path: Path,
):
    first = "assignments/epoch-0000.npy"
    assert uninterrupted_from_patches[first] != uninterrupted[first]
    flags = {"network.patches": 2}
    assert_continues(images, tmp_path, fault, uninterrupted_from_patches, code, **flags)


def test_each_setting_of_a_carried_run_has_its_effect(
    images: Path, uninterrupted: dict[str, bytes], uninterrupted_carried: dict[str, bytes]
):
    first = "assignments/epoch-0000.npy"
    assert uninterrupted_carried[first] == uninterrupted[first]  # the same start
    assert uninterrupted_carried["model.safetensors"] != uninterrupted["model.safetensors"]
    journal = json.loads(uninterrupted_carried["journal"])
    assert [entry["carried"] for entry in journal] == [0, 6, 6, 6]
    assert [entry["schedule"] for entry in journal] == [
        [quarter / 4, (quarter + 1) / 4] for quarter in range(4)
    ]


def test_the_length_of_a_run_with_a_schedule_may_not_change(images: Path, tmp_path: Path):
    schedule = {"training.schedule": "cosine"}
    assert child.run(command(images, epochs=1, **schedule), tmp_path)[0] == 0
    code, output = child.run(command(images, epochs=2, **schedule), tmp_path)
    assert code == 4
    assert "epochs: 1 there, 2 now" in output
    assert "(only --speed.* may change)" in output


@pytest.mark.slow
@pytest.mark.parametrize("step", range(1, 4 * STEPS + 1))
def test_a_carried_head_survives_a_kill_at_every_step(
    step: int, images: Path, uninterrupted_carried: dict[str, bytes], tmp_path: Path
):
    fault = f"train.step:kill@{step}"
    assert_continues(images, tmp_path, fault, uninterrupted_carried, -signal.SIGKILL, **CARRIED)


@pytest.mark.slow
@pytest.mark.parametrize("point", IN_THE_THIRD_EPOCH)
def test_kill_at_every_named_point_changes_nothing(
    point: str, images: Path, uninterrupted: dict[str, bytes], tmp_path: Path
):
    fault = f"{point}:kill@{IN_THE_THIRD_EPOCH[point]}"
    assert_continues(images, tmp_path, fault, uninterrupted, -signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("step", range(1, 4 * STEPS + 1))
def test_kill_at_every_step_changes_nothing(
    step: int, images: Path, uninterrupted: dict[str, bytes], tmp_path: Path
):
    assert_continues(images, tmp_path, f"train.step:kill@{step}", uninterrupted, -signal.SIGKILL)


@pytest.mark.parametrize(("action", "code"), [("term", 143), ("interrupt", 130)])
def test_a_signal_while_learning_saves_inside_the_epoch(
    action: str, code: int, images: Path, uninterrupted: dict[str, bytes], tmp_path: Path
):
    fault = f"train.step:{action}@{2 * STEPS + 2}"
    first_code, first = child.run(command(images), tmp_path, fault)
    assert first_code == code, first
    assert "the same command continues" in first
    newest = newest_checkpoint(tmp_path)
    assert newest == "epoch-0002-step-00000002"
    # The rest of the epoch has one step: the epoch is not redone.
    code, output = child.run(command(images), tmp_path, f"train.step:kill@{STEPS - 2 + STEPS + 1}")
    assert code == 0, output
    assert "continuing after 2 epochs and 2 steps" in output
    got = outcome(tmp_path / "run")
    assert [name for name in uninterrupted if got[name] != uninterrupted[name]] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "point", ["features.batch", "features.flush", "whiten", "kmeans.iteration"]
)
def test_a_signal_before_learning_keeps_what_was_seen(
    point: str, images: Path, uninterrupted: dict[str, bytes], tmp_path: Path
):
    fault = f"{point}:term@{IN_THE_THIRD_EPOCH[point]}"
    assert_continues(images, tmp_path, fault, uninterrupted, 143)


def test_an_interrupted_look_goes_on_where_it_stopped(
    images: Path, uninterrupted: dict[str, bytes], tmp_path: Path
):
    fault = f"features.batch:term@{IN_THE_THIRD_EPOCH['features.batch']}"
    assert child.run(command(images), tmp_path, fault)[0] == 143
    # Of the third epoch's three batches two are kept: one is left, then three of the fourth.
    left = 1 + 3 + 3  # and three of the closing pass
    code, output = child.run(command(images), tmp_path, f"features.batch:kill@{left + 1}")
    assert code == 0, output
    got = outcome(tmp_path / "run")
    assert [name for name in uninterrupted if got[name] != uninterrupted[name]] == []


def test_a_run_stopped_before_its_first_save_says_that_it_goes_on(
    images: Path, uninterrupted: dict[str, bytes], tmp_path: Path
):
    code, first = child.run(command(images), tmp_path, "features.batch:term@2")
    assert code == 143
    assert "continuing" not in first
    code, output = child.run(command(images), tmp_path)
    assert code == 0, output
    assert "continuing, from the first epoch: no whole save is there" in output
    got = outcome(tmp_path / "run")
    assert [name for name in uninterrupted if got[name] != uninterrupted[name]] == []


def test_saves_left_out_and_a_kill_change_nothing(
    images: Path, uninterrupted: dict[str, bytes], tmp_path: Path
):
    assert child.run(command(images), tmp_path, f"train.step:term@{STEPS + 1}")[0] == 143
    assert newest_checkpoint(tmp_path) == "epoch-0001-step-00000001"
    # The second epoch's save never ends, so the third's is left out; the fourth is under way.
    fault = f"train.step:kill@{STEPS - 1 + STEPS + 2}"
    code, output = child.run(command(images), tmp_path, fault, disk_seconds=30)
    assert code == -signal.SIGKILL, output
    assert newest_checkpoint(tmp_path) == "epoch-0001-step-00000001"
    assert len((tmp_path / "run/journal.jsonl").read_text().splitlines()) == 3
    code, output = child.run(command(images), tmp_path)
    assert code == 0, output
    assert "continuing after 1 epoch and 1 step" in output
    got = outcome(tmp_path / "run")
    assert [name for name in uninterrupted if got[name] != uninterrupted[name]] == []


def test_stopped_while_looking_it_saves_the_epoch_that_was_left_out(
    images: Path, uninterrupted: dict[str, bytes], tmp_path: Path
):
    fault = f"features.batch:term@{IN_THE_THIRD_EPOCH['features.batch']}"
    code, output = child.run(command(images), tmp_path, fault, disk_seconds=0.4)
    assert code == 143, output
    assert newest_checkpoint(tmp_path) == "epoch-0002-step-00000000"
    assert child.run(command(images), tmp_path)[0] == 0
    got = outcome(tmp_path / "run")
    assert [name for name in uninterrupted if got[name] != uninterrupted[name]] == []


@pytest.mark.parametrize(
    "point",
    [
        point if point == "checkpoint.data" else pytest.param(point, marks=pytest.mark.slow)
        for point in POINTS
        if point.startswith("checkpoint") or "write" in point
    ],
)
def test_a_full_disk_loses_nothing(
    point: str, images: Path, uninterrupted: dict[str, bytes], tmp_path: Path
):
    fault = f"{point}:no-space@{IN_THE_THIRD_EPOCH[point]}"
    code, output = child.run(command(images), tmp_path, fault)
    assert code == 6, output
    assert "no space left" in output
    assert "Traceback" not in output
    assert child.run(command(images), tmp_path)[0] == 0
    got = outcome(tmp_path / "run")
    assert [name for name in uninterrupted if got[name] != uninterrupted[name]] == []


def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(
    images: Path, uninterrupted: dict[str, bytes], tmp_path: Path
):
    fault = f"train.step:term@{3 * STEPS + 1}"
    assert child.run(command(images), tmp_path, fault)[0] == 143
    before, newest = sorted((tmp_path / "run/checkpoints").iterdir())
    epoch = int(before.name.split("-")[1])  # that of one that was not left out
    content = bytearray((newest / "trunk.safetensors").read_bytes())
    content[len(content) // 2] ^= 1
    (newest / "trunk.safetensors").write_bytes(content)
    code, output = child.run(command(images), tmp_path)
    assert code == 0, output
    assert "checkpoint-damaged" in output
    assert newest.name in output
    assert f"continuing after {epoch} epochs" in output
    got = outcome(tmp_path / "run")
    different = [name for name in uninterrupted if got[name] != uninterrupted[name]]
    assert different == ["journal"]  # where the warning is written down
    assert b"checkpoint-damaged" in got["journal"]


def test_two_epochs_closed_and_then_four_are_the_same_as_four(
    images: Path, uninterrupted: dict[str, bytes], tmp_path: Path
):
    assert child.run(command(images, epochs=2), tmp_path)[0] == 0
    code, output = child.run(command(images, epochs=4), tmp_path)
    assert code == 0, output
    got = outcome(tmp_path / "run")
    assert [name for name in uninterrupted if got[name] != uninterrupted[name]] == []


def test_a_finished_run_says_so_and_is_left_alone(images: Path, tmp_path: Path):
    assert child.run(command(images, epochs=1), tmp_path)[0] == 0
    before = (tmp_path / "run/closing.json").stat().st_mtime_ns
    code, output = child.run(command(images, epochs=1), tmp_path)
    assert code == 0
    assert "already finished" in output
    assert (tmp_path / "run/closing.json").stat().st_mtime_ns == before


def test_speed_settings_may_change_and_the_result_stays(
    images: Path, uninterrupted: dict[str, bytes], tmp_path: Path
):
    assert child.run(command(images), tmp_path, f"train.step:term@{STEPS + 1}")[0] == 143
    changed = command(images, workers=3, **{"speed.keep_features": "device"})
    assert child.run(changed, tmp_path)[0] == 0
    got = outcome(tmp_path / "run")
    assert [name for name in uninterrupted if got[name] != uninterrupted[name]] == []


def test_a_timer_saves_inside_the_epoch_and_goes_on(images: Path, tmp_path: Path):
    often = command(images, epochs=2, **{"speed.save_minutes": 0})
    code, output = child.run(often, tmp_path, f"train.step:kill@{STEPS + 3}")
    assert code == -signal.SIGKILL, output
    # Two steps before the kill, and perhaps the last: the second save waited for the first.
    assert newest_checkpoint(tmp_path)[:-1] == "epoch-0001-step-0000000"
    assert newest_checkpoint(tmp_path)[-1] in "12"


def test_other_settings_are_refused_with_the_differences(images: Path, tmp_path: Path):
    assert child.run(command(images, epochs=1), tmp_path)[0] == 0
    code, output = child.run(command(images, epochs=2, k=7, seed=3), tmp_path)
    assert code == 4
    assert "clustering.k: 6 there, 7 now" in output
    assert "seed: 0 there, 3 now" in output
    assert "epochs" not in output.partition("(only")[0]


def test_changed_images_are_refused(textures: Callable[[int], Path], tmp_path: Path):
    images = textures(IMAGES)
    assert child.run(command(images, epochs=1), tmp_path)[0] == 0
    (images / "kind0" / "0000.png").unlink()
    code, output = child.run(command(images, epochs=2), tmp_path)
    assert code == 4
    assert "1 removed" in output


def test_a_run_of_other_images_is_not_called_changed(
    images: Path, textures: Callable[[int], Path], tmp_path: Path
):
    assert child.run(command(images, epochs=1), tmp_path)[0] == 0
    others = textures(IMAGES + 1)
    code, output = child.run(command(others, epochs=1), tmp_path)
    assert code == 4
    assert f"run is a run of other images, those of {images} and not of {others}; name" in output
    moved = textures(IMAGES)  # the same images elsewhere
    assert "already finished" in child.run(command(moved, epochs=1), tmp_path)[1]


def test_that_earlier_runs_are_not_continued_is_one_line(images: Path, tmp_path: Path):
    def trained(k: int) -> str:
        words = command(images, epochs=1, k=k)
        at = words.index("--out")
        return child.run(words[:at] + words[at + 2 :], tmp_path)[1]

    name = f"runs/{images.name}"
    assert "not continuing" not in trained(2)
    assert f"not continuing: {name}-1 was begun with other settings" in trained(3)
    assert "not continuing" not in trained(999)  # refused
    output = trained(4)
    assert output.count("not continuing") == 1
    assert f"not continuing any of 2 earlier ones; the last: {name}-2 was begun" in output
    assert "not continuing" not in trained(2)


def test_a_run_of_an_earlier_version_goes_on_unless_it_would_learn_otherwise(
    images: Path, tmp_path: Path
):
    def without(name: str) -> None:
        place = tmp_path / "run/settings.json"
        settings = json.loads(place.read_text())
        del settings["effective"][name]
        place.write_text(json.dumps(settings))

    def said(*words: str, **settings: int) -> tuple[int, str]:
        return child.run([*command(images, **settings), *words], tmp_path)

    assert said(epochs=1)[0] == 0
    without("training.fall")
    code, output = said(epochs=2)
    assert code == 0, output
    shutil.rmtree(tmp_path / "run")
    # Then, the step of a fresh head fell with the trunk's.
    falling = ("--training.schedule", "cosine")
    assert said(*falling, epochs=1)[0] == 0
    without("training.fall")
    code, output = said(*falling, epochs=1)
    assert code == 4
    assert "in which the step of a fresh head fell to zero with the others" in output
    shutil.rmtree(tmp_path / "run")
    kept = (*falling, "--training.head", "matched")  # and that of one that is kept still does
    assert said(*kept, epochs=1)[0] == 0
    without("training.fall")
    code, output = said(*kept, epochs=1)
    assert code == 0, output
    assert "already finished" in output


def test_journal_and_labels_keep_one_line_per_epoch(
    images: Path, uninterrupted: dict[str, bytes], tmp_path: Path
):
    fault = f"checkpoint.rename:kill@{IN_THE_THIRD_EPOCH['checkpoint.rename']}"
    assert child.run(command(images), tmp_path, fault)[0] == -signal.SIGKILL
    lines = (tmp_path / "run/journal.jsonl").read_text().splitlines()
    assert len(lines) >= 2  # and the second has no checkpoint
    assert child.run(command(images), tmp_path)[0] == 0
    lines = (tmp_path / "run/journal.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == [0, 1, 2, 3]
    labels = [np.load(tmp_path / f"run/assignments/epoch-{i:04d}.npy") for i in range(4)]
    assert all(len(each) == IMAGES for each in labels)
