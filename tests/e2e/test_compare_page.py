"""The comparison's report in a real browser: silent, self-contained, and no wider than the screen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from comparisons import METHODS, NEWS, make_comparison
from documents import OUTSIDE, contrast
from elmokit.comparison.report import write_report

if TYPE_CHECKING:
    from playwright.sync_api import Browser

HOSTILE = ["<script>document.title = 'broken'</script>", "L" * 200, "a|b\nc", "新聞", "أخبار الرياضة", "$x$"]
CASES = {
    "news": list(NEWS),
    "thirty": [f"a.rather.long.topic.name.{number}" for number in range(30)],
    "hostile": HOSTILE,
}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: make_page(tmp_path_factory.mktemp(name), name) for name in CASES}


def make_page(folder: Path, name: str) -> Path:
    comparison = make_comparison(METHODS, 600, folder=folder, classes=CASES[name], missing=True, curve=True)
    title = "A title with an unbrokenunbrokenunbrokenunbrokenunbrokenunbrokenunbroken word"
    long = "\u202eA long story. " * 20 + "unbroken" * 40 + "<script>x</script>"
    examples = (replace(comparison.examples[0], text=long), *comparison.examples[1:])
    methods = comparison.methods
    if name == "hostile":
        names = [*HOSTILE, *HOSTILE]
        methods = tuple(
            replace(result, method=replace(result.method, name=text), reason=result.reason and "folder/" * 60)
            for result, text in zip(methods, names, strict=False)
        )
    command = "elmokit compare " + "x" * 300
    comparison = replace(comparison, title=title, examples=examples, methods=methods, command=command)
    return write_report(comparison)[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("case", list(CASES))
def test_the_page_is_silent_and_fits_the_screen(
    browser: Browser, pages: dict[str, Path], case: str, width: int, scheme: Any
) -> None:
    context = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme)
    page = context.new_page()
    messages: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    address = pages[case].as_uri()
    page.goto(address)
    page.evaluate("document.querySelectorAll('details').forEach(fold => { fold.open = true; })")
    assert page.evaluate(OUTSIDE) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.title().startswith("A title with an unbroken")
    for selector in (
        "h1",
        ".aside",
        "#scores svg text",
        "#ranking tbody td span",
        "#confusion td.strong span",
    ):
        assert contrast(page, selector) > 4.5, selector
    n_figures = page.locator("svg").count()
    assert page.locator("svg[role=img][aria-label]:has(> title)").count() == n_figures >= 10
    assert messages == []
    assert requests == [address]
    context.close()


def test_folds_open_by_hand(browser: Browser, pages: dict[str, Path]) -> None:
    page = browser.new_page()
    page.goto(pages["news"].as_uri())
    for section, inside in (("confusion", "table"), ("differences", "table"), ("details", "pre")):
        fold = page.locator(f"#{section} details").first
        assert not fold.locator(inside).first.is_visible()
        fold.locator("summary").first.click()
        assert fold.locator(inside).first.is_visible()
    page.close()


def test_the_page_prints_whole_on_a4(browser: Browser, pages: dict[str, Path]) -> None:
    page = browser.new_page(viewport={"width": 673, "height": 950}, color_scheme="dark")
    page.goto(pages["news"].as_uri())
    page.emulate_media(media="print")
    assert page.evaluate("document.querySelector('#details pre').getBoundingClientRect().height") > 0
    assert page.evaluate("document.querySelector('#ranking table').getBoundingClientRect().right") <= 674
    assert contrast(page, "#scores svg text") > 4.5, "dark pages print dark on white"
    page.close()
