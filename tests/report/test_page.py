"""The page of a run: whole, valid, bounded, and harmless whatever the files are called."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from deepcluster.cli import main
from deepcluster.report import write_report
from deepcluster.runtime.errors import ResumeError
from deepcluster.runtime.run_folder import RunFolder

VOID = {"meta", "link", "img", "input", "br", "hr"}
NOT_CLOSED_IN_SVG = {"line", "rect", "path", "circle"}  # written as <line .../>


class Strict(HTMLParser):
    """Refuses tags that do not match, unknown elements, inline code and doubled ids."""

    KNOWN = frozenset(
        "html head meta title link script body a header p h1 h2 h3 span nav main section dl div dd "
        "dt ul ol li code figure figcaption svg line text path circle rect details summary label "
        "select option input output strong b i img table thead tbody tr th td footer".split()
    )

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.alts: list[str] = []
        self.text: list[str] = []
        self.scripts = 0

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        assert tag in self.KNOWN, tag
        names = [name for name, _ in attributes]
        assert len(names) == len(set(names)), (tag, names)
        for name, value in attributes:
            assert not name.startswith("on"), (tag, name)
            assert name != "style"
            if name == "id":
                assert value not in self.ids
                self.ids.add(value or "")
            if name in ("href", "src"):
                self.links.append(value or "")
        given = dict(attributes)
        if tag == "img":
            assert given.get("alt") is not None
            self.alts.append(given["alt"] or "")
        if tag == "script":
            assert "src" in given
            self.scripts += 1
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        assert tag in NOT_CLOSED_IN_SVG, tag
        self.handle_starttag(tag, attributes)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open, tag
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            assert not data.strip()
        self.text.append(data)


def parsed(path: Path) -> Strict:
    parser = Strict()
    parser.feed(path.read_text())
    parser.close()
    assert parser.open == []
    return parser


def check_everything(page: Path) -> None:
    """Every page is valid, refers to what is there only, and keeps its policy."""
    for file in [page, *page.parent.glob("groups/*.html")]:
        found = parsed(file)
        assert "default-src 'none'" in file.read_text()
        for link in found.links:
            place = link.partition("#")[0]
            assert not re.match(r"[a-z]+:|//", link), link
            assert not place or (file.parent / place).exists(), link
    assert parsed(page).scripts == 2


def test_three_hundred_images(generated: Callable[..., RunFolder]):
    page = write_report(generated(300, 12))
    check_everything(page)
    text = "".join(parsed(page).text)
    questions = [
        "What did I get?",
        "Has training helped?",
        "What are the groups?",
        "How did they change?",
        "What did the network learn?",
        "What was left out?",
        "How to go on",
    ]
    places = [text.index(question) for question in questions]
    assert places == sorted(places)
    assert (
        "300 images in 12 groups. Training helped: the nearest of all crops is the other crop of "
        "the same image for 40.0% of images, before training for 10.0%."
    ) in text
    assert "Yes: 40.0%, against 10.0% before." in text
    assert "cut short" in text
    assert "This page is a sample" not in text
    assert len(list((page.parent / "thumbnails").iterdir())) == 300


def test_every_image_is_on_the_page_of_its_group(generated: Callable[..., RunFolder]):
    folder = generated(300, 12)
    page = write_report(folder)
    table = pq.ParquetFile(folder.path / "clusters.parquet").read(use_threads=False).to_pydict()
    for group in range(12):
        names = sorted(
            n for n, c in zip(table["path"], table["cluster"], strict=True) if c == group
        )
        found = parsed(page.parent / f"groups/{group}.html")
        assert set(found.alts) == set(names)
    assert sum(names_to_search(page)) == 300


def names_to_search(page: Path) -> list[int]:
    """How many names each group has in the data that is searched."""
    text = (page.parent / "data/names.js").read_text()
    return [len(names) for _, _, names in json.loads(text.partition(".names = ")[2].rstrip(";\n"))]


def test_hostile_names_stay_names(generated: Callable[..., RunFolder], hostile: list[str]):
    page = write_report(generated(40, 2))
    check_everything(page)  # no element and no attribute that the templates do not have
    alts = [alt for file in page.parent.glob("groups/*.html") for alt in parsed(file).alts]
    assert set(hostile) <= set(alts)
    assert "broken <i>file</i>.jpg" in "".join(parsed(page).text)
    assert "/photos & <b>more</b>" in "".join(parsed(page).text)
    for script in page.parent.glob("data/*.js"):
        assert "<" not in script.read_text()
        script.read_text().encode("ascii")


def test_a_folder_whose_name_is_no_text(generated: Callable[..., RunFolder]):
    folder = generated(40, 2)
    named = folder.path.with_name("caf\udce9 <b>")  # the byte E9, as Latin-1 wrote it
    try:
        folder.path.rename(named)
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    check_everything(write_report(RunFolder(named)))


def test_a_hundred_thousand_rows_stay_small(generated: Callable[..., RunFolder]):
    page = write_report(generated(100_000, 1_000, epochs=2, inside="a long name " * 20))
    files = [file for file in page.parent.rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) < 50e6
    found = parsed(page)
    text = "".join(found.text)
    assert "This page is a sample: pictures of 4,000 of 100,000 images, 500 of 1,000 groups" in text
    assert "of 100,000 names can be searched here" in text
    assert len(list(page.parent.glob("groups/*.html"))) == 500
    parsed(next(page.parent.glob("groups/*.html")))


def test_an_older_run_says_what_it_lacks(generated: Callable[..., RunFolder]):
    folder = generated(60, 3)
    (folder.path / "baseline.json").unlink()
    for file in (folder.path / "thumbnails").iterdir():
        file.unlink()
    page = write_report(folder)
    check_everything(page)
    text = "".join(parsed(page).text)
    assert "The network before training was not measured" in text
    assert "No picture of the filters was kept" in text
    groups = [parsed(file) for file in page.parent.glob("groups/*.html")]
    assert not any(group.alts for group in groups)
    # The name stands where the picture would be.
    assert any("photos of summer/0000040.jpg" in "".join(group.text) for group in groups)


def test_an_unfinished_run_says_so(generated: Callable[..., RunFolder]):
    folder = generated(60, 3)
    for name in ("closing.json", "clusters.parquet", "features.npy", "baseline.json"):
        (folder.path / name).unlink()
    page = write_report(folder)
    check_everything(page)
    text = "".join(parsed(page).text)
    assert "Not finished" in text
    assert "Continue where the run stopped" in text
    assert "Group 2" in text  # of the last epoch


def test_a_run_that_has_only_begun(generated: Callable[..., RunFolder]):
    folder = generated(60, 3, epochs=0)
    for name in ("closing.json", "clusters.parquet", "features.npy", "baseline.json"):
        (folder.path / name).unlink()
    page = write_report(folder)
    check_everything(page)
    assert "There are no groups yet." in "".join(parsed(page).text)


def test_damaged_files_are_no_crash(generated: Callable[..., RunFolder]):
    folder = generated(60, 3)
    for name in ("baseline.json", "features.npy", "clusters.parquet", "journal.jsonl"):
        (folder.path / name).write_bytes(b"\x93NUMPY but no more")
    (folder.path / "assignments/epoch-0001.npy").write_bytes(b"")
    page = write_report(folder)
    check_everything(page)
    assert "clusters.parquet cannot be read" in "".join(parsed(page).text)
    folder.index.unlink()
    with pytest.raises(ResumeError, match="nothing to show"):
        write_report(folder)


def test_a_page_elsewhere_leaves_the_run_and_other_folders_alone(
    generated: Callable[..., RunFolder], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    folder, out = generated(60, 3), tmp_path / "new/page"
    before = sorted(folder.path.rglob("*"))
    for _ in range(2):
        assert main(["report", str(folder.path), "--out", str(out)]) == 0
        check_everything(out / "index.html")
    assert sorted(folder.path.rglob("*")) == before
    (tmp_path / "mine").mkdir()
    assert main(["report", str(folder.path), "--out", str(tmp_path / "mine")]) == 2
    assert "is there already and is no page" in capsys.readouterr().err


def test_the_page_is_replaced_whole(generated: Callable[..., RunFolder]):
    folder = generated(60, 3)
    page = write_report(folder)
    stray = page.parent / "groups/99.html"
    stray.write_text("of a grouping that is no more")
    assert write_report(folder) == page
    assert not stray.exists()
    assert not (folder.path / ".report.writing").exists()


def test_the_verb_needs_no_torch(generated: Callable[..., RunFolder]):
    folder = generated(60, 3)
    program = (
        "import sys; from deepcluster.cli import main; code = main(sys.argv[1:]); "
        "assert not {'torch', 'sklearn', 'torchvision'} & set(sys.modules); sys.exit(code)"
    )
    words = [sys.executable, "-c", program, "report"]
    done = subprocess.run([*words, str(folder.path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith("report/index.html")
    gone = subprocess.run([*words, "nowhere"], capture_output=True, text=True, check=False)
    assert gone.returncode == 2
    assert gone.stderr == "deepcluster: report nowhere: there is no such run\n"
