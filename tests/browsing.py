"""A real browser that complains: what it is asked for and what goes wrong is written down."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

BROWSER = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")


@contextmanager
def opened_browser() -> Iterator[Any]:
    """Chromium, or the test is skipped and says why."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: pip install playwright"
    )
    if BROWSER is None:
        pytest.skip("no chromium: apt install chromium, or name one by $CHROMIUM")
    with playwright.sync_playwright() as started:
        # Without its sandbox, since containers seldom allow one; and no name leads anywhere.
        words = ["--no-sandbox", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
        chromium = started.chromium.launch(executable_path=BROWSER, args=words)
        yield chromium
        chromium.close()


class Watch:
    """What a page, and all that it opens, asks for and complains of."""

    def __init__(self, page: Any) -> None:
        self.complaints: list[str] = []
        self.asked: list[str] = []
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.asked.append(request.url))

        def refuse(dialog: Any) -> None:
            self.complaints.append(dialog.message)
            dialog.dismiss()

        page.on("dialog", refuse)


def until(holds: Callable[[], bool], seconds: float = 10) -> None:
    """Return when it holds; playwright's own way of waiting is code that the policy refuses."""
    end = time.monotonic() + seconds
    while not _holds(holds):
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.05)


def _holds(question: Callable[[], bool]) -> bool:
    try:
        return question()
    except Exception as error:
        if "Execution context was destroyed" in str(error):  # the page is just being loaded again
            return False
        raise
