"""Processes that decode: the same store, and a file that breaks a decoder costs itself only."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from deepcluster.images import crew, shrink
from deepcluster.images.index import Index
from deepcluster.images.kept import Colour, Pixels
from deepcluster.images.packing import pack
from deepcluster.images.source import Folder
from deepcluster.images.trays import Trays
from deepcluster.runtime.errors import DeepClusterError

Picture = Callable[..., Image.Image]

# Found by every Python that starts with this folder in its path, before anything else.
BREAKING = """
import os
from deepcluster.images import crew, judging
crew.SECONDS = 1
decode_pixels = judging.decode_pixels
def breaking(data, **how):
    if b"crash" in data:
        os.abort()
    while b"endless" in data:
        pass
    if b"greedy" in data:
        bytearray(6 * 2**30)
    return decode_pixels(data, **how)
judging.decode_pixels = breaking
"""


@pytest.mark.parametrize("tray", ["lent", "too small", "none"])
def test_processes_and_threads_make_the_same_store(
    tray: str, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (photos / "cats/half.jpg").write_bytes((photos / "cats/1.jpg").read_bytes()[:500])
    (photos / "cats/empty.jpg").write_bytes(b"")
    Image.open(photos / "cats/1.jpg").convert("CMYK").save(photos / "cats/ink.jpg")
    Image.open(photos / "cats/1.jpg").save(photos / "cats/1.png")
    colour: Colour = "grey" if tray == "lent" else "rgb"
    here = pack(Folder(photos), tmp_path / "here", colour, Pixels(short_side=64), 2)
    monkeypatch.setattr(crew, "PROCESSES_PAY", 1)
    if tray == "too small":  # where pictures are put there
        small = "from deepcluster.images import trays; trays.SIZE = 1000"
        (tmp_path / "sitecustomize.py").write_text(small)
        monkeypatch.syspath_prepend(str(tmp_path))
    elif tray == "none":
        monkeypatch.setattr(crew, "Trays", lambda count: Trays(0))
    there = pack(Folder(photos), tmp_path / "there", colour, Pixels(short_side=64), 2)
    for name in ("pixels.u8", "layout.npy", "index.parquet", "store.json"):
        assert (here.folder / name).read_bytes() == (there.folder / name).read_bytes()
    assert len(here.index.unusable) == 2


def test_processes_without_the_compiled_kernel_make_the_same_store(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not shrink.is_there():
        pytest.skip("no kernel was compiled, or this processor has no AVX2")
    how = Pixels(short_side=20)
    here = pack(Folder(photos), tmp_path / "here", "grey", how, 1)
    (tmp_path / "sitecustomize.py").write_text(
        "from deepcluster.images import shrink; shrink._kernel = lambda: None"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(crew, "PROCESSES_PAY", 1)
    there = pack(Folder(photos), tmp_path / "there", "grey", how, 1)
    for name in ("pixels.u8", "layout.npy", "index.parquet", "store.json"):
        assert (here.folder / name).read_bytes() == (there.folder / name).read_bytes()


def test_what_breaks_a_decoder_is_named_and_the_rest_is_read(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(BREAKING)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(crew, "PROCESSES_PAY", 1)
    monkeypatch.setattr(crew, "SECONDS", 1)
    whole = (photos / "cats/1.jpg").read_bytes()
    for name in ("crash", "endless", "greedy"):
        (photos / f"dogs/{name}.jpg").write_bytes(whole + name.encode())
    index = Index.build(photos, 2)
    assert len(index) == 10
    assert index.unusable == [
        ("dogs/crash.jpg", "the decoder crashed on it"),
        ("dogs/endless.jpg", "takes more than 1 s to decode"),
        ("dogs/greedy.jpg", "too little memory to decode it"),
    ]
    assert not index.table["hash"].null_count


def test_it_ends_with_the_work(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    members: list[crew._Member] = []
    monkeypatch.setattr(crew, "PROCESSES_PAY", 1)
    begin = crew._Member.__init__

    def remembered(self: crew._Member, *arguments: object) -> None:
        members.append(self)
        begin(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(crew._Member, "__init__", remembered)

    class StopError(Exception):
        pass

    def stop(done: int, total: int) -> None:
        raise StopError

    with pytest.raises(StopError):
        Index.build(photos, 1, stop)
    assert len(members) == 1
    assert all(member.process.returncode is not None for member in members)


def test_its_processes_begin_without_what_few_files_need() -> None:
    code = "import sys, deepcluster.images.crew; print({'torch', 'tifffile'} & {*sys.modules})"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout == "set()\n", result.stderr


def test_who_waits_is_told_of_no_more_files_once_it_stops(photos: Path) -> None:
    files = Folder(photos).find()
    hands = crew.Crew(crew.Wanted(None, Pixels()), 1)
    try:
        assert len(hands.judge(Folder(photos), files[:2])) == 2
        hands.stop()
        assert hands.judge(Folder(photos), files[:2]) == []
    finally:
        hands.close()


def test_where_no_process_can_take_its_place_everybody_is_told(
    photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = Folder(photos).find()
    hands = crew.Crew(crew.Wanted(None, Pixels()), 1)
    try:
        hands.judge(Folder(photos), files[:1])
        member = hands._idle.get()
        member.process.kill()
        hands._idle.put(member)

        def full(*words: object, **how: object) -> None:
            raise BlockingIOError(11, "Resource temporarily unavailable")

        monkeypatch.setattr(subprocess, "Popen", full)
        for _ in range(2):
            with pytest.raises(DeepClusterError, match="no process can be started"):
                hands.judge(Folder(photos), files[:1])
    finally:
        hands.close()
