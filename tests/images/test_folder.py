from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepcluster.images.decode import Unusable, read
from deepcluster.images.folder import LEADS_OUT, decoded, encoded, find_images
from deepcluster.images.found_once import FoundOnce
from deepcluster.images.kept import Pixels
from deepcluster.images.source import Folder, quick_check
from deepcluster.images.store import MANIFEST, Contents
from deepcluster.runtime.errors import DataError, UsageError
from deepcluster.runtime.run_folder import RunFolder
from deepcluster.studies.claim import claimed


def paths(root: Path) -> list[str]:
    return [found.path for found in find_images(root)]


def touch(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")


def test_flat_nested_and_upper_case_are_found_in_the_order_of_their_bytes(tmp_path: Path) -> None:
    touch(tmp_path, "b.JPG", "a/z.png", "a.jpeg", "a/b/c.TIFF", "Z.gif", "é.bmp", "a-b.webp")
    touch(tmp_path, "notes.txt", "film.mp4", ".hidden.jpg", "._b.jpg", "Thumbs.db", ".git/x.png")
    assert paths(tmp_path) == [
        "Z.gif", "a-b.webp", "a.jpeg", "a/b/c.TIFF", "a/z.png", "b.JPG", "é.bmp",
    ]  # fmt: skip


def test_order_does_not_follow_the_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    touch(tmp_path, *(f"{folder}/{name}.png" for folder in "cab" for name in "312"))
    (tmp_path / "0link").symlink_to(tmp_path / "a")
    (tmp_path / "1link").symlink_to(tmp_path / "b")
    forward = find_images(tmp_path)
    scandir = os.scandir

    class Backwards(list):
        def __enter__(self) -> Backwards:
            return self

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(os, "scandir", lambda path: Backwards(reversed(list(scandir(path)))))
    assert find_images(tmp_path) == forward
    assert len(forward) == 9
    assert forward[0].path == "a/1.png"  # where it lies, not where a link leads to it


OURS = {
    "runs/photos-1": ("settings.json", {"format": 1, "effective": {}, "data": ""}),
    "kind0/imported": ("settings.json", {"format": 1, "effective": {}, "data": None, "why": []}),
    "reproductions/table1": ("study.json", {"study": "table1", "deepcluster": "0.1.0"}),
    "packed": (MANIFEST, {"format": 1, "images": 1, "checksums": [0]}),
}


def test_what_this_program_has_made_among_the_images_is_passed_over_and_counted(
    tmp_path: Path,
) -> None:
    touch(tmp_path, "kind0/a.png", "kind1/b/c.png", "notes.txt")
    before = FoundOnce(Folder(tmp_path))
    images, others = before.find(), before.others
    for folder, (name, told) in OURS.items():
        touch(tmp_path / folder, "index.parquet", "thumbnails/0.jpg", "figures/filters.png")
        (tmp_path / folder / name).write_text(json.dumps(told))
    (tmp_path / "latest").symlink_to(tmp_path / "runs/photos-1")
    assert find_images(tmp_path) == images
    ours = "of deepcluster's own runs, studies and stores"
    assert FoundOnce(Folder(tmp_path)).others == {**others, ours: 4}
    with pytest.raises(DataError, match=r"found 1 of deepcluster's own runs, studies and stores;"):
        quick_check(tmp_path / "runs")
    for folder in OURS:  # what is named is looked through
        assert paths(tmp_path / folder) == ["figures/filters.png", "thumbnails/0.jpg"]


def test_marks_are_those_that_the_program_leaves(tmp_path: Path) -> None:
    RunFolder(tmp_path / "a/run").begin({"effective": {}, "data": ""})
    with claimed(tmp_path / "a/study", "fig2", "cpu"):
        pass
    packed = Contents(Pixels(), images=1, bytes=9, block_ends=[9], checksums=[0])
    touch(tmp_path, "a/b.png", *(f"a/{made}/c.png" for made in ("run", "study", "store")))
    (tmp_path / "a/store" / MANIFEST).write_text(packed.to_json())
    assert paths(tmp_path) == ["a/b.png"]


PATIENT = '{"study": "1.2.840.113619", "patient": 0, "modality": "CR", "format": "DICOM"}'


@pytest.mark.parametrize("name", ["settings.json", "study.json", MANIFEST, "index.parquet"])
@pytest.mark.parametrize("told", ["", "{}", "[]", '{"format": 1}', "[" * 100_000, PATIENT])
def test_a_folder_with_a_file_of_such_a_name_is_an_ordinary_one(
    tmp_path: Path, name: str, told: str
) -> None:
    touch(tmp_path, "a/b/c.png")
    (tmp_path / "a" / name).write_text(told)
    assert paths(tmp_path) == ["a/b/c.png"]


def test_without_extension_the_first_bytes_decide(tmp_path: Path) -> None:
    (tmp_path / "photo").write_bytes(b"\xff\xd8\xff\xe0more")
    (tmp_path / "README").write_bytes(b"BM is how this text begins")
    touch(tmp_path, "archive.jpeg2")
    assert paths(tmp_path) == ["photo"]


def test_links_neither_hang_nor_count_twice(tmp_path: Path) -> None:
    root = tmp_path / "root"
    touch(root, "deep/er/one.jpg")
    touch(tmp_path / "outside", "two.jpg")
    (root / "deep" / "loop").symlink_to(root)
    (root / "again").symlink_to(root / "deep")
    (root / "self.jpg").symlink_to(root / "self.jpg")
    (root / "copy.jpg").symlink_to(root / "deep/er/one.jpg")
    (root / "elsewhere").symlink_to(tmp_path / "outside")
    (root / "gone.jpg").symlink_to(root / "nowhere")
    os.link(root / "deep/er/one.jpg", root / "hard.jpg")
    inside = ["deep/er/one.jpg", "gone.jpg", "self.jpg"]
    assert [one.path for one in find_images(root) if one.reason is None] == inside
    followed = find_images(root, follow_links=True)
    assert [one.path for one in followed] == sorted([*inside, "elsewhere/two.jpg"])
    with pytest.raises(Unusable, match="unreadable: no such file or directory"):
        read(root / "gone.jpg")


@pytest.fixture
def linking(tmp_path: Path) -> Path:
    """A folder with all kinds of links."""
    root = tmp_path / "root"
    touch(root, "deep/er/one.jpg")
    touch(tmp_path / "outside", "two.jpg", "four.jpg", "note.txt")
    touch(tmp_path / "root-2", "three.jpg")
    (tmp_path / "outside/five").write_bytes(b"\xff\xd8\xff\xe0more")
    (root / "deep" / "loop").symlink_to(root)
    (root / "up").symlink_to("..")
    (root / "again").symlink_to(root / "deep")
    (root / "copy.jpg").symlink_to("deep/er/one.jpg")
    (root / "gone.jpg").symlink_to(root / "nowhere")
    (root / "far.jpg").symlink_to(tmp_path / "nowhere")
    (root / "deep/four.jpg").symlink_to("../../outside/four.jpg")
    (root / "deep/same.jpg").symlink_to("../../outside/four.jpg")
    (root / "five").symlink_to(tmp_path / "outside/five")
    (root / "note.txt").symlink_to(tmp_path / "outside/note.txt")
    (root / "roundabout").symlink_to(root / "elsewhere")
    (root / "elsewhere").symlink_to(tmp_path / "outside")
    (root / "sibling").symlink_to(tmp_path / "root-2")  # whose name begins with the root's
    (root / ".hidden").mkdir()
    touch(root, ".hidden/six.jpg")
    (root / "six.jpg").symlink_to(".hidden/six.jpg")
    os.link(tmp_path / "outside/two.jpg", root / "hard.jpg")
    return root


def test_links_out_of_the_folder_are_followed_only_where_that_is_asked(
    linking: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = ["deep/er/one.jpg", "far.jpg", "gone.jpg", "hard.jpg", "six.jpg"]
    followed = {found.path: found for found in find_images(linking, follow_links=True)}
    assert {*inside, "sibling/three.jpg"} - {"hard.jpg"} < {*followed}  # elsewhere/two.jpg
    assert all(found.reason is None for found in followed.values())
    scandir, looked_at = os.scandir, list[Path]()

    def noted(path: str) -> os._ScandirIterator[str]:
        looked_at.append(Path(path).resolve())
        return scandir(path)

    monkeypatch.setattr(os, "scandir", noted)
    found = find_images(linking)
    assert [one.path for one in found if one.reason is None] == inside
    left_out = ["deep/four.jpg", "elsewhere", "sibling", "up"]  # two ways to one count once
    assert [one.path for one in found if one.reason == LEADS_OUT] == left_out
    assert len(found) == len(inside) + len(left_out)
    assert all(path.is_relative_to(linking) for path in looked_at)
    assert FoundOnce(Folder(linking)).others == {
        ".txt": 1, "links out of the folder (--follow-links)": 1,
    }  # fmt: skip


def test_the_folder_itself_may_be_a_link(linking: Path, tmp_path: Path) -> None:
    (tmp_path / "there").symlink_to(linking)
    direct = find_images(linking, follow_links=False)
    assert find_images(tmp_path / "there", follow_links=False) == direct


def test_pipes_are_never_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jpg")
    os.mkfifo(tmp_path / "pipe")
    assert paths(tmp_path) == []


def test_a_folder_that_cannot_be_entered_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    touch(tmp_path, "open/a.jpg", "shut/b.jpg")
    scandir = os.scandir

    def refusing(path: str) -> os._ScandirIterator[str]:  # a test may run as root: chmod is no bar
        if str(path).endswith("shut"):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    assert paths(tmp_path) == ["open/a.jpg", "shut"]


@pytest.mark.parametrize(
    "name", [b"new\nline.jpg", b"quo\"te'.jpg", b"caf\xe9.jpg", b"-rf.jpg", b"%41.jpg", b"a\t,.jpg"]
)
def test_odd_names_survive(tmp_path: Path, name: bytes) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).write_bytes(b"x")
    (path,) = paths(tmp_path)
    assert os.fsencode(path) == name
    text = encoded(path)
    assert text.isprintable()
    assert text.encode().decode() == text
    assert decoded(text) == path


@given(st.binary())
def test_any_name_comes_back_from_its_encoding(name: bytes) -> None:
    path = name.decode(errors="surrogateescape")
    text = encoded(path)
    assert decoded(text) == path
    assert len(text.splitlines()) <= 1
    text.encode()


def test_usual_names_stay_readable() -> None:
    assert encoded("Ferien 2019/Zürich (1).jpg") == "Ferien 2019/Zürich (1).jpg"
    assert encoded("100%\n") == "100%25%0A"


def test_quick_check_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"missing: no such file or directory$"):
        quick_check(tmp_path / "missing")
    touch(tmp_path, "film.mp4")
    with pytest.raises(UsageError, match=r"film\.mp4 is not a folder of images, nor a list"):
        quick_check(tmp_path / "film.mp4")
    touch(tmp_path, "b.MP4", "more/c.mp4", "notes.txt", "LICENSE")
    found = r"0 images in .*; found 3 \.mp4, 1 \.txt, 1 without extension; images are jpg, "
    with pytest.raises(DataError, match=found):
        quick_check(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="found nothing"):
        quick_check(tmp_path / "empty")
    touch(tmp_path, "more/d.jpg")
    quick_check(tmp_path)


def test_path_checks_do_not_import_torch() -> None:
    code = "import sys, deepcluster.images.source; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
