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


def test_images_without_classes_are_refused(folders: tuple[Path, Path], tmp_path: Path):
    flat = tmp_path / "flat"
    flat.mkdir()
    Image.new("L", (2, 2)).save(flat / "one.png")
    with pytest.raises(DataError, match="has no class folders"):
        write_uncurated(
            tmp_path / "a.csv", tmp_path / "b.csv", flat, folders[1], seed=0, how=Pixels()
        )
