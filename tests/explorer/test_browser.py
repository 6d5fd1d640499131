"""The explorer in a real browser, served by the command itself."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import child
import pytest
from browsing import Watch, opened_browser, until

from deepcluster.images.folder import decoded

pytestmark = pytest.mark.slow


@pytest.fixture
def browser() -> Iterator[Any]:
    with opened_browser() as chromium:
        yield chromium


@pytest.fixture
def own_run(run: Path, tmp_path: Path) -> Path:
    leave = shutil.ignore_patterns("checkpoints", "report")
    return Path(shutil.copytree(run, tmp_path / "<b>run", ignore=leave))


@contextmanager
def served(run: Path) -> Iterator[str]:
    """The address at which the command serves the run; ended by Ctrl-C."""
    words = [sys.executable, "-u", "-m", "deepcluster", "explore", str(run), "--device", "cpu"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment) as server:
        try:
            assert server.stdout is not None
            lines = iter(server.stdout.readline, "")
            yield next(line for line in lines if line.startswith("http://")).strip()
            server.send_signal(signal.SIGINT)
            assert server.wait(30) == 130
            assert "stopped" in server.stdout.read()
        finally:
            server.kill()


def numbers(page: Any, selector: str) -> list[int]:
    found = page.eval_on_selector_all(selector, "all => all.map(one => +one.dataset.image)")
    return [int(number) for number in found]


def lines_of(download: Any) -> list[dict[str, str]]:
    with Path(download.path()).open(newline="") as file:
        return list(csv.DictReader(file))


def drop(page: Any, file: Path, selector: str = "#drop") -> None:
    """Drop a file, as from a desktop."""
    script = """([content, name]) => {
      const bytes = Uint8Array.from(atob(content), (letter) => letter.charCodeAt(0));
      const dropped = new DataTransfer();
      dropped.items.add(new File([bytes], name, { type: "image/png" }));
      return dropped;
    }"""
    content = b64encode(file.read_bytes()).decode()
    dropped = page.evaluate_handle(script, [content, file.name])
    page.dispatch_event(selector, "dragover", {"dataTransfer": dropped})
    page.dispatch_event(selector, "drop", {"dataTransfer": dropped})


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everything_works(browser: Any, own_run: Path, images: Path, tmp_path: Path, scheme: str):
    table = child.table(own_run / "clusters.parquet")
    groups = sorted({*table["cluster"]})
    with served(own_run) as address:
        context = browser.new_context(
            color_scheme=scheme, viewport={"width": 1280, "height": 900}, accept_downloads=True
        )
        page = context.new_page()
        watch = Watch(page)
        page.goto(address)
        title = page.title()
        assert title == "<b>run: explorer"

        def found(words: str, selector: str = "#verdict", seconds: float = 60) -> None:
            until(lambda: words in page.inner_text(selector), seconds)

        # The page of the report works as it does from disk.
        page.select_option("#sort", "number")
        shown = page.eval_on_selector_all("#cards .card", "all => all.map(c => +c.dataset.number)")
        assert shown == groups
        page.fill("#search", "<script>")
        until(lambda: page.inner_text("#found").startswith("1 name"))
        page.fill("#search", "")

        # A picture is dropped: its group, and itself as the nearest image.
        number = 20
        drop(page, images / decoded(table["path"][number]))
        found(f"Group {table['cluster'][number]}")
        assert numbers(page, "#like .tile")[0] == number
        assert page.inner_text("#like .tile:first-child .far") == "0.00"
        assert page.evaluate("document.getElementById('query').naturalWidth") == 72
        drop(page, own_run / "settings.json", "body")
        found("that file cannot be used: not an image")
        page.set_input_files("#file", images / decoded(table["path"][0]))
        found(f"Group {table['cluster'][0]}")

        # Neighbours by click, and on from there; Escape closes.
        second = numbers(page, "#like .tile")[1]
        page.click("#like .tile:nth-child(2) .look")
        until(lambda: page.inner_text("#inspected") == table["path"][second])
        until(lambda: page.evaluate("document.getElementById('large').naturalWidth") == 72)
        assert second not in numbers(page, "#neighbours .tile")
        page.screenshot(path=tmp_path / f"inspector-{scheme}.png")
        third = numbers(page, "#neighbours .tile")[0]
        page.click("#neighbours .tile:first-child .look")
        until(lambda: page.inner_text("#inspected") == table["path"][third])
        page.keyboard.press("Escape")
        assert not page.evaluate("document.getElementById('inspector').open")

        # From many groups to few, by keyboard.
        page.focus("#count")
        page.keyboard.press("Home")
        found("1 group. 0% of what", "#count-words")
        assert page.locator("#merged .card").count() == 1
        page.keyboard.press("End")
        found(f"{len(groups)} groups.", "#count-words")
        assert page.locator("#merged .card").count() == len(groups)
        page.keyboard.press("ArrowLeft")
        found(f"{len(groups) - 1} groups.", "#count-words")
        assert page.locator("#merged .card").count() == len(groups) - 1
        assert page.locator("#tree path.together").count() == 1
        assert page.locator("#tree image").count() == len(groups)

        # A name that would be code if it were not text.
        name = "<img src=x onerror=\"document.title='run'\"> & co"
        first = page.locator("#cards .card").first
        first.locator(".naming input").fill(name)
        page.keyboard.press("Enter")
        until(lambda: first.locator("h3").inner_text() == f"Group {groups[0]}: {name}")
        found(f"group {groups[0]} is called {name}", "#last")
        page.screenshot(path=tmp_path / f"explorer-{scheme}.png", full_page=True)
        page.reload()
        assert f"Group {groups[0]}: {name}" in page.inner_text(f"#group-{groups[0]}")

        # Two images of its page go to a new group.
        page.goto(f"{address}groups/{groups[0]}.html")
        assert page.inner_text("h1") == f"Group {groups[0]}: {name}"
        own = numbers(page, "#members .tile")
        assert sorted(own) == [n for n, c in enumerate(table["cluster"]) if c == groups[0]]
        boxes = page.locator("#members .pick input")
        boxes.nth(0).check()
        boxes.nth(1).focus()
        page.keyboard.press("Space")
        found("2 images selected", "#selected")
        page.screenshot(path=tmp_path / f"group-{scheme}.png")
        with page.expect_download() as download:
            page.click("#export")
        rows = lines_of(download.value)
        assert [int(row["id"]) for row in rows] == own[:2]
        assert {row["name"] for row in rows} == {name}
        page.click("#move")
        found("2 images moved to group", "#last")
        until(lambda: numbers(page, "#members .tile") == own[2:])
        page.click("#undo")
        until(lambda: sorted(numbers(page, "#members .tile")) == sorted(own))
        with page.expect_download() as download:
            page.click("text=This group as CSV")
        rows = lines_of(download.value)
        assert sorted(int(row["id"]) for row in rows) == sorted(own)

        # Two groups become one, and every page that there is shows no broken picture.
        page.goto(address)
        page.focus("#count")
        page.keyboard.press("End")
        page.keyboard.press("ArrowLeft")
        found(f"{len(groups) - 1} groups.", "#count-words")
        page.click("text=Make these one group")
        found("2 groups made one", "#last")
        until(lambda: page.locator("#cards .card").count() == len(groups) - 1)
        links = page.eval_on_selector_all("#cards .card > a", "all => all.map(link => link.href)")
        for link in links:
            page.goto(link)
            broken = "[...document.images].filter(i => i.complete && i.src && !i.naturalWidth)"
            assert page.evaluate(f"{broken}.length") == 0
            assert page.title().startswith("Group")
        steps = json.loads((own_run / "explorer.json").read_text())["steps"]
        assert [set(step) for step in steps] == [{"name", "group"}, {"merge", "to"}]

        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert background == {"light": "rgb(251, 250, 248)", "dark": "rgb(20, 22, 26)"}[scheme]
        for picture in ("inspector", "explorer", "group"):
            assert (tmp_path / f"{picture}-{scheme}.png").stat().st_size > 10_000
        refused = [words for words in watch.complaints if "400 (Bad Request)" not in words]
        assert refused == []  # the one upload that was no image is noted by the browser itself
        assert len(watch.complaints) == 1
        assert all(url.startswith((address, "blob:http://127.0.0.1")) for url in watch.asked)
        context.close()


def test_a_phone_scrolls_in_one_direction_only(browser: Any, own_run: Path):
    with served(own_run) as address:
        page = browser.new_context(viewport={"width": 360, "height": 740}).new_page()
        for place in ("", "groups/0.html"):
            page.goto(address + place)
            page.wait_for_timeout(500)
            assert page.evaluate("document.documentElement.scrollWidth") <= 360
        page.locator("#members .pick input").first.check()
        until(lambda: "1 image selected" in page.inner_text("#tray"))
        page.locator("#members .look").first.click()
        until(lambda: page.locator("#neighbours .tile").count() > 0)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_another_site_of_this_machine_can_neither_read_nor_write(
    browser: Any, own_run: Path, tmp_path: Path
):
    (tmp_path / "evil.html").write_text("<!DOCTYPE html><title>evil</title>")
    files = partial(Quiet, directory=str(tmp_path))
    with served(own_run) as address, ThreadingHTTPServer(("127.0.0.1", 0), files) as other:
        thread = threading.Thread(target=other.serve_forever)
        thread.start()
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{other.server_port}/evil.html")
        answers: list[int] = []
        page.on("response", lambda reply: answers.append(reply.status))
        script = """async ([address, method, mode]) => {
          try {
            const body = method === "POST" ? '{"group": 0, "name": "evil"}' : undefined;
            return await (await fetch(address, { method, mode, body })).text();
          } catch { return "refused"; }
        }"""
        for mode in ("cors", "no-cors"):
            assert page.evaluate(script, [f"{address}api/groups", "GET", mode]) == "refused"
            assert page.evaluate(script, [f"{address}api/name", "POST", mode]) == "refused"
        other.shutdown()
        thread.join()
        assert answers == [] or {*answers} == {403}
        assert not (own_run / "explorer.json").exists()


class Quiet(SimpleHTTPRequestHandler):
    """Serves a folder without telling everybody."""

    def log_message(self, *words: object) -> None:
        pass
