"""What tasks of transfer need of a devkit, looked at before any network is there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from deepcluster.evaluation.voc_classification import VOCClassification
from deepcluster.evaluation.voc_detection import VOCDetection
from deepcluster.runtime.errors import DataError, UsageError
from deepcluster.studies.drawn_devkit import write_devkit
from deepcluster.studies.tasks import (
    Task,
    landmark_tasks,
    refuse_broken_devkit,
    validation_task,
    voc_tasks,
)

EVERY = {"Main/train", "Main/val", "Main/trainval", "Main/test"}


def named(tasks: tuple[Task, ...], *names: str) -> list[Task]:
    return [task for task in tasks if task.name in names]


@pytest.fixture
def voc(tmp_path: Path) -> Path:
    return write_devkit(tmp_path, {"train": 2, "val": 2, "test": 2})


def test_a_set_is_looked_at_where_a_task_needs_it_and_only_there(voc: Path):
    chosen = voc_tasks(
        voc, VOCClassification(steps=(0.1,), decays=(0.0,)), VOCDetection(steps=(0.01,))
    )
    cases = [
        (named(voc_tasks(voc), "classification fc6-8"), EVERY),
        (named(chosen, "classification fc6-8"), {"Main/trainval", "Main/test"}),
        ([validation_task(voc)], {"Main/train", "Main/val"}),
        (named(voc_tasks(voc), "detection all"), EVERY),
        (named(chosen, "detection all"), {"Main/trainval", "Main/test"}),
        (named(chosen, "segmentation all"), {"Segmentation/trainval", "Segmentation/test"}),
        (landmark_tasks({"Oxford": voc}), set()),
    ]
    places = {
        f"{place.parent.name}/{place.stem}": place
        for kind in ("Main", "Segmentation")
        for place in (voc / "ImageSets" / kind).glob("*.txt")
        if "_" not in place.stem  # the sets of a class
    }
    assert len(places) == 8
    for tasks, needed in cases:
        refuse_broken_devkit(tasks)
        for name, place in places.items():
            text = place.read_text()
            place.write_text("")
            if name in needed:
                with pytest.raises(DataError, match=f"{name}.txt names 0 images"):
                    refuse_broken_devkit(tasks)
            else:
                refuse_broken_devkit(tasks)
            place.write_text(text)


def test_segmentation_takes_the_year_that_its_protocol_would(tmp_path: Path):
    latest = write_devkit(tmp_path, {"train": 2, "val": 2}, year=2012)
    tasks = voc_tasks(tmp_path / "VOCdevkit")
    segmentation = named(tasks, "segmentation fc6-8", "segmentation all")
    refuse_broken_devkit(segmentation)
    with pytest.raises(UsageError, match=r"--voc .*: there is no VOC2007 in it"):
        refuse_broken_devkit(tasks)
    write_devkit(tmp_path, {"train": 2, "val": 2, "test": 2})
    refuse_broken_devkit(tasks)
    (latest / "ImageSets/Segmentation/val.txt").unlink()
    with pytest.raises(DataError, match=r"VOC2012/ImageSets/Segmentation/val.txt: no such file"):
        refuse_broken_devkit(segmentation)
    refuse_broken_devkit(
        [replace(one, protocol=replace(one.protocol, year=2007)) for one in segmentation]
    )


def test_what_is_learnt_from_and_judged_on_is_refused(voc: Path):
    for kind in ("Main", "Segmentation"):
        place = voc / f"ImageSets/{kind}/test.txt"
        place.write_text(place.read_text() + "000001\n")
    for place in (voc / "ImageSets/Main").glob("*_test.txt"):
        place.write_text(place.read_text() + "000001 -1\n")
    for task in voc_tasks(voc):
        with pytest.raises(DataError, match="such as 000001, are both in trainval and in test"):
            refuse_broken_devkit([task])
    refuse_broken_devkit([validation_task(voc)])


@pytest.mark.parametrize("split", ["train", "val"])
def test_what_chooses_is_not_judged_on(voc: Path, split: str):
    place = voc / f"ImageSets/Main/{split}.txt"
    place.write_text(place.read_text() + "000005\n")
    for place in (voc / "ImageSets/Main").glob(f"*_{split}.txt"):
        place.write_text(place.read_text() + "000005 -1\n")
    one, other = named(voc_tasks(voc), "classification all", "detection all")
    for task in (one, other):
        with pytest.raises(DataError, match=f"000005, are both in {split} and in test"):
            refuse_broken_devkit([task])
    refuse_broken_devkit([validation_task(voc), replace(other, protocol=VOCDetection(steps=(1,)))])


def test_images_that_are_left_out_are_not_warned_of_twice(
    voc: Path, recwarn: pytest.WarningsRecorder
):
    (voc / "JPEGImages/000001.jpg").unlink()
    refuse_broken_devkit(voc_tasks(voc))
    assert not recwarn.list  # protocols warn
