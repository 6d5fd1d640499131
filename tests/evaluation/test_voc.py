"""The reader of VOC's devkit, on a generated one and on what is wrong with devkits."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from devkit import annotate, write_devkit
from PIL import Image

from deepcluster.evaluation.voc import (
    Devkit,
    LeftOut,
    Split,
    VocImage,
    VocSet,
    find_devkit,
    refuse_common_sets,
    warn_of_labels,
    warn_of_left_out,
)
from deepcluster.evaluation.voc_objects import CLASSES, Box, VocObject, labels_of
from deepcluster.runtime.errors import DataError, ImagesLeftOut, LabelsDisagree, UsageError

SIZE = (96, 80)
FIRST = "Annotations/000001.xml"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_devkit(tmp_path_factory.mktemp("voc"), {"train": 5, "val": 5, "test": 4})


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A copy to be broken."""
    shutil.copytree(made, tmp_path / "VOC2007")
    return tmp_path / "VOC2007"


def test_the_classes_are_twenty_in_the_order_of_the_alphabet():
    assert len(CLASSES) == 20
    assert sorted(CLASSES) == list(CLASSES)


def test_the_devkit_is_found_from_three_places(made: Path):
    for place in (made, made.parent, made.parent.parent):
        assert find_devkit(place).folder.resolve() == made.resolve()
    with pytest.raises(UsageError, match=r"no VOC2012 in it; to use .*VOC2007, name it"):
        find_devkit(made.parent, 2012)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("nowhere", "there is no such folder; name the VOCdevkit folder, which holds VOC2007"),
        (
            "voc.tar",
            "it is a file; unpack it if it is the devkit's archive, and name the VOCdevkit "
            "folder, which holds VOC2007",
        ),
        (
            "photos",
            "there is no VOC2007 in it; name the VOCdevkit folder, whose VOC2007 has JPEGImages, "
            "Annotations and ImageSets",
        ),
    ],
)
def test_what_is_no_devkit_is_refused_in_one_sentence(tmp_path: Path, data: str, said: str):
    (tmp_path / "voc.tar").touch()
    (tmp_path / "photos").mkdir()
    with pytest.raises(UsageError) as refused:
        find_devkit(tmp_path / data)
    assert str(refused.value) == f"--data {tmp_path / data}: {said}"


def test_boxes_count_from_zero_and_end_where_the_next_pixel_begins(made: Path):
    """The image is noise outside of its boxes and stripes inside, to the pixel."""
    (image, *_) = Devkit(made).annotated("train").images
    annotation = (made / FIRST).read_text()
    left = int(annotation.partition("<xmin>")[2].partition("<")[0])
    top = int(annotation.partition("<ymin>")[2].partition("<")[0])
    first = image.objects[0]
    assert first == VocObject(0, Box(left - 1, top - 1, 96 // 2 - 2, 80 - 4), truncated=left == 1)
    mask = Devkit(made).segmented("train").images[0].classes_of_pixels()
    inside = np.zeros_like(mask, dtype=bool)
    for one in image.objects:
        inside[int(one.box.top) : int(one.box.bottom), int(one.box.left) : int(one.box.right)] = 1
    np.testing.assert_array_equal(inside, mask > 0)


def test_labels_of_the_class_sets_are_those_of_the_objects(made: Path, folder: Path):
    given = Devkit(made).annotated("trainval")
    assert given.labels.shape == (10, 20)
    assert {*given.labels.flatten().tolist()} == {-1, 0, 1}
    for path in (folder / "ImageSets/Main").glob("*_*.txt"):
        path.unlink()
    derived = Devkit(folder).annotated("trainval")
    np.testing.assert_array_equal(derived.labels, given.labels)
    assert given.disagreements == 0
    assert given.fingerprint == derived.fingerprint


def test_labels_by_hand():
    box = Box(0, 0, 1, 1)
    objects = [VocObject(3, box, difficult=True), VocObject(3, box), VocObject(5, box, True)]
    labels = labels_of(objects)
    assert labels[3] == 1
    assert labels[5] == 0
    assert sum(labels) == 1 + 0 - 18


def test_other_suffixes_and_the_other_year(tmp_path: Path):
    folder = write_devkit(tmp_path, {"train": 2, "val": 2}, year=2012, suffix=".webp")
    found = find_devkit(tmp_path, 2012).annotated("val")
    assert [image.path.suffix for image in found.images] == [".webp"] * 2
    assert found.images[0].picture().size == SIZE
    with pytest.raises(DataError, match=r"ImageSets/Main/test.txt: no such file"):
        Devkit(folder).annotated("test")


@pytest.mark.parametrize("name", ["JPEGImages", "Annotations", "ImageSets/Main"])
def test_a_missing_folder_is_named(folder: Path, name: str):
    shutil.rmtree(folder / name)
    with pytest.raises(DataError, match=f"has no folder {name}"):
        Devkit(folder).annotated("train")


def _rewrite(old: str, new: str) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        text = (folder / FIRST).read_text()
        assert old in text
        (folder / FIRST).write_text(text.replace(old, new, 1))

    return change


def _box(*edges: int) -> Callable[[Path], None]:
    return lambda folder: annotate(folder, "000001", [("dog", edges, False)], SIZE)


_NO_ENCODING = '<?xml version="1.0" encoding="foo"?><annotation></annotation>'
_BOMB = '<!DOCTYPE lol [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]><annotation>&b;</annotation>'


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda folder: (folder / FIRST).write_text("<annotation><object>"), "broken annotation"),
        (lambda folder: (folder / FIRST).write_text(_BOMB), "broken annotation"),
        (lambda folder: (folder / FIRST).write_bytes(b"\xff\xfe\x00"), "broken annotation"),
        (lambda folder: (folder / FIRST).write_text(""), "broken annotation"),
        (lambda folder: (folder / FIRST).write_text(" " * (2 << 20)), "broken annotation"),
        (lambda folder: (folder / FIRST).write_text(_NO_ENCODING), "broken annotation"),
        (lambda folder: (folder / FIRST).unlink(), "no annotation"),
        (_rewrite("<xmin>", "<xmin>nan"), "broken annotation"),
        (_rewrite("<difficult>0", "<difficult>maybe"), "broken annotation"),
        (_rewrite("<difficult>0", "<difficult>Unspecified"), "broken annotation"),
        (_rewrite("aeroplane", "zebra"), "an object of no class of VOC"),
        (_rewrite("<width>96", "<width>97"), "annotation of another size"),
        (_box(10, 10, 9, 20), "a box without area"),
        (_box(30, 10, 20, 20), "a box without area"),
        (_box(10, 10, 99, 20), "a box outside the image"),
        (_box(-3, 10, 20, 20), "a box outside the image"),
        (_box(0, 10, 0, 20), "a box outside the image"),  # nothing is left where it is cut
        (_box(10, 81, 20, 81), "a box outside the image"),
        (lambda folder: annotate(folder, "000001", [], SIZE), "no object in its annotation"),
        (lambda folder: (folder / "JPEGImages/000001.jpg").unlink(), "no image"),
        (lambda folder: (folder / "JPEGImages/000001.jpg").write_text("?"), "image cannot be read"),
    ],
)
def test_an_image_that_cannot_be_used_is_left_out_by_name(
    folder: Path, damage: Callable[[Path], object], reason: str
):
    damage(folder)
    found = Devkit(folder).annotated("train")
    assert [(left.name, left.reason) for left in found.left_out] == [("000001", reason)]
    assert [image.name for image in found.images] == ["000002", "000003", "000004", "000005"]
    assert len(found.labels) == 4
    with pytest.warns(ImagesLeftOut, match=f"1 of VOC2007 train: 000001: {reason}"):
        warn_of_left_out([found])


def test_a_box_that_rounding_pushed_over_the_edge_is_cut(folder: Path):
    _box(0, 10, 97, 20)(folder)
    found = Devkit(folder).annotated("train")
    assert found.images[0].objects[0].box == Box(0, 9, 96, 20)


def test_a_box_one_pixel_wide_has_its_first_pixel_for_its_last(folder: Path):
    _box(10, 10, 10, 20)(folder)
    found = Devkit(folder).annotated("train")
    assert found.left_out == ()
    assert found.images[0].objects[0].box == Box(9, 9, 10, 20)


@pytest.mark.parametrize(("said", "truncated"), [("Unspecified", False), ("", False), ("1", True)])
def test_what_is_truncated_may_be_said_in_any_words(folder: Path, said: str, truncated: bool):
    """It enters no figure."""
    text = (folder / FIRST).read_text()
    (folder / FIRST).write_text(re.sub("<truncated>.<", f"<truncated>{said}<", text))
    found = Devkit(folder).annotated("train")
    assert found.left_out == ()
    assert {one.truncated for one in found.images[0].objects} == {truncated}


def of_names(split: Split, *names: str) -> VocSet:
    images = tuple(VocImage(name, Path(name), 8, 8) for name in names)
    return VocSet(Path("VOC2007"), "Main", split, images)


@pytest.mark.parametrize("split", ["train", "val"])
def test_what_chooses_is_not_judged_on(split: Split):
    """Sets of a devkit that somebody has changed: trainval need not be train and val."""
    sets = {name: of_names(name, name) for name in ("train", "val", "trainval", "test")}
    choosing: list[tuple[Split, Split]] = [("train", "val")]
    reported: list[tuple[Split, Split]] = [("trainval", "test")]
    for pairs in (choosing + reported, reported + choosing):
        refuse_common_sets(pairs, sets.__getitem__)
    sets["test"] = of_names("test", "test", split)
    for pairs in (choosing, reported):
        refuse_common_sets(pairs, sets.__getitem__)
    said = (
        f"VOC2007: 1 images, such as {split}, are both in {split} and in test of ImageSets: what "
        "chooses must not be judged on"
    )
    for pairs in (choosing + reported, reported + choosing):
        with pytest.raises(DataError) as refused:
            refuse_common_sets(pairs, sets.__getitem__)
        assert str(refused.value) == said
    sets["trainval"] = sets["test"]
    with pytest.raises(DataError, match="nothing that was learnt from can be judged on"):
        refuse_common_sets(reported, sets.__getitem__)


def test_names_in_a_set_lead_nowhere_else_and_count_once(folder: Path):
    listed = folder / "ImageSets/Main/train.txt"
    listed.write_text(listed.read_text() + "../../secret\n999999\n000002\n\n")
    found = Devkit(folder).annotated("train")
    assert len(found) == 5
    assert [left.reason for left in found.left_out] == ["not the name of an image", "no image"]


def test_class_sets_that_are_broken_or_disagree(folder: Path):
    dog = folder / "ImageSets/Main/dog_train.txt"
    text = dog.read_text()
    dog.write_text(text.replace("000001 -1", "000001  1"))
    found = Devkit(folder).annotated("train")
    assert found.labels[0, CLASSES.index("dog")] == 1
    assert found.disagreements == 1
    warn_of_left_out([found])  # which would be an error here
    with pytest.warns(LabelsDisagree) as warned:
        warn_of_labels([found, replace(found, split="val", disagreements=1_234)])
    assert [str(one.message) for one in warned] == [
        "not what the annotations say: 1 label of VOC2007 train, 1,234 labels of VOC2007 val; "
        "those of ImageSets/Main are used"
    ]
    dog.write_text(text.replace("000001 -1\n", ""))
    (left,) = Devkit(folder).annotated("train").left_out
    assert left == LeftOut("000001", "a class set says nothing of it", "dog_train.txt")
    dog.write_text(text + "000009 yes\n")
    with pytest.raises(DataError, match=r"dog_train.txt, line 6: not an image and -1, 0 or 1"):
        Devkit(folder).annotated("train")
    dog.unlink()
    with pytest.raises(DataError, match=r"dog_train.txt: no such file"):
        Devkit(folder).annotated("train")


def test_most_of_a_set_missing_is_refused(folder: Path):
    for path in sorted((folder / "JPEGImages").iterdir())[:3]:
        path.unlink()
    with pytest.raises(
        DataError, match="names 5 images, of which 3 cannot be used, such as 000001"
    ):
        Devkit(folder).annotated("train")
    (folder / "ImageSets/Main/train.txt").write_text("")
    with pytest.raises(DataError, match="names 0 images"):
        Devkit(folder).annotated("train")


def test_masks_that_cannot_be_used(folder: Path):
    masks = folder / "SegmentationClass"
    whole = Devkit(folder).segmented("train")
    assert [image.name for image in whole.images] == ["000001", "000003", "000005"]
    Image.open(masks / "000001.png").crop((0, 0, 95, 80)).save(masks / "000001.png")
    assert Devkit(folder).segmented("train").left_out[0].reason == "mask of another size"
    Image.new("RGB", SIZE).save(masks / "000001.png")
    assert Devkit(folder).segmented("train").left_out[0].reason == "mask without class numbers"
    (masks / "000001.png").write_bytes(b"")
    assert Devkit(folder).segmented("train").left_out[0].reason == "mask cannot be read"
    (masks / "000001.png").unlink()
    assert Devkit(folder).segmented("train").left_out[0].reason == "no mask"
    Image.new("L", SIZE, 77).save(masks / "000001.png")
    image = Devkit(folder).segmented("train").images[0]
    with pytest.raises(DataError, match=r"000001.png has the value 77"):
        image.classes_of_pixels()


def test_a_mask_of_the_same_size_in_bytes_is_another(folder: Path):
    """Objects and labels are in the fingerprint as they are read; of images it has the sizes."""
    mask = folder / "SegmentationClass/000001.png"
    sizes, fingerprints = [], []
    for value in (1, 2, 1):
        Image.new("L", SIZE, value).save(mask, compress_level=0)
        sizes.append(mask.stat().st_size)
        fingerprints.append(Devkit(folder).segmented("train").fingerprint)
    assert sizes[0] == sizes[1]
    assert fingerprints[0] == fingerprints[2] != fingerprints[1]


def test_fingerprints_of_annotated_sets_stay_those_of_earlier_versions():
    """What was kept under them would be computed again."""
    box = Box(1, 2, 3, 4)
    image = VocImage("000001", Path(__file__), 8, 8, (VocObject(3, box),))
    labels = np.array([labels_of(image.objects)], np.int8)
    known = hashlib.blake2b(labels.tobytes(), digest_size=8)
    known.update(repr(("000001", image.objects, [Path(__file__).stat().st_size])).encode())
    found = VocSet(Path(), "Main", "train", (image,), labels=labels)
    assert found.fingerprint == known.hexdigest()


@pytest.mark.parametrize("turn", [3, 6])  # by half, which keeps the size, and by a quarter
def test_an_image_turned_by_exif_is_left_out(folder: Path, turn: int):
    """Its boxes and its mask are not turned."""
    path = folder / "JPEGImages/000001.jpg"
    exif = Image.Exif()
    exif[0x0112] = turn
    Image.open(path).save(path, exif=exif)
    for found in (Devkit(folder).annotated("train"), Devkit(folder).segmented("train")):
        assert "000001" not in [image.name for image in found.images]
        assert ("000001", "turned by its EXIF tag") in [left[:2] for left in found.left_out]
