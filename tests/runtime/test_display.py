"""What a person sees while a run works."""

import io
import time
import warnings

import pytest
from rich.console import Console

from deepcluster.runtime.display import Display
from deepcluster.runtime.durations import duration
from deepcluster.runtime.errors import DimensionsShrunk, RowsExcluded


@pytest.fixture
def plain():
    """A display without a terminal, and what it wrote."""
    written = io.StringIO()
    return Display(console=Console(file=written, highlight=False, soft_wrap=True)), written


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0 s"),
        (44.6, "45 s"),
        (59.6, "1 min 00 s"),
        (200, "3 min 20 s"),
        (3599.7, "1 h 00 min"),
        (5 * 3600 + 10 * 60, "5 h 10 min"),
        (100 * 3600, "100 h 00 min"),
    ],
)
def test_a_duration_is_said_as_people_do(seconds, said):
    assert duration(seconds) == said


EPOCH = {
    "epoch": 2,
    "loss": 1.234,
    "ln_k": 2.303,
    "clustering_loss": 0.5,
    "nmi_last": None,
    "nmi_labels": 0.25,
    "clusters": 10,
    "smallest": 3,
    "empty": 0,
    "largest": 1500,
    "seconds": {"look": 1.0, "group": 2.0, "learn": 3.0},
    "images_per_second": 1234.0,
}


def test_an_epoch_is_one_plain_line_under_one_header(plain):
    display, written = plain
    with display.shown():
        display.epoch(EPOCH, 20, 200.0)
        display.epoch({**EPOCH, "epoch": 3, "nmi_last": 0.75}, 20, 100.0)
    lines = written.getvalue().splitlines()
    epochs = [line for line in lines if "/20" in line]
    assert len(epochs) == 2
    assert [line.split("/")[0].strip() for line in epochs] == ["3", "4"]
    for said in ("1.234", "2.303", "10: 3..1,500, 0", "0.250", "1,234", "3 min 20 s"):
        assert said in epochs[0]
    assert "0.750" in epochs[1]
    assert sum(line.startswith("epoch ") for line in lines) == 1
    assert "\x1b" not in written.getvalue()


def test_text_is_not_taken_for_markup(plain):
    display, written = plain
    display.say("images [bold] of [/x] and :smile:")
    assert written.getvalue() == "images [bold] of [/x] and :smile:\n"


def test_only_the_leading_process_speaks():
    written = io.StringIO()
    silent = Display(speaks=False, console=Console(file=written))
    with silent.shown():
        silent.say("a")
        silent.epoch(EPOCH, 20, 1.0)
        warnings.warn(RowsExcluded("3 images"), stacklevel=1)
        with silent.phase("looking", 10, {}, "look") as phase:
            phase.advance(10)
    assert written.getvalue() == ""
    assert silent.warned == ["rows-excluded"]


def test_a_warning_is_shown_by_name_and_remembered(plain):
    display, written = plain
    with display.shown():
        warnings.warn(DimensionsShrunk("8 dimensions instead of 256"), stacklevel=1)
    assert written.getvalue() == "warning (dimensions-shrunk): 8 dimensions instead of 256\n"
    assert display.warned == ["dimensions-shrunk"]


def test_every_repetition_of_a_warning_is_remembered(plain):
    display, _ = plain
    with display.shown():
        for _ in range(3):
            warnings.warn(RowsExcluded("3 images"), stacklevel=1)
    assert display.warned == ["rows-excluded"] * 3


def test_other_warnings_go_where_they_went_before(plain):
    display, written = plain
    with pytest.warns(UserWarning, match="unrelated"), display.shown():
        warnings.warn("unrelated", UserWarning, stacklevel=1)
    assert display.warned == []
    assert written.getvalue() == ""


def test_warnings_are_shown_as_before_afterwards(plain):
    before = warnings.showwarning
    with pytest.raises(ZeroDivisionError), plain[0].shown():
        raise ZeroDivisionError
    assert warnings.showwarning is before


def test_a_long_phase_says_so_without_a_terminal(plain, clock):
    display, written = plain
    with display.shown(), display.phase("epoch 1: looking", 1000, {}, "look") as phase:
        clock[0] += 20
        phase.advance(100)
        assert written.getvalue() == ""
        clock[0] += 20
        phase.advance(100)
        clock[0] += 20
        phase.advance(100)
    assert written.getvalue() == "  epoch 1: looking: 200 of 1,000, 5 a second\n"


def test_of_a_phase_on_nobody_knows_how_much_the_count_is_said(plain, clock):
    display, written = plain
    with display.shown(), display.phase("finding images", 0, {}, "find") as phase:
        clock[0] += 50
        phase.advance(200)
    assert written.getvalue() == "  finding images: 200, 4 a second\n"


def test_the_seconds_of_a_phase_are_added_up(plain, clock):
    seconds = {"look": 1.0}
    for name in ("looking", "whitening"):
        with plain[0].phase(name, 1, seconds, "look"):
            clock[0] += 2
    assert seconds == {"look": 5.0}


def test_a_phase_that_fails_counts_as_well(plain, clock):
    seconds = {}

    def fail() -> None:
        clock[0] += 3
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), plain[0].phase("learning", 1, seconds, "learn"):
        fail()
    assert seconds == {"learn": 3.0}


def test_a_terminal_shows_the_phase_under_way():
    written = io.StringIO()
    terminal = Console(file=written, force_terminal=True, width=100, _environ={"TERM": "xterm"})
    display = Display(console=terminal)
    with display.shown(), display.phase("epoch 1: looking", 10, {}, "look") as phase:
        phase.advance(5)
        until = time.monotonic() + 10
        while "5 of 10" not in written.getvalue() and time.monotonic() < until:
            time.sleep(0.05)
    assert "epoch 1: looking" in written.getvalue()
    assert "5 of 10" in written.getvalue()


def test_a_display_can_be_used_after_a_failure():
    written = io.StringIO()
    terminal = Console(file=written, force_terminal=True, width=100, _environ={"TERM": "xterm"})
    display = Display(console=terminal)
    with pytest.raises(ZeroDivisionError), display.shown():
        raise ZeroDivisionError
    with display.phase("afterwards", 10, {}, "look") as phase:
        phase.advance(5)
    display.say("the end")
    assert written.getvalue().endswith("the end\n")


def test_a_narrow_terminal_is_told_an_epoch_in_words():
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, width=60, color_system=None)
    Display(console=console).epoch({**EPOCH, "nmi_last": 0.75}, 20, 100.0)
    said = " ".join(written.getvalue().split())
    assert said.startswith("3/20: loss 1.23 of 2.30, same as last 0.75, 10 clusters of 3..1,500")
    assert said.endswith("6 s, 1 min 40 s left")
