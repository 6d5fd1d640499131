"""Purity by an ontology that fits on one page, counted by hand."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.stats import hypergeom

from deepcluster.runtime.errors import DataError, UsageError
from deepcluster.visuals import plots
from deepcluster.visuals.ontology import Ontology
from deepcluster.visuals.purity import ANIMAL, MAMMAL, panels_of, pure_shares

CHAIN = ["entity", "e1", "e2", "e3", "e4", "e5", ANIMAL, "a7", "a8", MAMMAL, "m10", "m11"]
PAIRS = [
    *pairwise(CHAIN),
    ("m11", "canine"),
    ("canine", "dog"),  # depth 13
    (ANIMAL, "pet"),
    ("pet", "dog"),  # a shorter way
    ("dog", "poodle"),
    ("canine", "wolf"),  # depth 13
    ("a8", "bird"),  # depth 9
    ("e5", "plant"),  # depth 6
    ("plant", "rose"),
]


@pytest.fixture
def listed(tmp_path: Path) -> Path:
    path = tmp_path / "is_a.txt"
    path.write_text("\n".join(f"{above} {below}" for above, below in PAIRS) + "\n\n")
    return path


@pytest.fixture
def ontology(listed: Path, tmp_path: Path) -> Ontology:
    words = tmp_path / "words.txt"
    words.write_text(f"{ANIMAL}\tanimal, beast\n{MAMMAL}\tmammal\n")
    return Ontology.read(listed, words)


def test_depth_is_the_longest_way_from_the_root(ontology: Ontology):
    depths = ontology.depths
    assert [depths[s] for s in ("entity", ANIMAL, MAMMAL, "pet")] == [0, 6, 9, 7]
    assert depths["dog"] == 13  # and 8 by way of pets
    assert ontology.ancestors("dog") == {*CHAIN, "canine", "pet", "dog"}
    assert ontology.name(ANIMAL) == "animal"
    assert ontology.name("dog") == "dog"


# Six clusters; what is in each, by class.
CLASSES = ["bird", "poodle", "rose", "wolf"]
CLUSTERS = [
    {"poodle": 8, "bird": 2},  # dog, mammal and animal: pure
    {"poodle": 7, "rose": 3},  # exactly 70%: not pure
    {"wolf": 3, "poodle": 3, "bird": 2},  # mammal 6 of 8: pure; dog 3 of 8: not
    {"rose": 4},
    {"bird": 5, "rose": 2},  # animal 5 of 7: 71%, pure; so is bird
    {},
]


def spread() -> tuple[np.ndarray, np.ndarray]:
    rows = [
        (number, CLASSES.index(name))
        for number, within in enumerate(CLUSTERS)
        for name, count in within.items()
        for _ in range(count)
    ]
    rows.append((-1, CLASSES.index("rose")))  # an image in no cluster
    clusters, classes = np.array(rows).T
    return clusters, classes


def test_shares_are_those_counted_by_hand(ontology: Ontology):
    panels, bars = panels_of(*spread(), CLASSES, ontology)
    found = {bar.synset: (bar.images, bar.pure) for bar in bars}
    assert found == {
        ANIMAL: (30, 10 + 8 + 5),
        "plant": (10, 4),
        "bird": (9, 5),
        MAMMAL: (21, 8 + 6),
        "dog": (18, 8),
        "wolf": (3, 0),
    }
    shown = [(panel.title, {bar.synset for bar in panel.bars}) for panel in panels]
    assert shown == [
        ("depth 6", {ANIMAL, "plant"}),
        ("depth 9, within animal", {"bird", MAMMAL}),
        ("depth 13, within mammal", {"dog", "wolf"}),
    ]
    assert next(bar for bar in bars if bar.synset == "dog").within == ("animal", "mammal")
    assert next(bar for bar in bars if bar.synset == "plant").share == pytest.approx(0.4)


def test_without_an_ontology_classes_take_the_place_of_synsets():
    panels, bars = panels_of(*spread(), CLASSES)
    assert [panel.title for panel in panels] == ["classes"]
    assert {bar.synset: bar.pure for bar in bars} == {"bird": 5, "poodle": 8, "rose": 4, "wolf": 0}
    assert all(bar.depth is None for bar in bars)


def test_chance_is_what_shuffling_gives():
    randomness = np.random.default_rng(0)
    clusters = np.repeat(np.arange(5), [3, 5, 8, 1, 3])
    classes = np.repeat([0, 1, 2], [11, 6, 3])
    members = {"first": [0], "others": [1, 2]}
    exact = {name: found[2] for name, found in pure_shares(clusters, classes, members).items()}
    shuffled = []
    for _ in range(1500):
        dealt = pure_shares(clusters, randomness.permutation(classes), members)
        shuffled.append([dealt[name][1] / dealt[name][0] for name in members])
    spread_of = np.std(shuffled, axis=0) / np.sqrt(len(shuffled))
    difference = np.abs(np.mean(shuffled, axis=0) - list(exact.values()))
    assert (difference < 4 * spread_of).all()


def test_a_class_outside_the_list_is_among_the_others(ontology: Ontology):
    clusters, classes = np.array([0, 0, 0, 0]), np.array([0, 0, 1, 1])
    _, bars = panels_of(clusters, classes, ["poodle", "n99999999"], ontology)
    assert {bar.synset: bar.images for bar in bars} == {ANIMAL: 2, MAMMAL: 2, "dog": 2}
    assert all(bar.pure == 0 for bar in bars)  # half of the cluster is of no known synset
    with pytest.raises(UsageError, match=r"none of the 1 classes is in .*'cats'"):
        panels_of(np.array([0]), np.array([0]), ["cats"], ontology)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("entity dog\ndog\n", r"line 2: 'dog' is not a parent and a child"),
        ("entity dog\n\nhound,dog is a\n", r"line 3"),
        ("entity a\na b\nb c\nc a\n", r"goes in a circle \(a > b > c > a\)"),
        ("entity a\na a\n", r"in a circle \(a > a\)"),
        ("\n", "is empty"),
        ("\xff\xfe", "is not a parent"),
    ],
)
def test_a_list_that_is_no_ontology_is_one_sentence(tmp_path: Path, lines: str, said: str):
    path = tmp_path / "is_a.txt"
    path.write_text(lines)
    with pytest.raises(DataError, match=said):
        Ontology.read(path)


def test_other_files_that_cannot_be_used(listed: Path, tmp_path: Path):
    with pytest.raises(UsageError, match=r"--wordnet .*nowhere: there is no such file"):
        Ontology.read(tmp_path / "nowhere")
    (tmp_path / "words").write_text("n01 without a tab\n")
    with pytest.raises(DataError, match=r"line 1: .* is not a synset, a tab and its words"):
        Ontology.read(listed, tmp_path / "words")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="cannot be read as text"):
        Ontology.read(tmp_path / "bytes")


def test_the_figure_has_a_panel_for_each_depth(ontology: Ontology, tmp_path: Path):
    panels, _ = panels_of(*spread(), CLASSES, ontology)
    (tmp_path / "p.png").write_bytes(plots.purity(panels))
    with Image.open(tmp_path / "p.png") as picture:
        assert picture.width > 2.5 * picture.height
        blue = np.asarray(picture.convert("RGB"))[..., :] == (31, 119, 180)
        columns = blue.all(axis=2).any(axis=0)
        thirds = np.array_split(columns, 3)
        assert all(third.any() for third in thirds)


def test_chance_is_that_of_hypergeometric_draws():
    randomness = np.random.default_rng(1)
    clusters, classes = randomness.integers(-1, 30, 900), randomness.integers(0, 4, 900)
    members = {"one": [0], "two": [1, 3], "most": [0, 1, 2], "all": [0, 1, 2, 3], "none": []}
    shares = pure_shares(clusters, classes, members)
    sizes = np.bincount(clusters[clusters >= 0]).tolist()
    total = sum(sizes)
    for name, some in members.items():
        there = int(np.isin(classes[clusters >= 0], some).sum())
        expected = sum(
            size
            * there
            / total
            * hypergeom.sf(int(0.7 * size + 1e-9) - 1, total - 1, there - 1, size - 1)
            for size in sizes
            if there
        )
        assert shares[name][2] * shares[name][0] == pytest.approx(expected, rel=1e-9)
