"""The comparison's report in a real browser: quiet, self-contained, and no wider than the screen."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from comparison_facts import NEWS, comparison
from elmokit.comparison.report import write_comparison

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

HOSTILE = ["<script>document.title = 'broken'</script>", "L" * 200, "a|b\nc", "新聞", "أخبار الرياضة", "$x$"]
CASES = {
    "news": NEWS,
    "thirty": [f"a.rather.long.topic.name.{number}" for number in range(30)],
    "hostile": HOSTILE,
}
WIDE = """() => [...document.querySelectorAll('body *')]
    .filter(part => part.getBoundingClientRect().right > innerWidth + 1 && !part.closest('.scroll'))
    .map(part => part.outerHTML.slice(0, 80))"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {
        name: write_comparison(tmp_path_factory.mktemp(name), _facts(name, classes))[2]
        for name, classes in CASES.items()
    }


def _facts(name: str, classes: list[str]) -> dict[str, Any]:
    facts = comparison(classes, n_methods={"news": 11, "thirty": 12, "hostile": 6}[name])
    facts["title"] = "A title with an unbrokenunbrokenunbrokenunbrokenunbrokenunbrokenunbroken word"
    facts["commands"].append("elmokit compare " + "x" * 300)
    facts["examples"][0]["text"] = "\u202eA long story. " * 20 + "unbroken" * 40 + "<script>x</script>"
    if name == "hostile":
        for method, words in zip(facts["methods"], [*HOSTILE, *HOSTILE], strict=False):
            method["name"] = words
        facts["methods"][-1]["reason"] = "/".join(["folder"] * 60)
        facts["ranking"]["summary"] = ["unbroken" * 60]
    return facts


def _contrast(page: Page, selector: str) -> float:
    """The contrast of a text with the page, by the rule of WCAG."""
    shades = page.evaluate(
        """selector => {
            const part = getComputedStyle(document.querySelector(selector));
            return [document.querySelector(selector).tagName == 'text' ? part.fill : part.color,
                    getComputedStyle(document.body).backgroundColor];
        }""",
        selector,
    )
    lights: list[float] = []
    for shade in shades:
        parts = [float(part) for part in re.findall(r"[\d.]+", shade)]
        if parts[3:] == [0]:  # nothing, as behind a printed page
            parts = [255.0] * 3
        red, green, blue = (((part / 255 + 0.055) / 1.055) ** 2.4 for part in parts[:3])
        lights.append(0.2126 * red + 0.7152 * green + 0.0722 * blue)
    return (max(lights) + 0.05) / (min(lights) + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("case", list(CASES))
def test_the_page_is_quiet_and_fits_the_screen(
    browser: Browser, pages: dict[str, Path], case: str, width: int, scheme: Any
) -> None:
    context = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme)
    page = context.new_page()
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    address = pages[case].as_uri()
    page.goto(address)
    page.evaluate("document.querySelectorAll('details').forEach(fold => { fold.open = true; })")
    assert page.evaluate(WIDE) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.title().startswith("A title with an unbroken")
    for selector in (
        "h1",
        ".aside",
        "#confusions svg text",
        f"#cost .{'wide' if width > 640 else 'narrow'} text",
    ):
        assert _contrast(page, selector) > 4.5, selector
    n_pictures = page.locator("svg").count()
    assert page.locator("svg[role=img][aria-label]:has(> title)").count() == n_pictures > 20
    assert page.locator("#cost .wide").is_visible() == (width > 640)
    assert page.locator("#cost .narrow").is_visible() == (width < 640)
    assert said == []
    assert asked == [address]
    context.close()


def test_names_in_the_cost_picture_do_not_overlap(browser: Browser, pages: dict[str, Path]) -> None:
    for width, kind in ((1280, "wide"), (390, "narrow")):
        page = browser.new_page(viewport={"width": width, "height": 844})
        page.goto(pages["news"].as_uri())
        boxes = page.evaluate(
            """kind => [...document.querySelectorAll(`#cost .${kind} text`)].map(text => {
                const box = text.getBoundingClientRect();
                return [box.left, box.top + 2, box.right, box.bottom - 2];
            })""",
            kind,
        )
        assert len(boxes) >= 11
        for number, one in enumerate(boxes):
            for other in boxes[:number]:
                apart = one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
                assert apart, (one, other)
        page.close()


def test_on_a_phone_the_ranking_is_cards_with_all_figures(browser: Browser, pages: dict[str, Path]) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 844})
    page.goto(pages["news"].as_uri())
    assert page.evaluate("getComputedStyle(document.querySelector('.ranking tbody tr')).display") == "grid"
    card = page.locator(".ranking tbody tr").nth(1).inner_text()
    for words in (
        "ELMo, trainable mix",
        "Accuracy on test",
        "Precision",
        "Fit",
        "4.0 min",
        "Disk",
        "91.0 / 88.7",
    ):
        assert words in card
    assert (
        page.locator(".ranking tbody tr").nth(11).inner_text().split("\n")[-1].startswith("Failed: glove.txt")
    )
    page.close()


def test_folds_open_by_hand(browser: Browser, pages: dict[str, Path]) -> None:
    page = browser.new_page()
    page.goto(pages["news"].as_uri())
    for words, inside in (("Valid", "svg"), ("Every pair that was tested", "table"), ("Commands", "pre")):
        fold = page.locator("details", has=page.get_by_text(words, exact=words == "Valid")).last
        assert not fold.locator(inside).first.is_visible()
        fold.locator("summary").first.click()
        assert fold.locator(inside).first.is_visible()
    page.close()


@pytest.mark.parametrize("case", list(CASES))
def test_the_page_prints_whole_on_a4(browser: Browser, pages: dict[str, Path], case: str) -> None:
    page = browser.new_page(viewport={"width": 673, "height": 950}, color_scheme="dark")
    page.goto(pages[case].as_uri())
    page.emulate_media(media="print")
    assert page.evaluate("document.querySelector('#details pre').getBoundingClientRect().height") > 0
    assert page.locator("#cost .wide").is_visible()
    assert not page.locator("#cost .narrow").is_visible()
    if case == "news":
        assert page.evaluate("document.querySelector('.ranking').getBoundingClientRect().right") <= 674
    assert _contrast(page, "#accuracies .wide text") > 4.5, "dark pages print dark on white"
    page.close()
