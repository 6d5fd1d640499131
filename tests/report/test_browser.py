"""The page in a real browser, from disk: everything works, nothing is fetched, no name runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from browsing import Watch, opened_browser, until

from deepcluster.report import write_report
from deepcluster.runtime.run_folder import RunFolder

pytestmark = pytest.mark.slow


@pytest.fixture
def browser() -> Iterator[Any]:
    with opened_browser() as chromium:
        yield chromium


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_sorting_search_and_slider(
    browser: Any, generated: Callable[..., RunFolder], tmp_path: Path, scheme: str
):
    page_file = write_report(generated(300, 12, epochs=4))
    context = browser.new_context(color_scheme=scheme, viewport={"width": 1200, "height": 900})
    page = context.new_page()
    watch = Watch(page)
    page.goto(page_file.as_uri())
    title = page.title()

    def numbers() -> list[int]:
        script = "cards => cards.filter(c => !c.hidden).map(c => +c.dataset.number)"
        return page.eval_on_selector_all(".card", script)

    def figures(name: str) -> list[float]:
        return page.eval_on_selector_all(".card", f"cards => cards.map(c => +c.dataset.{name})")

    page.select_option("#sort", "number")
    assert numbers() == list(range(12))
    page.select_option("#sort", "small")
    assert figures("size") == sorted(figures("size"))
    page.select_option("#sort", "tight")
    assert figures("tightness") == sorted(figures("tightness"), reverse=True)

    page.fill("#search", "0000042")
    until(lambda: page.inner_text("#found").startswith("1 name"))
    assert len(numbers()) == 1
    page.fill("#search", "<script>")
    until(lambda: page.inner_text("#found").startswith("2 names"))
    assert "<script>document.title='run'</script>.jpg" in page.inner_text("#matches")
    page.fill("#search", "")
    until(lambda: page.inner_text("#found") == "")
    assert len(numbers()) == 12

    assert page.inner_text("#epoch-number") == "end"
    bars = "spans => spans.map(span => span.style.height)"
    last = page.eval_on_selector_all("#whole span", bars)
    assert {*last} == {"100%"}
    page.focus("#epoch")
    page.keyboard.press("ArrowLeft")
    assert page.inner_text("#epoch-number") == "4"
    assert page.get_attribute("#epoch", "aria-valuetext") == "epoch 4"
    page.keyboard.press("Home")
    assert page.inner_text("#epoch-number") == "1"
    assert page.eval_on_selector_all("#whole span", bars) != last
    assert "The first grouping" in page.inner_text("#epoch-words")

    page.screenshot(path=tmp_path / f"{scheme}.png", full_page=True)
    assert (tmp_path / f"{scheme}.png").stat().st_size > 10_000
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == {"light": "rgb(251, 250, 248)", "dark": "rgb(20, 22, 26)"}[scheme]

    assert page.title() == title  # no name has run
    for group in range(12):
        page.goto((page_file.parent / f"groups/{group}.html").as_uri())
        assert page.title().startswith("Group")
        broken = "[...document.images].filter(image => image.complete && !image.naturalWidth)"
        assert page.evaluate(f"{broken}.length") == 0
    assert watch.complaints == []
    assert all(url.startswith("file:") for url in watch.asked)
    context.close()


def test_a_phone_scrolls_in_one_direction_only(browser: Any, generated: Callable[..., RunFolder]):
    page_file = write_report(generated(60, 3))
    page = browser.new_context(viewport={"width": 360, "height": 740}).new_page()
    for file in (page_file, page_file.parent / "groups/0.html"):
        page.goto(file.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_inline_code_would_not_run(browser: Any, generated: Callable[..., RunFolder]):
    page_file = write_report(generated(60, 3))
    text = page_file.read_text().replace("</main>", "<script>document.title='run'</script></main>")
    page_file.write_text(text)
    page = browser.new_page()
    page.goto(page_file.as_uri())
    assert page.title() != "run"
    page_file.write_text(text.replace("Content-Security-Policy", "x"))  # it would without one
    page.goto(page_file.as_uri())
    assert page.title() == "run"
