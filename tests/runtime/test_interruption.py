"""Signals are remembered until it is safe to stop."""

import os
import signal

import pytest

from deepcluster.runtime import interruption
from deepcluster.runtime.interruption import Interrupted


def send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_is_remembered_and_raised_where_it_is_safe(number, code):
    with interruption.noticed():
        interruption.raise_if_asked()
        send(number)
        assert interruption.asked() == number
        with pytest.raises(Interrupted) as stopped:
            interruption.raise_if_asked()
    assert stopped.value.exit_code == code


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
def test_a_second_ctrl_c_ends_the_run_now(first):
    with interruption.noticed():
        send(first)
        with pytest.raises(KeyboardInterrupt):
            send(signal.SIGINT)


def test_a_second_sigterm_changes_nothing():
    with interruption.noticed():
        send(signal.SIGINT)
        send(signal.SIGTERM)
        assert interruption.asked() == signal.SIGINT


def test_signals_mean_what_they_did_before():
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)

    def fail() -> None:
        send(signal.SIGTERM)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), interruption.noticed():
        fail()
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
    assert interruption.asked() is None


def test_no_except_clause_for_errors_swallows_an_interruption():
    assert not issubclass(Interrupted, Exception)
