"""The ground truth of Oxford5k and Paris6k as it lies on disk, whole and broken."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from deepcluster.evaluation.landmarks import Relevance, read_landmarks
from deepcluster.runtime.errors import DataError, UsageError

NAMES = ["keble_000001", "keble_000002", "keble_000003", "oxford_000004", "oxford_000005"]


@pytest.fixture
def oxford(tmp_path: Path) -> Path:
    (tmp_path / "images").mkdir()
    (tmp_path / "gt_files").mkdir()
    for name in NAMES:
        Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(tmp_path / f"images/{name}.webp")
    write(tmp_path, "keble_1", "oxc1_keble_000002 1.5 2 6.0 7.5", NAMES[1:2], NAMES[:1], NAMES[2:3])
    return tmp_path


def write(place: Path, title: str, query: str, good: list, ok: list, junk: list) -> None:
    for kind, lines in (("query", [query]), ("good", good), ("ok", ok), ("junk", junk)):
        text = "".join(f"{line}\n" for line in lines)
        (place / f"gt_files/{title}_{kind}.txt").write_text(text)


def test_the_four_files_of_a_query(oxford: Path):
    landmarks = read_landmarks(oxford)
    assert list(landmarks.paths) == [f"{name}.webp" for name in NAMES]
    (query,) = landmarks.queries
    assert (query.name, query.landmark) == ("keble_1", "keble")
    assert query.path == "keble_000002.webp"
    assert query.box == (1.5, 2.0, 6.0, 7.5)
    # Its own image is good, and stays among those that are searched.
    assert query.relevance == {"all": Relevance(frozenset({0, 1}), frozenset({2}))}
    assert not landmarks.is_revisited
    assert landmarks.absent == landmarks.left_out == []


def test_a_query_without_prefix_and_images_in_folders(oxford: Path):
    """As Paris6k has it."""
    (oxford / "images/defense").mkdir()
    (oxford / "images/keble_000002.webp").rename(oxford / "images/defense/keble_000002.webp")
    write(oxford, "keble_1", "keble_000002 1 2 6 7", NAMES[1:2], [], [])
    assert read_landmarks(oxford).queries[0].path == "defense/keble_000002.webp"


def test_absent_images_are_named_and_counted(oxford: Path):
    write(oxford, "keble_1", "oxc1_keble_000002 1 2 6 7", [*NAMES[:1], "gone_1"], [], ["gone_2"])
    write(oxford, "keble_2", "oxc1_gone_3 1 2 6 7", NAMES[:1], [], [])
    write(oxford, "keble_3", "oxc1_keble_000001 1 2 6 7", ["gone_1"], [], [])
    landmarks = read_landmarks(oxford)
    assert landmarks.absent == ["gone_1", "gone_2", "gone_3"]
    assert [query.name for query in landmarks.queries] == ["keble_1"]
    assert landmarks.queries[0].relevance["all"] == Relevance(frozenset({0}), frozenset())
    assert landmarks.left_out == [
        "keble_2: its image gone_3 is not there",
        "keble_3: no image that shows it is there",
    ]


@pytest.mark.parametrize(("good", "ok"), [(NAMES[2:3], []), ([], NAMES[2:3]), (["gone"], [])])
def test_an_image_that_counts_and_is_junk_too_is_refused(oxford: Path, good: list, ok: list):
    junk = [*NAMES[2:3], "gone"]
    write(oxford, "keble_1", "oxc1_keble_000002 1 2 6 7", [*NAMES[:1], *good], ok, junk)
    named = (good + ok)[0]
    expected = rf"gt_files: an image of keble_1 is in two of good, ok and junk: {named}; leave it"
    with pytest.raises(DataError, match=expected):
        read_landmarks(oxford)


def test_an_image_that_is_good_and_ok_counts_once(oxford: Path):
    write(oxford, "keble_1", "oxc1_keble_000002 1 2 6 7", NAMES[:2], NAMES[1:2], [])
    (query,) = read_landmarks(oxford).queries
    assert query.relevance["all"] == Relevance(frozenset({0, 1}), frozenset())


@pytest.mark.parametrize(
    "query",
    [
        "",
        "oxc1_keble_000002",
        "oxc1_keble_000002 1 2 x 4",
        "oxc1_keble_000002 1 2 nan 4",
        "oxc1_keble_000002 1 2 inf 4",
    ],
)
def test_a_query_that_cannot_be_read(oxford: Path, query: str):
    write(oxford, "keble_1", query, NAMES[:1], [], [])
    with pytest.raises(DataError, match=r"keble_1_query\.txt: a query is a name and four numbers"):
        read_landmarks(oxford)


def test_missing_pieces(oxford: Path, tmp_path: Path):
    with pytest.raises(UsageError, match="which images"):
        read_landmarks(None)
    with pytest.raises(UsageError, match="nowhere: there is no such"):
        read_landmarks(tmp_path / "nowhere")
    (oxford / "gt_files/keble_1_junk.txt").unlink()
    with pytest.raises(DataError, match=r"keble_1_junk\.txt cannot be read \(no such file .*\);"):
        read_landmarks(oxford)
    (oxford / "gt_files/keble_1_junk.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match=r"keble_1_junk\.txt cannot be read \(it is no text\);"):
        read_landmarks(oxford)
    write(oxford, "keble_1", "oxc1_gone 1 2 6 7", [], [], [])
    with pytest.raises(DataError, match=r"no query of .* can be asked .*gone is not there"):
        read_landmarks(oxford)
    for file in (oxford / "gt_files").iterdir():
        file.unlink()
    with pytest.raises(DataError, match="has no ground truth"):
        read_landmarks(oxford)


def test_two_images_of_one_name_are_refused(oxford: Path):
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(oxford / "images/keble_000001.png")
    with pytest.raises(DataError, match=r"two images .* are called keble_000001"):
        read_landmarks(oxford)


def revisited(**changes) -> dict:
    entry = {"bbx": [1, 2, 6, 7], "easy": [0], "hard": [2], "junk": [1, 4], **changes}
    # Another order than that of the files, and one image that is not there.
    return {"imlist": [*NAMES[:0:-1], "gone"], "qimlist": NAMES[:1], "gnd": [entry]}


def test_the_revisited_ground_truth(oxford: Path):
    file = oxford / "gnd_roxford5k.json"
    file.write_text(json.dumps(revisited()))
    landmarks = read_landmarks(oxford, ground_truth=file)
    assert list(landmarks.paths) == [f"{name}.webp" for name in NAMES[:0:-1]]
    assert landmarks.is_revisited
    assert landmarks.absent == ["gone"]
    (query,) = landmarks.queries
    assert query.path == "keble_000001.webp"
    assert query.landmark is None  # an image's name says where it was found, not what it shows
    assert query.relevance == {
        "easy": Relevance(frozenset({0}), frozenset({1, 2})),
        "medium": Relevance(frozenset({0, 2}), frozenset({1})),
        "hard": Relevance(frozenset({2}), frozenset({0, 1})),
    }


def test_a_revisited_query_of_which_nothing_is_there_is_not_asked(oxford: Path):
    file = oxford / "gnd_roxford5k.json"
    truth = revisited()
    truth["qimlist"].append("oxford_000005")
    truth["gnd"].append({"bbx": [1, 2, 6, 7], "easy": [4], "hard": [], "junk": [0]})
    file.write_text(json.dumps(truth))
    landmarks = read_landmarks(oxford, ground_truth=file)
    assert [query.name for query in landmarks.queries] == ["keble_000001"]
    assert landmarks.left_out == ["oxford_000005: no image that shows it is there"]


@pytest.mark.parametrize("box", [[5, 2, 5, 4], [1, 7, 6, 2]])
def test_a_box_without_area_refuses_no_ground_truth(oxford: Path, box: list[int]):
    write(oxford, "keble_2", f"oxc1_keble_000001 {' '.join(map(str, box))}", NAMES[:1], [], [])
    assert [query.box for query in read_landmarks(oxford).queries] == [(1.5, 2, 6, 7.5), (*box,)]
    file = oxford / "gnd.json"
    file.write_text(json.dumps(revisited(bbx=box)))
    (query,) = read_landmarks(oxford, ground_truth=file).queries
    assert query.box == (*box,)


@pytest.mark.parametrize("count", [1, 2])
def test_links_out_of_the_folder_are_counted(oxford: Path, tmp_path: Path, count: int):
    (tmp_path / "links").mkdir()
    for name in NAMES[:count]:
        (tmp_path / f"links/{name}.webp").symlink_to(oxford / f"images/{name}.webp")
    said = {1: "1 link leads out of it", 2: "2 links lead out of it"}[count]
    with pytest.raises(DataError, match=f"has no images: {said}"):
        read_landmarks(oxford, tmp_path / "links")


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        '{"imlist": []}',
        json.dumps(revisited(easy=[9])),
        json.dumps(revisited(hard=[0])),  # which is easy, too
        json.dumps(revisited(junk=[2])),
    ],
)
def test_a_revisited_ground_truth_that_cannot_be_read(oxford: Path, content: str):
    file = oxford / "gnd.json"
    file.write_text(content)
    with pytest.raises(DataError, match=r"gnd\.json is not the revisited ground truth"):
        read_landmarks(oxford, ground_truth=file)


def test_a_pickle_is_never_read(oxford: Path):
    file = oxford / "gnd_roxford5k.pkl"
    file.write_bytes(b"cos\nsystem\n(S'exit 1'\ntR.")
    with pytest.raises(UsageError, match=r"gnd_roxford5k\.pkl is a pickle.*gnd_roxford5k\.json"):
        read_landmarks(oxford, ground_truth=file)
