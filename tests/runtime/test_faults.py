"""Named points at which a run can be made to fail."""

import errno
import re
import signal
from pathlib import Path

import pytest

import deepcluster
from deepcluster.runtime import faults
from deepcluster.runtime.errors import StorageError
from deepcluster.runtime.run_folder import storage_errors_named


@pytest.fixture(autouse=True)
def nothing_asked():
    yield
    faults.ask("")


@pytest.fixture
def signals(monkeypatch):
    sent = []
    monkeypatch.setattr("os.kill", lambda process, number: sent.append(number))
    return sent


def test_without_a_fault_a_point_does_nothing():
    faults.ask("")
    faults.point("train.step")


@pytest.mark.parametrize(
    ("action", "number"),
    [("kill", signal.SIGKILL), ("term", signal.SIGTERM), ("interrupt", signal.SIGINT)],
)
def test_a_signal_is_sent_at_the_time_asked(signals, action, number):
    faults.ask(f"train.step:{action}@3")
    for reached in range(1, 6):
        faults.point("features.batch")
        faults.point("train.step")
        assert signals == ([number] if reached >= 3 else [])


def test_the_first_time_is_meant_where_none_is_said(signals):
    faults.ask("whiten:term")
    faults.point("whiten")
    assert signals == [signal.SIGTERM]


def test_no_space_is_what_the_system_would_say():
    faults.ask("journal.write:no-space")
    with pytest.raises(OSError, match="space") as error:
        faults.point("journal.write")
    assert error.value.errno == errno.ENOSPC


def test_a_typo_is_refused():
    faults.ask("train.stepp:kill")
    with pytest.raises(ValueError, match="no fault point"):
        faults.point("train.step")
    faults.ask("train.step:explode")
    with pytest.raises(ValueError, match="no fault action"):
        faults.point("train.step")


def test_every_point_is_somewhere_in_the_code_and_every_one_there_is_listed():
    sources = Path(deepcluster.__file__).parent.rglob("*.py")
    used = re.findall(r'faults\.point\("([^"]+)"\)', "".join(map(Path.read_text, sources)))
    assert set(used) == set(faults.POINTS)


def test_the_remedy_for_a_full_disk_is_named(tmp_path):
    faults.ask("whiten:no-space")
    with (
        pytest.raises(
            StorageError, match=r"no space left to write .*x/y.*make room, or write to another"
        ),
        storage_errors_named(tmp_path / "x" / "y"),
    ):
        faults.point("whiten")
