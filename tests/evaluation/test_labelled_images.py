"""What is said where a class has images in one of two places only."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from deepcluster.evaluation.bench import Bench
from deepcluster.evaluation.labelled_images import opened, refuse_different_classes
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
