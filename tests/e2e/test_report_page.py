"""Reports in a real browser: silent, self-contained, readable, and no wider than the screen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from comparisons import METHODS, make_comparison
from documents import HOSTILE, OUTSIDE, contrast, make_document
from elmokit.comparison import report
from elmokit.report.document import Document, Section, make_table
from elmokit.report.render import write_report

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CASES = {
    "news": ["World", "Sports", "Business", "Sci/Tech"],
    "thirty": [f"a.rather.long.group.name.{number}" for number in range(30)],
    "hostile": [*HOSTILE, "<script>document.title = 'broken'</script>", "L" * 200, "unbroken" * 40],
}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    pages = {}
    for name, names in CASES.items():
        folder = tmp_path_factory.mktemp(name)
        pages[name] = write_report(folder, make_document(names), {})[2]
        pages[f"compare {name}"] = compare_page(folder / "compare", names)
    return pages


def compare_page(folder: Path, names: list[str]) -> Path:
    """A comparison with everything; the names are those of the classes and of methods."""
    comparison = make_comparison(METHODS, 600, folder=folder, classes=names, missing=True, curve=True)
    long = "\u202eA long story. " * 20 + "unbroken" * 40 + "<script>x</script>"
    methods = tuple(
        replace(result, method=replace(result.method, name=name), reason=result.reason and "folder/" * 60)
        for result, name in zip(comparison.methods, [*names, *names, *names], strict=False)
    )
    examples = (replace(comparison.examples[0], text=long), *comparison.examples[1:])
    command = "elmokit compare " + "x" * 300
    return report.write_report(replace(comparison, examples=examples, methods=methods, command=command))[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("case", [*CASES, *(f"compare {name}" for name in CASES)])
def test_the_page_is_silent_readable_and_fits_the_screen(
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
    assert page.title() != "broken"
    is_light = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(251, 251, 250)"
    assert is_light == (scheme == "light")
    for selector in ("h1", ".context", ".facts .value", "thead th", "td.strong span", "svg text", "pre"):
        assert contrast(page, selector) > 4.5, selector
    assert page.locator("svg[role=img][aria-label]:has(> title)").count() == page.locator("svg").count() > 2
    assert messages == []
    assert requests == [address]
    context.close()


def test_on_a_phone_tables_of_texts_become_lists_with_labels(
    browser: Browser, pages: dict[str, Path]
) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 844})
    page.goto(pages["news"].as_uri())
    assert page.evaluate("getComputedStyle(document.querySelector('table.prose td')).display") == "block"
    label = "getComputedStyle(document.querySelector('table.prose td'), '::before').content"
    assert "attr(data-label)" in page.evaluate(label) or "True" in page.evaluate(label)
    page.close()


def test_wide_tables_scroll_with_their_names_in_sight(browser: Browser, pages: dict[str, Path]) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 844})
    page.goto(pages["thirty"].as_uri())
    scroll = page.locator("#confusion .scroll")
    assert scroll.evaluate("part => part.scrollWidth > part.clientWidth")
    scroll.evaluate("part => { part.scrollLeft = 500; }")
    name = page.locator("#confusion tbody th").first
    assert name.evaluate("part => part.getBoundingClientRect().left") >= 0
    page.close()


def test_a_table_of_very_many_rows_can_be_searched(browser: Browser, tmp_path: Path) -> None:
    rows = [[f"class {number}", "1.0"] for number in range(3000)]
    table = make_table(["Class", "F1"], rows, searchable=True)
    document = Document("Many", "", (Section("classes", "Classes", items=(table,)),))
    path = write_report(tmp_path, document, {})[2]
    for width in (390, 1280):
        page = browser.new_page(viewport={"width": width, "height": 844})
        messages: list[str] = []
        page.on("console", lambda message: messages.append(message.text))  # noqa: B023
        page.goto(path.as_uri())
        assert page.evaluate("document.documentElement.scrollHeight") < 3000
        page.locator("input[type=search]").fill("CLASS 299")
        assert page.locator("tbody tr:visible").count() == 11
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert messages == []
        page.close()


@pytest.mark.parametrize("case", ["news", "compare news"])
def test_folds_open_by_hand_and_are_open_in_print(
    browser: Browser, pages: dict[str, Path], case: str
) -> None:
    page = browser.new_page(viewport={"width": 673, "height": 950}, color_scheme="dark")
    page.goto(pages[case].as_uri())
    assert not page.locator("#details pre").is_visible()
    page.locator("#details summary").click()
    assert page.locator("#details pre").is_visible()
    page.locator("#details summary").click()
    page.emulate_media(media="print")
    assert page.evaluate("document.querySelector('#details pre').getBoundingClientRect().height") > 0
    assert page.evaluate("document.querySelector('table').getBoundingClientRect().right") <= 674
    for selector in ("h1", "svg text", "td.strong span"):
        assert contrast(page, selector) > 4.5, f"{selector}: dark pages print dark on white"
    page.close()
