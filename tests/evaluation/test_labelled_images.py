"""What is said where a class has images in one of two places only."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from deepcluster.evaluation.bench import Bench
from deepcluster.evaluation.labelled_images import (
    opened,
    refuse_different_classes,
    remarks_on,
)
from deepcluster.images.kept import Pixels
from deepcluster.images.packing import pack
from deepcluster.images.source import source_of
from deepcluster.runtime.errors import DataError


@pytest.fixture
def data(colours: Path, tmp_path: Path) -> Path:
    """train and val, in which images are still to be broken or taken away."""
    shutil.copytree(colours, tmp_path / "data")
    return tmp_path / "data"


def complaint(train: Path, test: Path) -> str:
    stores = train.parent.parent / "stores"
    parts = (opened(place, 64, "rgb", stores, Bench()) for place in (train, test))
    with pytest.raises(DataError) as refused:
        refuse_different_classes(*parts)
    return str(refused.value)


@pytest.mark.parametrize(("emptied", "full"), [("val", "train"), ("train", "val")])
@pytest.mark.parametrize(
    ("files", "said"),
    [
        ([], ""),
        (["notes.txt"], ""),
        (["1.png"], " (1 file there is unusable)"),
        (["1.png", "2.png"], " (2 files there are unusable)"),
    ],
)
def test_a_class_folder_without_a_usable_image(
    data: Path, emptied: str, full: str, files: list[str], said: str
):
    kind = min((data / emptied).iterdir())
    shutil.rmtree(kind)
    kind.mkdir()
    for name in files:
        (kind / name).write_bytes(b"nothing")
    assert complaint(data / "train", data / "val") == (
        f"there is no usable image of class {kind.name!r} in {data / emptied}{said}; put some "
        f"there, or take the class out of {data / full}"
    )


def test_a_list_with_broken_files_of_a_class(data: Path):
    kinds = sorted(kind.name for kind in (data / "val").iterdir())
    for image in (data / "val" / kinds[0]).iterdir():
        image.write_bytes(b"nothing")
    for part in ("train", "val"):
        images = sorted((data / part).rglob("*.png"))
        lines = [f"{part}/{image.parent.name}/{image.name},{image.parent.name}" for image in images]
        (data / f"{part}.csv").write_text("\n".join(["path,label", *lines]))
    said = complaint(data / "train.csv", data / "val.csv")
    assert f"no usable image of class {kinds[0]!r} in {data / 'val.csv'} (" in said


def test_a_class_folder_that_is_missing(data: Path):
    kind = min((data / "val").iterdir())
    shutil.rmtree(kind)
    assert complaint(data / "train", data / "val") == (
        f"the classes differ: {kind.name!r} is in {data / 'train'} and not in {data / 'val'}; "
        "both need the same class folders"
    )


@pytest.mark.parametrize("label", ["/", "/tmp", "a" * 300])
def test_the_label_of_a_list_is_no_place(data: Path, label: str):
    images = sorted((data / "train").rglob("*.png"))
    lines = [f"train/{one.parent.name}/{one.name},{one.parent.name}" for one in images[1:]]
    rest = f"train/{images[0].parent.name}/{images[0].name},{label}"
    (data / "train.csv").write_text("\n".join(["path,label", rest, *lines]))
    assert complaint(data / "train.csv", data / "val").startswith(f"the classes differ: {label!r}")


def broken(folder: Path, count: int, content: bytes = b"nothing") -> None:
    for image in sorted(folder.rglob("*.png"))[:count]:
        image.write_bytes(content)


def test_a_set_of_which_most_files_cannot_be_used_is_refused(data: Path):
    val, stores = data / "val", data.parent / "stores"
    broken(val, 9)
    half = opened(val, 64, "rgb", stores, Bench())
    assert len(half) == 9
    broken(val, 10)
    said = (
        f"10 of 18 files in {val} cannot be used, more than half (not an image, such as blue/0.png)"
    )
    with pytest.raises(DataError, match=f"^{re.escape(said)}; repair them or take them away$"):
        opened(val, 64, "rgb", stores, Bench())
    broken(val, 3, b"")
    with pytest.raises(DataError, match=r"half \(mostly not an image, such as blue/3\.png\)"):
        opened(val, 64, "rgb", stores, Bench())


def test_figures_say_of_how_many_images_they_are(data: Path):
    broken(data / "val", 2)
    broken(data / "val", 1, b"")
    broken(data / "train", 1)
    parts = {
        name: opened(data / name, 64, "rgb", data.parent / "stores", Bench()).described()
        for name in ("train", "val")
    }
    on_test = "figures rest on 16 of 18 test images: 2 cannot be used"
    assert parts["val"]["unusable"] == {"empty file": 1, "not an image": 1}
    assert remarks_on({"train": parts["train"], "test": parts["val"]}) == [
        "figures rest on 35 of 36 training images: 1 cannot be used (not an image)",
        f"{on_test} (1 empty file, 1 not an image)",
    ]
    assert remarks_on({"images": parts["train"]}) == [
        "figures rest on 35 of 36 images: 1 cannot be used (not an image)"
    ]
    for others in ({"images": 12}, {"images": None}, {"train": {"left_out": [{}]}}):
        assert remarks_on(others) == []


def test_copies_and_small_images_left_out_by_choice_are_not_unusable(data: Path):
    for image in sorted((data / "val").rglob("*.png")):
        for number in range(3):
            shutil.copy(image, image.with_name(f"{image.stem}-{number}.png"))
    (data / "val/blue/nothing.png").write_bytes(b"nothing")
    how = Pixels("store", 64, "aspect", copies="once")
    pack(source_of(data / "val"), data.parent / "packed", "rgb", how, 1)
    found = opened(data.parent / "packed", 64, "rgb", data.parent / "stores", Bench())
    about = found.described()
    assert (about["images"], about["left_out"]) == (18, 3 * 18 + 1)
    assert about["unusable"] == {"not an image": 1}
    assert remarks_on({"images": about})[0].startswith("figures rest on 18 of 19 images: 1 ")


def test_a_set_of_one_class_has_one_class(data: Path):
    for kind in ("green", "red"):
        shutil.rmtree(data / "val" / kind)
    with pytest.raises(DataError, match="val has usable images of one class only, 'blue'; give it"):
        opened(data / "val", 64, "rgb", data.parent / "stores", Bench())
