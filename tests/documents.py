"""Reports for tests: with everything that a document can have, and full of awkward names."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import numpy as np

from elmokit.report.document import (
    Cell,
    Code,
    Column,
    Document,
    Fact,
    Figure,
    Section,
    make_confusion_table,
    make_list,
    make_table,
)
from elmokit.report.figures import Line, Point, draw_lines, draw_reliability, draw_scatter

if TYPE_CHECKING:
    from playwright.sync_api import Page

HOSTILE = [
    "<script>alert('class')</script>",
    "a|b\nc",
    "$x_1$ and $",
    "long " * 40,
    "新聞",
    "أخبار",
    '😀 & "quotes"',
    "\x00\ud800\uffff",
    "\u202eturned",
]


VOID = {"meta", "link", "br", "img", "hr", "input"}


class Outline(HTMLParser):
    """Checks that all tags are closed in order, and keeps what the page is made of."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.words: list[str] = []
        self.feed(page)
        assert not self.open

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.ids += [value or "" for name, value in attrs if name == "id"]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def make_figures(names: list[str]) -> list[Figure]:
    """One figure of each kind."""
    numbers = range(len(names))
    return [
        draw_lines(
            [Line(name, [1, 2, 3], [0.5, 0.4, 0.3]) for name in names], x_label="epoch", caption="Loss"
        ),
        draw_lines(
            [Line(name, [10, 1000], [0.5, 0.8], [0.1, 0.05], look=1) for name in names],
            x_label="rows",
            in_percent=True,
            log_x=True,
        ),
        draw_scatter(
            [Point(str(n + 1), names[n], 10.0 ** (n % 4), 0.9 - n / 100, 0.8, 0.95, 0.5, n) for n in numbers],
            x_label="time",
            y_label="accuracy",
        ),
        draw_reliability([(0, 0.0, 0.0), (1200, 0.41, 0.35), (40, 0.9, 0.8)], caption=names[0]),
    ]


def make_document(names: list[str]) -> Document:
    """A document with all that a document can have, full of ``names``."""
    n = len(names)
    values = make_table(
        [Column("Class"), Column("F1", "right", "test"), Column("Support", "right", "test")],
        [[name, Cell("91.2", shade=0.9, note="90–92", bold=True), "1,900"] for name in names],
        highlight=0,
    )
    prose = make_table([Column("Text"), Column("True")], [[f"{name} " * 30, name] for name in names])
    confusion = make_confusion_table(np.eye(n, dtype=int).tolist(), names, names, "Test")
    sections = (
        Section("values", "Values", "First.\n\n- one\n- two", (values, prose)),
        Section("figures", "Figures", items=tuple(make_figures(names))),
        Section("confusion", "Confusion matrix", items=(confusion,)),
        Section(
            "details",
            "How it was made",
            items=(Code("elmokit fit <x> && echo ```", "Command"), make_list([("lr", "0.1")], "Settings")),
            folded=True,
        ),
    )
    return Document(
        " ".join(names),
        f"The answer is {names[0]}.\n\nAnd more.",
        sections,
        (Fact("Accuracy", "91.2%", "on test"),),
        tuple(names),
        "Measured on 100 rows.",
    )


OUTSIDE = """() => [...document.querySelectorAll('body *')]
    .filter(part => part.getBoundingClientRect().right > innerWidth + 1 && !part.closest('.scroll')
            && !part.closest('.skip') && part.checkVisibility())
    .map(part => part.outerHTML.slice(0, 80))"""
"""JavaScript: the elements that stick out of the window."""


def contrast(page: Page, selector: str, *, every: bool = False) -> float:
    """The contrast of a text with its background by the rule of WCAG; of ``every`` such text, the lowest."""
    pairs = page.evaluate(
        """selector => [...document.querySelectorAll(selector)].map(part => {
            const style = getComputedStyle(part), color = part.tagName == 'text' ? style.fill : style.color;
            const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
            const layers = ['white'];
            for (; part; part = part.parentElement)
                layers.splice(1, 0, getComputedStyle(part).backgroundColor);
            for (const layer of layers) { canvas.fillStyle = layer; canvas.fillRect(0, 0, 1, 1); }
            return [color, `rgb(${canvas.getImageData(0, 0, 1, 1).data.slice(0, 3).join(',')})`];
        })""",
        selector,
    )
    return min(_ratio(*map(_light, pair)) for pair in (pairs if every else pairs[:1]))


def _light(color: str) -> float:
    parts = [((float(part) / 255 + 0.055) / 1.055) ** 2.4 for part in re.findall(r"[\d.]+", color)[:3]]
    return float(np.dot([0.2126, 0.7152, 0.0722], parts))


def _ratio(one: float, other: float) -> float:
    return (max(one, other) + 0.05) / (min(one, other) + 0.05)
