"""What the page says, by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from deepcluster.report import verdict
from deepcluster.report.changes import _compared, _togetherness, followed
from deepcluster.report.groups import described
from deepcluster.report.run_record import RunRecord
from deepcluster.report.selection import select, spread
from deepcluster.report.verdict import clear_groups, comparisons, health, ways_on
from deepcluster.runtime.run_folder import RunFolder


def test_all_are_shown_where_they_fit():
    chosen = select(np.array([0, 1, 1, -1]), np.zeros(4, np.float32))
    assert chosen.images.tolist() == [0, 1, 2, 3]
    assert chosen.groups.tolist() == [0, 1]
    assert chosen.all_images


def test_of_many_the_central_the_marginal_and_some_between():
    labels = np.repeat([0, 1], [100, 4])
    distances = np.r_[np.arange(100)[::-1], np.arange(4)].astype(np.float32)
    chosen = select(labels, distances, most_images=16)
    large = distances[chosen.images[chosen.images < 100]]
    assert sorted(large)[:4] == [0, 1, 2, 3]
    assert sorted(large)[-2:] == [98, 99]
    assert len(large) == 8
    assert chosen.images[-4:].tolist() == [100, 101, 102, 103]


def test_of_many_groups_tight_and_loose_ones():
    labels = np.repeat(np.arange(50), 4)
    distances = np.repeat(np.arange(50)[::-1], 4).astype(np.float32)
    chosen = select(labels, distances, most_images=20, most_groups=5)
    assert chosen.groups.tolist() == [0, 12, 24, 37, 49] or len(chosen.groups) == 5
    assert {0, 49} <= {*chosen.groups.tolist()}  # the loosest and the tightest
    assert len(chosen.images) <= 20


def test_a_spread_is_within_its_quota():
    for count in range(40):
        for quota in range(1, 12):
            places = spread(count, quota)
            assert len(places) <= quota
            assert len(places) == min(count, quota)
            assert all(0 <= place < count for place in places)


def test_copies_outliers_and_tightness(generated: Callable[..., RunFolder]):
    folder = generated(90, 3)
    rows = np.load(folder.path / "features.npy")
    record = RunRecord.read(folder)
    first = np.flatnonzero(record.labels == 0)
    rows[first[1]] = rows[first[0]]
    np.save(folder.path / "features.npy", rows)
    record.distances[:] = 0.5
    record.distances[first[5]] = 0.9
    groups = {g.number: g for g in described(record, select(record.labels, record.distances))}
    assert (int(first[0]), int(first[1])) in groups[0].near_duplicates
    different = Image.fromarray(np.tile(np.arange(0, 96, dtype=np.uint8), (96, 1)))
    different.save(folder.path / f"thumbnails/{first[1]}.jpg")
    again = described(record, select(record.labels, record.distances))
    pairs = next(g.near_duplicates for g in again if g.number == 0)
    assert (int(first[0]), int(first[1])) not in pairs  # the pictures do not confirm it
    (folder.path / f"thumbnails/{first[1]}.jpg").unlink()
    again = described(record, select(record.labels, record.distances))
    pairs = next(g.near_duplicates for g in again if g.number == 0)
    assert (int(first[0]), int(first[1])) in pairs  # there is nothing to confirm it by
    assert groups[0].outliers == [first[5]]
    assert groups[1].outliers == []
    wide = rows.astype(np.float32)
    spread_of_all = ((wide - wide.mean(axis=0)) ** 2).sum(axis=1).mean()
    assert groups[1].tightness is not None
    assert abs(groups[1].tightness - (1 - 0.25 / spread_of_all)) < 1e-3


def test_stayed_split_and_merged():
    before = np.array([0] * 10 + [1] * 10 + [2] * 5 + [3] * 5)
    now = np.array([7] * 10 + [8] * 5 + [9] * 5 + [6] * 10)
    rows = np.arange(30)
    step = _compared(before, now, rows, np.ones(30, bool))
    assert (step["stayed"], step["split"], step["merged"]) == (1, 1, 1)
    assert step["splits"] == [[[10, 11, 12, 13], [15, 16, 17, 18]]]
    assert step["mergers"] == [[[20, 21, 22, 23], [25, 26, 27, 28]]]
    assert _togetherness(before, now, np.array([6, 7, 8])) == [0.5, 1.0, 1.0]


def test_the_history_ends_with_the_groups_as_they_are(generated: Callable[..., RunFolder]):
    folder = generated(60, 3)
    record = RunRecord.read(folder)
    told = followed(record, np.arange(60), np.arange(3))
    assert [step["epoch"] for step in told.steps] == [1, 2, 3, "end"]
    assert told.steps[-1]["whole"] == [1.0, 1.0, 1.0]
    assert told.steps[-1]["groups"] == 3
    assert (told.shown, told.epochs) == (3, 3)
    unfinished = followed(replace(record, closing=None), np.arange(60), np.arange(3))
    assert [step["epoch"] for step in unfinished.steps] == [1, 2, 3]


def test_groups_are_told_by_the_folders_that_fill_them(generated: Callable[..., RunFolder]):
    record = RunRecord.read(generated(40, 2))
    assert clear_groups(record, described(record, select(record.labels, record.distances))) == ""
    labels = np.repeat([0, 1], [10, 30])
    classes = np.where(np.arange(40) < 16, 0, 1)  # group 0: all cats; group 1: 6 cats, 24 <dogs>
    record = replace(record, labels=labels, classes=classes, folders=["cats", "<dogs>"])
    first, second = described(record, select(labels, record.distances))
    assert (first.number, first.folder, first.folder_share) == (1, "<dogs>", 0.8)
    assert (second.folder, second.folder_share) == ("cats", 1.0)
    assert clear_groups(record, [first, second]).startswith("In 2 of 2 groups")
    mixed = replace(first, folder_share=0.7)
    said = clear_groups(record, [mixed, second])
    assert said.startswith("In 1 of 2 groups more than 70%")
    assert "25% of the images lie in these" in said


def test_the_light(generated: Callable[..., RunFolder]):
    record = RunRecord.read(generated(30, 3))
    assert health(record).level == "good"
    record.journal[-1]["warnings"] = ["one-cluster-dominates"]
    assert health(record).level == "bad"
    record.journal[-1]["warnings"] = []
    record.journal[0]["warnings"] = ["head-is-guessing"]
    assert health(record).level == "watch"
    record.journal[0]["warnings"] = []
    record.journal[-1]["loss"] = 3.2
    assert health(record).level == "watch"


def test_the_light_of_few_images_is_not_good(generated: Callable[..., RunFolder]):
    found = health(RunRecord.read(generated(12, 3)))
    assert (found.level, found.word) == ("watch", "Look closer")
    assert found.reasons[0] == "Nothing can be told of so few images: 12."


def test_better_means_more_than_chance_would_make(generated: Callable[..., RunFolder]):
    record = RunRecord.read(generated(30, 3))
    assert record.baseline is not None
    entry = record.baseline["comparisons"][0]
    for trained, level in ((0.4, "good"), (0.11, "watch"), (0.02, "bad")):
        entry["trained"] = trained
        assert [one.level for one in comparisons(record)] == [level]


def test_the_commands_are_filled_in_and_quoted(generated: Callable[..., RunFolder]):
    folder = generated(30, 3)
    commands = [command for _, command in ways_on(RunRecord.read(folder))]
    quoted = f"'{folder.path}'"
    images = "'/photos & <b>more</b>'"
    assert f"deepcluster train {images} --epochs 6 --out {quoted}" in commands
    assert f"deepcluster report {quoted}" in commands
    assert f"deepcluster train {images} --k 6 --fresh" in commands


def test_settings_that_cannot_be_named_again_are_not_continued(
    generated: Callable[..., RunFolder],
):
    record = RunRecord.read(generated(30, 3))
    record.settings["asked"] = []
    commands = [command for _, command in ways_on(record)]
    assert "deepcluster train '/photos & <b>more</b>' --epochs 6 --fresh" in commands
    assert not any("--out" in command for command in commands if " train " in command)


@pytest.mark.parametrize(
    ("minutes", "epochs", "done", "twice"),
    [
        (2.0, 20, 5, "--seed 1 --epochs 20 --minutes 4"),
        (2.0, 5, 5, "--seed 1 --epochs 10"),
        (0.0, 500, 1, "--seed 1 --epochs 2"),
        (None, 20, 20, "--seed 1 --epochs 40"),
    ],
)
def test_twice_as_long_doubles_what_ended_the_run(
    minutes: float | None, epochs: int, done: int, twice: str
) -> None:
    words = ["--seed", "1", "--epochs", str(epochs), "--out", "a"]
    words += [] if minutes is None else [f"--minutes={minutes}"]
    effective = {"minutes": minutes, "epochs": epochs}
    assert verdict._twice_as_long(words, effective, done) == twice.split()
