"""The classifier's report in a real browser: quiet, self-contained, and no wider than the screen."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from elmokit.tasks.metrics import confident_mistakes, measure
from elmokit.tasks.report import write_report

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NEWS = ["World", "Sports", "Business", "Sci/Tech"]
HOSTILE = ["<script>document.title = 'broken'</script>", "L" * 200, "a|b\nc", "新聞", "أخبار الرياضة", "$x$"]
CASES = {
    "news": NEWS,
    "twenty": [f"a.rather.long.group.name.{number}" for number in range(20)],
    "hostile": HOSTILE,
}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {
        name: write_report(tmp_path_factory.mktemp(name), _facts(classes))[2]
        for name, classes in CASES.items()
    }


def _facts(classes: list[str]) -> dict[str, Any]:
    numbers = np.random.default_rng(0)
    splits, mistakes = {}, {}
    for name, n in (("train", 2000), ("valid", 300), ("test", 7600)):
        right = numbers.integers(0, len(classes), size=n)
        scores = numbers.normal(size=(n, len(classes))) * 1.4
        scores[np.arange(n), right] += 4
        chances = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        true = [classes[column] for column in right]
        predicted = [classes[column] for column in chances.argmax(axis=1)]
        splits[name] = measure(true, predicted, chances, classes)
        texts = [f"{'A long story. ' * 20}{'unbroken' * 20} <script>x</script>"] * n
        mistakes[name] = confident_mistakes(texts, true, predicted, chances, classes)
    return {
        "title": "A title with an unbrokenunbrokenunbrokenunbrokenunbrokenunbrokenunbroken word",
        "classes": classes,
        "splits": splits,
        "mistakes": {"test": mistakes["test"]},
        "history": [
            {"epoch": epoch, "train_loss": 1 / epoch, "valid_loss": 1.1 / epoch, "accuracy": 0.9, "lr": 1e-3}
            for epoch in range(1, 6)
        ],
        "mix": {
            "kind": "trainable",
            "form": "raw",
            "names": ["layer 0 (token encoder)", "layer 1", "layer 2"],
            "values": [0.5, 0.3, 0.2],
            "history": [[1 / 3] * 3, [0.5, 0.3, 0.2]],
        },
        "settings": {"path": "/".join(["folder"] * 40)},
        "command": "elmokit classify " + "x" * 300,
        "timings": {"encoding": 75.2, "documents_per_second": 123.4},
    }


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
    wide = page.evaluate(
        """() => [...document.querySelectorAll('body *')]
            .filter(part => part.getBoundingClientRect().right > innerWidth + 1 && !part.closest('.scroll'))
            .map(part => part.outerHTML.slice(0, 80))"""
    )
    assert wide == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.title().startswith("A title with an unbroken")
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    lightness = sum(map(int, paper.removeprefix("rgb(").rstrip(")").split(", "))) / 3
    assert (lightness > 200) == (scheme == "light")
    ink = page.evaluate("getComputedStyle(document.querySelector('#confusions svg text')).fill")
    assert ink != paper
    assert page.locator("svg[role=img][aria-label]").count() == 9
    assert said == []
    assert asked == [address]
    context.close()


def test_the_page_prints_with_its_folds_open(browser: Browser, pages: dict[str, Path]) -> None:
    page = browser.new_page()
    page.goto(pages["twenty"].as_uri())
    before = page.evaluate("document.querySelector('#details pre').checkVisibility()")
    page.emulate_media(media="print")
    height = page.evaluate("document.querySelector('#details pre').getBoundingClientRect().height")
    assert not before
    assert height > 0
    page.close()
