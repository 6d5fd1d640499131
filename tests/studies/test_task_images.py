"""That what a task was judged on is held against what is there now."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from deepcluster.evaluation import proposals
from deepcluster.evaluation.bench import Bench
from deepcluster.evaluation.region_makers import edition
from deepcluster.evaluation.retrieval import Retrieval
from deepcluster.evaluation.shelf import Shelf
from deepcluster.evaluation.voc import find_devkit
from deepcluster.runtime.errors import ResumeError
from deepcluster.studies.drawn_devkit import write_devkit
from deepcluster.studies.drawn_landmarks import write_landmarks
from deepcluster.studies.study import Judge, Row
from deepcluster.studies.task_images import what_changed
from deepcluster.studies.tasks import Task, landmark_tasks, voc_tasks
from deepcluster.studies.terms import Terms
from deepcluster.studies.workshop import Workshop

pytestmark = [
    pytest.mark.filterwarnings("ignore::deepcluster.runtime.errors.ImagesLeftOut"),
    pytest.mark.filterwarnings("ignore::deepcluster.runtime.errors.LabelsDisagree"),
]


@pytest.fixture
def own(terms: Terms, tmp_path: Path) -> Callable[[str], Task]:
    """A task by its name, on data that may be changed."""
    devkit = write_devkit(tmp_path / "voc", {"train": 20, "val": 4, "test": 20})
    cities = {
        name: write_landmarks(tmp_path / name, seed=seed, landmarks=2, distractors=3)
        for seed, name in enumerate(("Oxford", "Paris"))
    }
    protocols = {task.name: task.protocol for task in terms.tasks}
    found = [replace(one, protocol=protocols[one.name]) for one in voc_tasks(devkit)]
    found += landmark_tasks(cities, settings=Retrieval(size=80, dimensions=8))
    return {task.name: task for task in found}.__getitem__


def workshop_of(task: Task, terms: Terms, tmp_path: Path) -> Workshop:
    """As a command in a new process has it."""
    judge: Judge = "retrieval" if isinstance(task.protocol, Retrieval) else "transfer"
    these = replace(terms, data=terms.data[:1], tasks=(task,))
    return Workshop(tmp_path / "study", these, Bench(workers=1), judge)


def other_mask(voc: Path) -> None:
    mask = min((voc / "SegmentationClass").iterdir())
    pixels = np.asarray(Image.open(mask)).copy()
    shown = pixels[(pixels > 0) & (pixels < 255)][0]
    pixels[pixels == shown] = shown % 20 + 1
    Image.fromarray(pixels).save(mask)


def other_boxes(voc: Path) -> None:
    first, second = sorted((voc / "Annotations").iterdir())[:2]
    first.write_text(second.read_text().replace(second.stem, first.stem))


def other_truth(city: Path) -> None:
    good = min((city / "gt_files").glob("*_good.txt"))
    good.write_text("\n".join(good.read_text().splitlines()[:-1]) + "\n")


def other_image(city: Path) -> None:
    image = min((city / "images").iterdir())
    image.write_bytes(image.read_bytes() + b"0")


CHANGES = [
    ("segmentation fc6-8", "voc/VOCdevkit/VOC2007", other_mask, "the set Segmentation/train"),
    ("classification fc6-8", "voc/VOCdevkit/VOC2007", other_boxes, "the set Main/train"),
    ("detection fc6-8", "voc/VOCdevkit/VOC2007", other_boxes, "the set Main/train"),
    ("Oxford", "Oxford", other_truth, "the images or the ground truth of .*Oxford have changed"),
    ("Oxford", "Paris", other_image, "the images of .*Paris, which whiten, have changed"),
]


@pytest.mark.parametrize(("name", "place", "change", "said"), CHANGES)
def test_rows_judged_on_other_data_do_not_stand_side_by_side(
    own: Callable[[str], Task],
    terms: Terms,
    tmp_path: Path,
    name: str,
    place: str,
    change: Callable[[Path], None],
    said: str,
):
    rows = [
        Row("random", terms.recipe, trained=False),
        Row("random-rgb", terms.with_front("rgb"), trained=False),
    ]
    task = own(name)
    before = workshop_of(task, terms, tmp_path).carry_out(rows[:1])
    assert workshop_of(task, terms, tmp_path).carry_out(rows[:1]) == before
    change(tmp_path / place)
    with pytest.raises(ResumeError, match=f"{said}.* since .*random-seed0-.*json was made; put it"):
        workshop_of(task, terms, tmp_path).carry_out(rows)
    # What is not asked for leaves the table; what was deleted is made anew.
    assert workshop_of(task, terms, tmp_path).carry_out(rows, only=["random-rgb"]).names == [
        "random-rgb"
    ]
    for part in (tmp_path / "study/parts").glob("random-seed0-*"):
        part.unlink()
    assert len(workshop_of(task, terms, tmp_path).carry_out(rows).measured) == 2


def test_the_same_data_elsewhere_is_the_same(
    own: Callable[[str], Task], terms: Terms, tmp_path: Path
):
    for name, place in (("segmentation fc6-8", "voc"), ("Oxford", "Oxford")):
        task = own(name)
        row = Row("random", terms.recipe, trained=False)
        (done,) = workshop_of(task, terms, tmp_path).carry_out([row]).measured
        (tmp_path / place).rename(tmp_path / "moved")
        inside = task.data.relative_to(tmp_path / place)
        moved = replace(task, data=tmp_path / "moved" / inside)
        known = done.judged[name]["data"]
        assert what_changed(moved, known, Shelf(), follow_links=False) is None
        said = what_changed(task, known, Shelf(), follow_links=False)
        assert said is not None
        assert said.startswith(f"what {name} is judged on was damaged or moved (")
        (tmp_path / "moved").rename(tmp_path / place)


def test_an_image_that_could_not_be_decoded_is_still_left_out(
    own: Callable[[str], Task], terms: Terms, tmp_path: Path
):
    """It is in the set as that is read, by its header, and not in the one that was judged on."""
    task = own("classification fc6-8")
    images = sorted((task.data / "JPEGImages").iterdir())
    images[0].write_bytes(images[0].read_bytes()[:700])
    row = Row("random", terms.recipe, trained=False)
    before = workshop_of(task, terms, tmp_path).carry_out([row])
    left = before.measured[0].judged[task.name]["data"]["trainval"]["left_out"]
    assert [one["reason"] for one in left] == ["image cannot be decoded"]
    assert workshop_of(task, terms, tmp_path).carry_out([row]) == before


def test_an_image_that_was_repaired_since_is_another(
    own: Callable[[str], Task], terms: Terms, tmp_path: Path
):
    task = own("classification fc6-8")
    image = min((task.data / "JPEGImages").iterdir())
    whole = image.read_bytes()
    image.write_bytes(whole[:700])
    row = Row("random", terms.recipe, trained=False)
    (done,) = workshop_of(task, terms, tmp_path).carry_out([row]).measured
    known = done.judged[task.name]["data"]
    image.write_bytes(whole)
    said = what_changed(task, known, Shelf(), follow_links=False)
    assert said is not None
    assert re.fullmatch("the set Main/train(val)? of .* has changed", said)


def test_regions_that_another_would_find_now_are_others(
    own: Callable[[str], Task], monkeypatch: pytest.MonkeyPatch
):
    task = own("detection fc6-8")
    monkeypatch.setattr(proposals, "opencv_is_there", lambda: False)
    finder = edition("grouping")
    known = {"test": {**find_devkit(task.data).annotated("test").described()}}
    known["test"]["regions"] = {"source": finder}
    assert what_changed(task, known, Shelf(), follow_links=False) is None
    monkeypatch.setattr(proposals, "opencv_is_there", lambda: True)
    said = what_changed(task, known, Shelf(), follow_links=False)
    assert said == f"who finds regions has changed from {finder} to {edition('opencv')}"
    own_boxes = replace(task, protocol=replace(task.protocol, boxes="boxes"))
    assert what_changed(own_boxes, known, Shelf(), follow_links=False) is None


def test_queries_whose_boxes_an_older_version_cut_are_others(
    own: Callable[[str], Task], terms: Terms, tmp_path: Path
):
    query = max((tmp_path / "Oxford/gt_files").glob("*_query.txt"))
    query.write_text(f"{query.read_text().split()[0]} 0 0 900 900")
    task = own("Oxford")
    row = Row("random", terms.recipe, trained=False)
    (done,) = workshop_of(task, terms, tmp_path).carry_out([row]).measured
    known = done.judged["Oxford"]["data"]
    assert what_changed(task, known, Shelf(), follow_links=False) is None
    older = {key: value for key, value in known.items() if key != "not_asked"}
    said = what_changed(task, older, Shelf(), follow_links=False)
    assert said is not None
    assert said.endswith("whose box reaches beyond the image have been left out")


def test_what_an_older_version_did_not_name_is_unknown(own: Callable[[str], Task]):
    for name in ("Oxford", "classification fc6-8"):
        assert what_changed(own(name), {}, Shelf(), follow_links=False) is None
