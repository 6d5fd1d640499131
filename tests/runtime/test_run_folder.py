"""What a run leaves on disk."""

import errno
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from deepcluster.runtime import faults
from deepcluster.runtime.errors import ResumeError, StorageError, UsageError
from deepcluster.runtime.run_folder import (
    RunFolder,
    next_number,
    numbered,
    refuse_foreign,
    refuse_unwritable,
    storage_errors_named,
)


@pytest.fixture
def folder(tmp_path) -> RunFolder:
    return RunFolder(tmp_path)


@pytest.fixture
def fault():
    yield faults.ask
    faults.ask("")


def test_a_run_begins_with_its_settings(tmp_path):
    folder = RunFolder(tmp_path / "new" / "run")
    assert not folder.exists
    folder.begin({"effective": {"k": 3}, "data": "fingerprint"})
    assert folder.exists
    assert not folder.finished
    assert folder.settings["effective"] == {"k": 3}


def test_settings_that_cannot_be_read_are_refused(folder):
    (folder.path / "settings.json").write_text('{"format": 1')
    with pytest.raises(ResumeError, match=r"settings\.json cannot be read"):
        folder.settings  # noqa: B018


def test_settings_of_a_newer_version_are_refused(folder):
    folder.begin({"version": "9.0", "effective": {}, "data": ""})
    settings = json.loads((folder.path / "settings.json").read_text())
    (folder.path / "settings.json").write_text(json.dumps({**settings, "format": 2}))
    with pytest.raises(ResumeError, match=r"9\.0, which is newer"):
        folder.settings  # noqa: B018


@pytest.mark.parametrize("content", ["text", b"bytes", lambda path: path.write_text("called")])
def test_a_file_is_written(folder, content):
    folder.write("a/b.txt", content)
    expected = {str: "text", bytes: "bytes"}.get(type(content), "called")
    assert (folder.path / "a/b.txt").read_text() == expected
    assert [path.name for path in (folder.path / "a").iterdir()] == ["b.txt"]


def test_a_file_that_cannot_be_finished_leaves_the_old_one(folder):
    folder.write("x.txt", "old")

    def half(path: Path) -> None:
        path.write_text("ne")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        folder.write("x.txt", half)
    assert (folder.path / "x.txt").read_text() == "old"


def test_a_file_is_synced_before_it_is_renamed(folder, monkeypatch):
    happened = []
    fsync, replace = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda file: (happened.append("sync"), fsync(file)))
    monkeypatch.setattr(
        Path, "replace", lambda path, target: (happened.append("rename"), replace(path, target))
    )
    folder.write("x.txt", "new")
    assert happened == ["sync", "rename", "sync"]


def test_the_journal_gives_back_its_lines(folder):
    entries = [{"epoch": epoch, "loss": 0.1 * epoch} for epoch in range(3)]
    for entry in entries:
        folder.record(entry)
    assert folder.journal() == entries


def test_no_journal_has_no_lines(folder):
    assert folder.journal() == []


def test_every_cut_of_the_last_line_leaves_the_others(folder):
    folder.record({"epoch": 0, "loss": 1.5})
    whole = (folder.path / "journal.jsonl").read_text()
    last = '{"epoch": 1, "loss": 1.25}'
    for length in range(len(last)):
        (folder.path / "journal.jsonl").write_text(whole + last[:length])
        assert folder.journal() == [{"epoch": 0, "loss": 1.5}]


def test_epochs_that_no_checkpoint_vouches_for_are_forgotten(folder):
    for epoch in range(4):
        folder.record({"epoch": epoch})
        folder.write_assignment(epoch, np.array([epoch, -1]))
    with (folder.path / "journal.jsonl").open("a") as journal:
        journal.write('{"epoch": 4, "lo')
    folder.forget_after(2)
    folder.record({"epoch": 2})
    assert [entry["epoch"] for entry in folder.journal()] == [0, 1, 2]
    left = sorted(path.name for path in (folder.path / "assignments").iterdir())
    assert left == ["epoch-0000.npy", "epoch-0001.npy"]


def test_labels_are_kept_small(folder):
    folder.write_assignment(7, np.array([3, -1, 0]))
    kept = np.load(folder.path / "assignments/epoch-0007.npy", allow_pickle=False)
    assert kept.dtype == np.int32
    assert kept.tolist() == [3, -1, 0]


def test_a_folder_in_use_names_the_process_that_has_it(folder):
    with (
        folder.locked(),
        pytest.raises(ResumeError, match=f"in use by process {os.getpid()};"),
        RunFolder(folder.path).locked(),
    ):
        pass


def test_a_folder_is_free_again_afterwards(folder):
    with pytest.raises(ZeroDivisionError), folder.locked():
        raise ZeroDivisionError
    with folder.locked():
        pass


def test_the_lock_of_a_process_that_was_killed_is_free(folder):
    script = (
        "import os, sys, pathlib; from deepcluster.runtime.run_folder import RunFolder\n"
        "with RunFolder(pathlib.Path(sys.argv[1])).locked(): os.kill(os.getpid(), 9)"
    )
    ended = subprocess.run([sys.executable, "-c", script, str(folder.path)], check=False)
    assert ended.returncode == -9
    assert (folder.path / "lock").read_text().isdigit()
    with folder.locked():
        pass


def test_numbers_are_counted_not_spelled(tmp_path):
    for name in ("cats-2", "cats-10", "cats-1", "cats-x", "dogs-30", "cats-3-old", "cats"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "settings.json").touch()
    (tmp_path / "cats-40").write_text("a file")
    assert [path.name for path in numbered(tmp_path, "cats")] == ["cats-1", "cats-2", "cats-10"]
    assert next_number(tmp_path, "cats") == tmp_path / "cats-11"
    (tmp_path / "cats-11" / "store").mkdir(parents=True)  # of a run that hardly began
    assert next_number(tmp_path, "cats") == tmp_path / "cats-11"
    (tmp_path / "cats-11" / "letter.txt").touch()
    assert next_number(tmp_path, "cats") == tmp_path / "cats-12"


def test_the_first_number_is_one(tmp_path):
    assert numbered(tmp_path / "none", "a.b") == []
    assert next_number(tmp_path / "none", "a.b") == tmp_path / "none" / "a.b-1"


def test_a_strange_folder_is_refused_by_what_it_holds(tmp_path):
    (tmp_path / ".hidden").write_text("")
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(UsageError, match=r"already holds 'thesis\.tex'"):
        refuse_foreign(tmp_path)


def test_a_file_in_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "x").write_text("")
    with pytest.raises(UsageError, match="is a file"):
        refuse_foreign(tmp_path / "x")


@pytest.mark.parametrize(
    "name", ["settings.json", "lock", "index.parquet", "index.parquet.partial", ".DS_Store"]
)
def test_what_a_run_that_hardly_began_has_left_is_no_stranger(tmp_path, name):
    (tmp_path / name).write_text("")
    refuse_foreign(tmp_path)


def test_a_folder_that_does_not_exist_is_no_stranger(tmp_path):
    refuse_foreign(tmp_path / "a" / "b")


def test_a_place_that_cannot_be_written_is_refused_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda place, mode: place != tmp_path)
    with pytest.raises(StorageError, match=f"cannot write to {tmp_path};"):
        refuse_foreign(tmp_path / "a" / "b")


def test_a_place_that_permits_writing_and_does_not_do_it_is_refused_too(tmp_path, monkeypatch):
    """As /proc does: only trying tells. What was tried leaves nothing."""
    refuse_unwritable(tmp_path / "a" / "b", "--out")
    assert list(tmp_path.iterdir()) == []

    def refused(**where):
        raise FileNotFoundError(2, "No such file or directory", str(where["dir"]))

    monkeypatch.setattr(tempfile, "mkdtemp", refused)
    with pytest.raises(StorageError, match=rf"to {tmp_path} \(no such file or directory\); choose"):
        refuse_unwritable(tmp_path / "a" / "b", "--out")


def test_a_place_below_a_file_is_refused_whatever_the_files_bits(tmp_path):
    (tmp_path / "x").write_text("")
    (tmp_path / "x").chmod(0o777)
    with pytest.raises(
        UsageError, match=r"cannot write into .*/x, which is a file; choose another --out"
    ):
        refuse_unwritable(tmp_path / "x" / "a" / "b", "--out")
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(
        UsageError, match=r"/link, which is a link to nothing; choose another --out"
    ):
        refuse_unwritable(tmp_path / "link", "--out")


def test_a_name_that_no_disk_takes_is_refused_before_any_work(tmp_path):
    with pytest.raises(StorageError, match=r"cannot write .*: File name too long;"):
        refuse_unwritable(tmp_path / ("x" * 300), "--out")


def test_a_full_disk_is_named_with_what_is_left(folder, fault):
    fault("journal.write:no-space")
    with pytest.raises(StorageError, match=r"no space left to write .* MB free\); make room"):
        folder.record({"epoch": 0})


@pytest.mark.parametrize(
    ("number", "sentence"),
    [
        (errno.ENOSPC, "no space left to write"),
        (errno.EDQUOT, "no space left to write"),
        (errno.EFBIG, r"cannot write .*: a limit on file sizes was reached \(ulimit -f"),
        (errno.EACCES, "cannot write .*: Permission denied; write to another place"),
        (errno.EROFS, "cannot write .*: Read-only file system"),
        (errno.ENOTDIR, "cannot write .*: Not a directory"),
        (errno.ENOENT, "cannot write .*: No such file or directory"),
        (errno.EIO, "cannot write .*: Input/output error"),
    ],
)
def test_the_systems_errors_become_one_sentence(tmp_path, number, sentence):
    with pytest.raises(StorageError, match=sentence), storage_errors_named(tmp_path / "x"):
        raise OSError(number, os.strerror(number))
