"""Ctrl-C and SIGTERM end a run at the next safe moment, saved; a second Ctrl-C ends it now."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

TERMINATED = signal.SIGTERM

_asked: signal.Signals | None = None


class Interrupted(BaseException):
    """The user or the system asked the run to stop; raised only where stopping is safe."""

    def __init__(self, by: signal.Signals) -> None:
        super().__init__(by.name)
        self.exit_code = 128 + by


def asked() -> signal.Signals | None:
    """The signal that asked the run to stop, if one did."""
    return _asked


def raise_if_asked() -> None:
    """Call between two units of work that lose nothing when the run ends here."""
    if _asked is not None:
        raise Interrupted(_asked)


@contextmanager
def noticed() -> Iterator[None]:
    """While open, SIGINT and SIGTERM are remembered instead of ending the process at once."""
    global _asked
    _asked = None

    def remember(number: int, frame: FrameType | None) -> None:
        global _asked
        if _asked is not None and number == signal.SIGINT:
            raise KeyboardInterrupt  # the user insists; the last checkpoint is whole
        _asked = _asked or signal.Signals(number)

    before = {s: signal.signal(s, remember) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)
        _asked = None
