from __future__ import annotations

import io
import os
import shutil
import signal
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import child
import pytest
from PIL import Image
from rich.console import Console

from deepcluster import check_command, plan, session
from deepcluster.cli import main
from deepcluster.images import list_file, store
from deepcluster.images.checksum import crc32
from deepcluster.images.folder import Found
from deepcluster.images.index import Index
from deepcluster.images.kept import Pixels
from deepcluster.images.list_file import found_file
from deepcluster.intake import Intake
from deepcluster.presets import automatic, paper_alexnet, small
from deepcluster.runtime.display import Display
from deepcluster.runtime.errors import StorageError
from deepcluster.runtime.run_folder import RunFolder
from deepcluster.runtime.world import World

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _briefly(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(plan, "SECONDS", 0.01)
    monkeypatch.setattr(check_command, "best_device", lambda: "cpu")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def images(textures: Callable[[int], Path]) -> Path:
    return textures(24)


def test_what_is_there_and_what_training_would_take(images: Path, capsys: Capture) -> None:
    (images / "kind0/empty.png").write_bytes(b"")
    (images / "photo.jxl").write_bytes(b"x")
    (images / "notes.txt").write_bytes(b"x")
    shutil.copy(images / "kind0/0004.png", images / "kind0/again.png")
    Image.linear_gradient("L").resize((200, 100)).save(images / "kind1/grey.png")
    assert main(["check", str(images), "--workers", "2", "--index", "i.parquet"]) == 0
    said = capsys.readouterr().out
    for part in (
        "27 files in", ": 26 can be used", "1  empty file, such as kind0/empty.png",
        "passed over, and not counted among them: 1 .jxl (convert it to JPEG), 1 .txt",
        "smallest 72 x 72, median 72 x 72, largest 200 x 100", "modes: 25 RGB, 1 L",
        "labels, for monitoring only: 4 classes of 6 to 7 images",
        "copies: 2 files in 1 group of equal content", "kind0/0004.png = kind0/again.png",
        "would choose for 26 images", "memory: ", "disk: ", "time: about ", "look ", "group ",
        "learn ",
    ):  # fmt: skip
        assert part in said
    for reason in automatic(26, gpu=False)[1].values():
        assert reason in said
    assert Index.load("i.parquet").table.equals(Index.build(images, 1).table)


def test_a_list_and_shards_are_checked_too(images: Path, tmp_path: Path, capsys: Capture) -> None:
    with tarfile.open(tmp_path / "0.tar", "w") as tar:
        tar.add(images, ".")
    (tmp_path / "l.txt").write_text("\n".join(str(path) for path in images.rglob("*.png")))
    for place in ("*.tar", "l.txt"):
        assert main(["check", place]) == 0
        assert f"24 files in {place}: 24 can be used" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["check l.txt", "pack l.txt s", "train l.txt"])
def test_a_list_is_looked_through_once_and_ctrl_c_is_heard_meanwhile(
    command: str, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "l.txt").write_text("\n".join(str(path) for path in images.rglob("*.png")))
    looked: list[str] = []

    def found(folder: Path, path: str, label: str | None = None) -> Found:
        looked.append(path)
        if len(looked) == stop_at:
            os.kill(os.getpid(), signal.SIGINT)
        return found_file(folder, path, label)

    monkeypatch.setattr(list_file, "found_file", found)
    stop_at = 24
    settings = f"{child.PLAIN} --k 4 --epochs 1 --batch 16 --network.width 16 --device cpu"
    words = [*command.split(), *(settings.split() if "train" in command else [])]
    assert main(words) == 130
    assert len(looked) == 24
    looked.clear()
    stop_at = 0
    assert main(words) == 0
    assert len(looked) == 24


def test_ctrl_c_is_heard_while_a_store_is_verified(
    images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["pack", str(images), "s"]) == 0

    def checksum(*data: Any) -> int:
        os.kill(os.getpid(), signal.SIGINT)
        return crc32(*data)

    monkeypatch.setattr(store, "crc32", checksum)
    assert main(["check", "s"]) == 130
    assert main(["train", "s", "--k", "2", "--device", "cpu", "--out", "r"]) == 130


@pytest.mark.parametrize(
    ("bad", "good", "said"),
    [
        (2, 4, "2 of 6 files in there cannot be used, more than 5%"),
        (1, 1, "1 usable image; give at least 2"),
        (3, 0, "--max-unusable 1"),
    ],
)
def test_what_train_would_refuse_ends_with_three(
    bad: int, good: int, said: str, tmp_path: Path, capsys: Capture
) -> None:
    there = tmp_path / "there"
    there.mkdir()
    for number in range(bad):
        (there / f"{number}.jpg").write_bytes(b"")
    for number in range(good):
        Image.linear_gradient("L").rotate(number).save(there / f"good{number}.png")
    assert main(["check", "there"]) == 3
    shown = capsys.readouterr()
    assert said in shown.err
    assert f"{bad + good} files in there: {good} can be used" in shown.out
    assert "Traceback" not in shown.err


def test_copies_of_one_image_end_with_three(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "same").mkdir()
    for number in range(5):
        Image.linear_gradient("L").save(tmp_path / f"same/{number}.png")
    assert main(["check", "same"]) == 3
    shown = capsys.readouterr()
    assert "copies: 5 files in 1 group" in shown.out
    assert "0.png = 1.png = 2.png and 2 more" in shown.out
    assert "copies of one" in shown.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["check"], "which images? deepcluster check IMAGES"),
        (["check", "nowhere"], "nowhere: no such file"),
        (["check", "photos", "--worker", "2"], "no such option --worker; did you mean --workers?"),
        (["check", "photos", "--workers", "two"], "--workers"),
        (["check", "photos", "--workers", "0"], "--workers 0: use at least 1"),
        (["check", "photos", "more"], "more: not understood"),
        (["check", "photos", "--index", "photos/a.png"], "there is another file"),
        (["check", "photos", "--index", "no/where.parquet"], "there is no folder no that can be"),
        (["check", "photos", "--index", "photos"], "--index photos is a folder"),
        (["train", "photos", "--index", "i.parquet"], "no such file; deepcluster check writes it"),
    ],
)
def test_misuse_is_one_sentence(
    words: list[str], said: str, tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "photos").mkdir()
    Image.linear_gradient("L").save(tmp_path / "photos/a.png")
    before = (tmp_path / "photos/a.png").read_bytes()
    assert main(words) == 2
    complaint = capsys.readouterr().err
    assert complaint.startswith("deepcluster: ")
    assert complaint.count("\n") == 1
    assert said in complaint
    assert (tmp_path / "photos/a.png").read_bytes() == before


def test_help_fits_a_screen(capsys: Capture) -> None:
    with pytest.raises(SystemExit) as stop:
        check_command.check(["--help"])
    assert stop.value.code == 0
    shown = capsys.readouterr().out
    assert "--index" in shown
    assert len(shown.splitlines()) < 28


@pytest.mark.parametrize("change", [None, "changed", "added", "same size and time"])
def test_training_takes_the_index_while_it_is_true(
    change: str | None, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["check", str(images), "--index", "i.parquet"]) == 0
    expected = Index.load("i.parquet")
    one = images / "kind0/0000.png"
    if change == "changed":
        Image.linear_gradient("L").save(one)
    elif change == "added":
        Image.linear_gradient("L").save(images / "kind0/new.png")
    elif change is not None:
        before, content = one.stat(), bytearray(one.read_bytes())
        content[-1] ^= 1  # of a checksum that nobody reads
        one.write_bytes(content)
        os.utime(one, ns=(before.st_atime_ns, before.st_mtime_ns))
    built = []
    build = Index.build

    def spy(*arguments: Any) -> Index:
        built.append(1)
        return build(*arguments)

    monkeypatch.setattr(Index, "build", spy)
    console = Console(file=io.StringIO(), width=200)
    intake = Intake(images, Path("i.parquet"))
    run = replace(
        small(), pixels=Pixels(keep="files" if change != "same size and time" else "store")
    )
    index = intake.read(RunFolder(tmp_path / "run"), run, 0.05, Display(console=console))
    said = console.file.getvalue()  # type: ignore[attr-defined]
    if change is None:
        assert built == []
        assert index.table.equals(expected.table)
        assert said == ""
    elif change == "same size and time":  # packing reads every file, and sees it
        assert "not as i.parquet has it: the content of some files has changed" in said
    else:
        assert built == [1]
        assert len(index) == len(expected) + (change == "added")
        assert f"--index i.parquet is not used: {int(change == 'added')} added, 0 removed" in said


def test_a_run_is_refused_where_its_store_has_no_room(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = small()
    store = Intake(images).store_bytes(run)
    assert store == 24 * 72 * 72 * 3
    assert Intake(images).store_bytes(replace(run, pixels=Pixels(keep="files"))) == 0
    free = plan.needs(run, Index.build(images, 1)).checkpoints + store // 2
    usage = type("Usage", (), {"free": free})
    monkeypatch.setattr(session.shutil, "disk_usage", lambda _: usage)
    folder = RunFolder(tmp_path / "run")
    with pytest.raises(StorageError, match=r"decoded images about 0 MB and \d+ MB are free"):
        session._refuse_small_disk(folder, run, store)
    session._refuse_small_disk(folder, run, 0)
    folder.store.mkdir(parents=True)  # of a packing that was killed near its end
    (folder.store / "pixels.u8.partial").write_bytes(bytes(store * 3 // 4))
    session._refuse_small_disk(folder, run, store)


def test_needs_follow_the_number_of_images(images: Path) -> None:
    index = Index.build(images, 2)
    needs = plan.needs(small(), index)
    assert needs.features == 24 * 256 * 3 * 3 * 2  # conv5 of 64 pixels
    assert needs.whitened == 24 * 64 * 4
    assert needs.store == 24 * 72 * 72 * 3  # in colours, and never enlarged
    grey = replace(small(), network=replace(small().network, front="sobel"))
    assert plan.needs(grey, index).store == 24 * 72 * 72
    assert plan.needs(paper_alexnet(), index).checkpoints == pytest.approx(1399e6, rel=0.01)


def test_rates_are_those_of_the_network(images: Path) -> None:
    rates = plan.rates(small(), 24, World())
    assert min(rates.look, rates.group, rates.learn) > 0


def test_rates_are_measured_as_train_works(monkeypatch: pytest.MonkeyPatch) -> None:
    run = small()
    few = replace(run, draw=replace(run.draw, reassign=500.0))  # so that three make whole batches
    looked: list[tuple[object, ...]] = []
    sizes: list[int] = []
    whole, made = plan.looked_at, plan._batch

    def look(network: Any, *how: Any) -> Any:
        looked.append(how)
        return whole(network, *how)

    def batch(run: Any, size: int, world: World) -> Any:
        sizes.append(size)
        return made(run, size, world)

    monkeypatch.setattr(plan, "looked_at", look)
    monkeypatch.setattr(plan, "_batch", batch)
    plan.rates(few, 3, World())
    assert set(looked) == {("conv5", 6)}
    assert set(sizes[:-1]) == {3}  # there are no more to look at
    assert sizes[-1] == run.training.batch
