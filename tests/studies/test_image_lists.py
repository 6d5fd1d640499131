from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import pytest
from PIL import Image

from deepcluster.images.kept import Pixels
from deepcluster.runtime.errors import DataError
from deepcluster.studies.image_lists import write_uncurated


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    for name, classes, count in (("objects", 6, 60), ("scenes", 3, 40)):
        for kind in range(classes):
            place = tmp_path / name / f"{name}-{kind}"
            place.mkdir(parents=True)
            for number in range(count):
                Image.new("L", (2, 2), number).save(place / f"{number:02d}.png")
    return tmp_path / "objects", tmp_path / "scenes"


def listed(path: Path) -> list[tuple[str, str]]:
    with path.open() as file:
        return [(row["path"], row["label"]) for row in csv.DictReader(file)]


def test_the_uncurated_list_is_zipf_with_scenes(folders: tuple[Path, Path], tmp_path: Path):
    mixed, balanced = tmp_path / "lists/mixed.csv", tmp_path / "lists/balanced.csv"
    write_uncurated(mixed, balanced, *folders, seed=0, how=Pixels())
    counts = Counter(label for _, label in listed(mixed))
    objects = sorted((n for label, n in counts.items() if label.startswith("obj")), reverse=True)
    assert objects == [60, 30, 20, 15, 12, 10]
    assert sum(n for label, n in counts.items() if label.startswith("scenes")) == 147 // 2
    even = listed(balanced)
    assert len(even) == len(listed(mixed)) == len({path for path, _ in even})
    spread = Counter(label for _, label in even).values()
    assert len(spread) == 6
    assert max(spread) - min(spread) <= 4
    first = mixed.read_bytes()
    write_uncurated(mixed, balanced, *folders, seed=0, how=Pixels())
    assert mixed.read_bytes() == first


@pytest.mark.parametrize("sizes", [(40, 40), (200, 20, 20, 20), (300, 5, 5, 5, 5, 5), (9,) * 40])
def test_both_lists_are_as_long_and_the_other_as_balanced_as_can_be(
    sizes: tuple[int, ...], tmp_path: Path
):
    for kind, counts in (("obj", sizes), ("scene", (60, 60))):
        for number, count in enumerate(counts):
            folder = tmp_path / kind / f"{kind}{number:02d}"
            folder.mkdir(parents=True)
            for image in range(count):
                Image.new("L", (2, 2)).save(folder / f"{image}.png")
    mixed, balanced = tmp_path / "lists/mixed.csv", tmp_path / "lists/balanced.csv"
    write_uncurated(mixed, balanced, tmp_path / "obj", tmp_path / "scene", seed=0, how=Pixels())
    even = listed(balanced)
    assert len(even) == len(listed(mixed)) == len({path for path, _ in even})
    counts = Counter(label for _, label in even)
    most = max(counts.values())
    for number, size in enumerate(sizes):
        # Either all of a class, or about as many as of any other: the last few are drawn at random.
        assert counts[f"obj{number:02d}"] >= min(size, most) - max(4, most // 10)
    if max(sizes) > 100:  # and which of them is not by name
        chosen = {Path(path).stem for path, label in even if label == "obj00"}
        assert chosen != {f"{image}" for image in range(len(chosen))}


def test_images_without_classes_are_refused(folders: tuple[Path, Path], tmp_path: Path):
    flat = tmp_path / "flat"
    flat.mkdir()
    Image.new("L", (2, 2)).save(flat / "one.png")
    with pytest.raises(DataError, match="has no class folders"):
        write_uncurated(
            tmp_path / "a.csv", tmp_path / "b.csv", flat, folders[1], seed=0, how=Pixels()
        )
