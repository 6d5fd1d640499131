"""The display of a run on terminals wide, narrow, colourless and old."""

from __future__ import annotations

import io
import time
from collections.abc import Callable

import pytest
from rich.cells import cell_len
from rich.console import Console

from deepcluster.runtime import interruption
from deepcluster.runtime.dashboard import Dashboard, sparkline
from deepcluster.runtime.display import Display
from deepcluster.runtime.errors import OneClusterDominates

EPOCH = {
    "loss": 3.5,
    "ln_k": 4.0,
    "clustering_loss": 0.5,
    "nmi_last": 0.75,
    "nmi_labels": None,
    "clusters": 60,
    "smallest": 3,
    "largest": 1500,
    "empty": 2,
    "seconds": {"look": 1.0, "group": 2.0, "learn": 3.0},
    "images_per_second": 1234.0,
    "warnings": [],
}


def journal(count: int, **changes: object) -> list[dict]:
    return [{**EPOCH, "epoch": n, "loss": 4.0 - n / count, **changes} for n in range(count)]


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def terminal(width: int, height: int = 40, **more: object) -> Console:
    more.setdefault("color_system", None)
    return Console(
        file=io.StringIO(),
        force_terminal=True,
        width=width,
        height=height,
        soft_wrap=True,
        legacy_windows=False,
        **more,
    )


def drawn(dashboard: Dashboard, width: int = 120, **more: object) -> str:
    console = terminal(width, **more)
    console.print(dashboard)
    return console.file.getvalue()


class Working:
    """A part of the work that has come so far."""

    def __init__(self, key: str, done: int, total: int, seconds: float = 10.0) -> None:
        self.label, self.key = f"epoch 4: {key}ing", key
        self.done, self.total, self.seconds = done, total, seconds

    @property
    def rate(self) -> float:
        return self.done / self.seconds


@pytest.fixture
def half_way() -> Dashboard:
    dashboard = Dashboard("runs/mine", 8, journal(3), ["look", "group", "learn"])
    dashboard.spent = {"look": 1.25, "group": 0.5}
    dashboard.current = Working("learn", 500, 1500)
    return dashboard


def test_what_it_says(half_way: Dashboard, clock: list[float]):
    half_way.completed({**EPOCH, "epoch": 3, "loss": 2.5}, 200.0)
    half_way.spent = {"look": 1.25}
    clock[0] += 20
    said = drawn(half_way)
    for part in (
        "runs/mine",
        "no warnings",
        "epoch 5 of 8",
        "about 3 min 00 s left",  # 200 s, of which 20 have passed
        "1.2 s",
        "500 of 1,500, 50 a second, 20 s left",
        "2.500 (ln k 4.00)",
        "0.750",
        "60 groups of 3 to 1,500 images, 2 empty",
        "1,234 images a second",
    ):
        assert part in said
    assert "folders" not in said  # there are none
    assert "\x1b" not in said


@pytest.mark.parametrize("width", [44, 60, 80, 120, 300])
@pytest.mark.parametrize("warned", ["", "one-cluster-dominates"])
def test_no_line_is_wider_than_the_terminal(half_way: Dashboard, width: int, warned: str):
    half_way.journal = journal(500, warnings=[warned] if warned else [])
    lines = drawn(half_way, width).splitlines()
    assert max(map(cell_len, lines)) <= width
    assert len(lines) <= 16
    assert (warned or "no warnings") in " ".join(lines)
    assert "500 of 1,500" in " ".join(lines)


@pytest.mark.parametrize(("width", "height"), [(30, 40), (120, 10)])
def test_where_there_is_little_room_one_line_does(half_way: Dashboard, width: int, height: int):
    lines = drawn(half_way, width, height=height).splitlines()
    assert len(lines) == 1
    assert cell_len(lines[0]) <= width
    assert lines[0].startswith("● epoch 4 of 8, learn 33%")


def test_the_light_has_the_colour_of_the_run(half_way: Dashboard):
    for warnings, colour in (([], "32"), (["head-is-guessing"], "31")):
        half_way.journal = journal(4, warnings=warnings)
        assert f"\x1b[1;{colour}m● " in drawn(half_way, color_system="standard")
    half_way.journal = journal(4, loss=3.99)
    assert "\x1b[1;33m● " in drawn(half_way, color_system="standard")
    half_way.journal = journal(2, loss=3.99)
    assert "too early to say" in drawn(half_way)
    without = drawn(half_way, color_system="standard", no_color=True)
    assert "\x1b[3" not in without
    assert "too early to say" in without


def test_an_old_terminal_gets_letters_it_knows(half_way: Dashboard):
    console = Console(
        file=io.TextIOWrapper(io.BytesIO(), encoding="ascii"),
        force_terminal=True,
        color_system=None,
        width=80,
        height=40,
        soft_wrap=True,
    )
    console.print(half_way)
    console.file.seek(0)
    assert "* no warnings" in console.file.read()


def test_a_young_run_a_supervised_one_and_the_closing_pass():
    young = Dashboard("a", 5, [], ["look", "group", "learn"])
    assert "epoch 1 of 5" in drawn(young)
    assert "loss" not in drawn(young)
    records = [{**record, "classes": 10, "accuracy": 0.25} for record in journal(3)]
    supervised = Dashboard("a", 5, records, ["learn"])
    assert "classes right" in drawn(supervised)
    assert "look " not in drawn(supervised)
    supervised.closes()
    supervised.current = Working("thumbnails", 1, 2)
    said = drawn(supervised)
    for part in ("closing pass", "look", "group", "1 of 2"):
        assert part in said


def test_a_request_to_stop_is_seen(half_way: Dashboard, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(interruption, "asked", lambda: 2)
    assert "stopping where nothing is lost" in drawn(half_way)


@pytest.mark.parametrize(
    ("values", "width", "line"),
    [
        ([0.0, 0.5, 1.0], 10, "▁▅█"),
        ([-3.0, 7.0], 10, "▁█"),
        ([0.0, 0.0, 1.0, 1.0], 2, "▁█"),
        ([], 5, ""),
    ],
)
def test_sparklines(values: list[float], width: int, line: str):
    assert sparkline(values, width, 0.0, 1.0) == line
    assert len(sparkline([0.1] * 1000, 37, 0, 1)) == 37


def shown_until(written: io.StringIO, ready: Callable[[str], bool]) -> None:
    until = time.monotonic() + 10
    while not ready(written.getvalue()) and time.monotonic() < until:
        time.sleep(0.05)


def test_the_last_state_stays_when_a_run_is_stopped():
    console = terminal(100, _environ={"TERM": "xterm"})
    written = console.file
    display = Display(console=console)

    def stopped() -> None:
        with (
            display.shown(),
            display.following("runs/mine", 8, journal(2)),
            display.phase("epoch 3: learning", 100, {}, "learn") as phase,
        ):
            phase.advance(40)
            shown_until(written, lambda said: "40 of 100" in said)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    whole = written.getvalue()
    assert "40 of 100" in whole[whole.rindex("╭") :]
    assert "\x1b[1A" not in whole[whole.rindex("╰") :]  # nothing goes back up over it
    assert whole.rindex("\x1b[?25h") > whole.rindex("\x1b[?25l")  # the cursor is back


def test_a_run_that_ends_says_so_and_warnings_reach_the_light():
    console = terminal(100, _environ={"TERM": "xterm"})
    display = Display(console=console)
    with display.shown(), display.following("runs/mine", 8, journal(2)):
        display.epoch({**EPOCH, "epoch": 2}, 8, 10.0)
        display.warn(OneClusterDominates("too much"))
        display.closes()
    whole = console.file.getvalue()
    last = whole[whole.rindex("╭") :]
    assert "3 epochs, done" in last
    assert "needs attention: one-cluster-dominates" in last


def test_without_a_terminal_nothing_of_it_is_written():
    written = io.StringIO()
    display = Display(console=Console(file=written, soft_wrap=True, highlight=False))
    with display.shown(), display.following("runs/mine", 8, journal(2)):
        with display.phase("epoch 3: learning", 10, {}, "learn") as phase:
            phase.advance(10)
        display.closes()
    assert written.getvalue() == ""
