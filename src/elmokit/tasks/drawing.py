"""What pictures are drawn with: the page's colours, room for names, and SVG that is set into the page.

A picture names no colour and no font of its own but the page's variables (``--ink``, ``--muted``,
``--rule``, ``--accent``, ``--second``, ``--third``, ``--on-accent``, ``--paper``), so it follows the page
into the dark and onto paper. Text stays text: whatever script a class name is in, the reader's own fonts
show it. Each picture says in words what it shows, for whoever cannot see it.
"""

from __future__ import annotations

import contextlib
import io
import logging
import math
import re
import unicodedata
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING
from xml.etree import ElementTree

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "ACCENT",
    "FONT",
    "INK",
    "MUTED",
    "ON_ACCENT",
    "PAPER",
    "RULE",
    "SECOND",
    "THIRD",
    "apart",
    "columns_of",
    "drawing",
    "dressed",
    "finished",
    "one_line",
    "page_colours",
    "plot_axes",
    "short",
]

INK, MUTED, RULE, ACCENT = "#010101", "#020202", "#030303", "#040404"
ON_ACCENT, PAPER, SECOND, THIRD = "#050505", "#060606", "#070707", "#080808"
_VARIABLES = {
    INK: "var(--ink, #1d2126)",
    MUTED: "var(--muted, #5d6671)",
    RULE: "var(--rule, #d9dde2)",
    ACCENT: "var(--accent, #1c62a8)",
    ON_ACCENT: "var(--on-accent, #ffffff)",
    PAPER: "var(--paper, #ffffff)",
    SECOND: "var(--second, #b04a0b)",
    THIRD: "var(--third, #1f7a55)",
}
FONT = 12.0
_NAME_WIDTH = 18
_TURNS = re.compile("[\u202a-\u202e\u2066-\u2069]")  # they turn the words after them, too


def one_line(text: str) -> str:
    """Text on one line, with the characters that no page can show replaced."""
    shown = (
        " " if mark.isspace() else "\N{REPLACEMENT CHARACTER}" if _unshowable(mark) else mark
        for mark in _TURNS.sub("", text)
    )
    return " ".join("".join(shown).split())


def short(text: str, width: int = _NAME_WIDTH) -> str:
    """A name cut to so many columns; East Asian characters and emoji take two."""
    text = one_line(text)
    if columns_of(text) <= width:
        return text
    kept = ""
    for mark in text:
        if columns_of(kept + mark) > width - 1:
            break
        kept += mark
    return kept.rstrip() + "…"


def columns_of(text: str) -> int:
    """How many columns a text takes."""
    return sum(
        0 if unicodedata.combining(mark) else 2 if unicodedata.east_asian_width(mark) in "WF" else 1
        for mark in text
    )


def apart(places: Sequence[float], gap: float, low: float = -math.inf, high: float = math.inf) -> list[float]:
    """The places, moved as little as may be until none is within ``gap`` of another.

    They stay between ``low`` and ``high``, if there is room for all of them.
    """
    order = sorted(range(len(places)), key=lambda row: places[row])
    runs: list[tuple[float, int]] = []  # the first place of a run without spare room, and its length
    for number, row in enumerate(order):
        start, length = places[row] - number * gap, 1
        while runs and runs[-1][0] > start:
            before, size = runs.pop()
            start, length = (before * size + start * length) / (size + length), size + length
        runs.append((start, length))
    starts = [start for start, length in runs for _ in range(length)]
    top = max(low, high - gap * (len(places) - 1))
    result = [0.0] * len(places)
    for number, (row, start) in enumerate(zip(order, starts, strict=True)):
        result[row] = min(max(start, low), top) + number * gap
    return result


def plot_axes(figure: Figure, box: tuple[float, float, float, float]) -> Axes:
    """Axes at a box of left, bottom, width and height in picture units, with quiet edges."""
    width, height = figure.get_size_inches() * 72
    axes = figure.add_axes((box[0] / width, box[1] / height, box[2] / width, box[3] / height))
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(RULE)
    axes.tick_params(colors=MUTED, length=0, labelsize=FONT - 1, pad=6)
    axes.set_axisbelow(True)
    return axes


@contextlib.contextmanager
def drawing(name: str) -> Iterator[Figure]:
    """An empty figure, drawn with matplotlib's own defaults whatever the reader has set, and in silence."""
    log = logging.getLogger("matplotlib")
    level = log.level
    log.setLevel(logging.ERROR)  # the first import may say that it looks for fonts
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a glyph it lacks is the reader's fonts' business
            import matplotlib
            from matplotlib.figure import Figure

            own = {key: value for key, value in matplotlib.rcParamsDefault.items() if "backend" not in key}
            own |= {"svg.fonttype": "none", "svg.hashsalt": name, "font.family": ["DejaVu Sans"]}
            with matplotlib.rc_context(own):
                yield Figure(dpi=72)
    finally:
        log.setLevel(level)


def finished(figure: Figure, name: str, words: str) -> str:
    """The figure as SVG for a page: its own ids, the page's colours and fonts, and its words."""
    written = io.StringIO()
    figure.savefig(written, format="svg", transparent=True, metadata={"Date": None})
    root = ElementTree.fromstring(written.getvalue())
    for parent in list(root.iter()):
        for child in list(parent):
            tag = child.tag.rpartition("}")[2]
            empty = child.get("style") == "fill: none"
            if tag in ("metadata", "style") or (tag == "path" and empty and not child.get("id")):
                parent.remove(child)
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        element.tail = None
        if element.tag != "text":
            element.text = None
        for key, value in list(element.attrib.items()):
            del element.attrib[key]
            element.set(*_attribute(key, value, name))
    for parent in list(root.iter()):
        for child in [child for child in parent if child.tag in ("g", "defs") and not len(child)]:
            parent.remove(child)
    width, height = figure.get_size_inches() * 72
    return dressed(root, width, height, words)


def dressed(root: ElementTree.Element, width: float, height: float, words: str) -> str:
    """A drawing as text, with its size and its words; the first sentence is its title."""
    words = one_line(words)
    first, _, rest = words.partition(". ")
    for place, (tag, text) in enumerate((("title", first.rstrip(".")), ("desc", rest))):
        if text:
            said = ElementTree.Element(tag)
            said.text = text
            root.insert(place, said)
    root.attrib.update(
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "width": f"{width:.0f}",
            "height": f"{height:.0f}",
            "role": "img",
            "aria-label": words,
            "font-family": "system-ui, sans-serif",
            "stroke-linejoin": "round",
        }
    )
    return ElementTree.tostring(root, encoding="unicode")


def page_colours(style: str) -> str:
    """A style with the page's variables in place of the colours that stand for them."""
    return re.sub("#[0-9a-f]{6}", lambda found: _VARIABLES.get(found[0], found[0]), style)


def _attribute(key: str, value: str, name: str) -> tuple[str, str]:
    key = key.rpartition("}")[2]
    if key == "id":
        return key, f"{name}-{value}"
    if key == "href":
        return key, value.replace("#", f"#{name}-", 1)
    if key == "clip-path":
        return key, value.replace("url(#", f"url(#{name}-", 1)
    if key == "d":
        return key, " ".join(value.split())
    if key == "style":
        return key, page_colours(re.sub(r"font-family:[^;]*;?\s*", "", value))
    return key, value


def _unshowable(mark: str) -> bool:
    """Control characters, halves of surrogate pairs and the places Unicode keeps empty."""
    return unicodedata.category(mark) in ("Cc", "Cs") or ord(mark) & 0xFFFE == 0xFFFE
