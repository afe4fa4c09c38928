"""The pictures of a report: SVG to be set into a page, in whose colours they are drawn.

A picture names no colour and no font of its own but the page's variables (``--ink``, ``--muted``,
``--rule``, ``--accent``, ``--on-accent``, ``--paper``), so it follows the page into the dark and onto
paper. Text stays text: whatever script a class name is in, the reader's own fonts show it. Each picture
says in words what it shows, for whoever cannot see it.
"""

from __future__ import annotations

import contextlib
import io
import logging
import math
import re
import unicodedata
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["MAX_PICTURED", "Line", "confusion", "curves", "one_line", "reliability", "short"]

MAX_PICTURED = 60
"""A confusion matrix with more rows than this is not drawn."""

Line = tuple[str, Sequence[float], Sequence[float]]
"""A name, the places along the picture and the values there."""

_INK, _MUTED, _RULE, _ACCENT = "#010101", "#020202", "#030303", "#040404"
_ON_ACCENT, _PAPER = "#050505", "#060606"
_VARIABLES = {
    _INK: "var(--ink, #1d2126)",
    _MUTED: "var(--muted, #5d6671)",
    _RULE: "var(--rule, #d9dde2)",
    _ACCENT: "var(--accent, #1c62a8)",
    _ON_ACCENT: "var(--on-accent, #ffffff)",
    _PAPER: "var(--paper, #ffffff)",
}
_STYLES = (
    (_ACCENT, "-", "o"),
    (_INK, (0, (5, 2)), "s"),
    (_MUTED, (0, (1.5, 1.5)), "^"),
    (_ACCENT, (0, (5, 2, 1, 2)), "D"),
    (_INK, (0, (1.5, 1.5)), "v"),
    (_MUTED, "-", "P"),
)
_FONT = 12.0
_NAME_WIDTH = 18


def one_line(text: str) -> str:
    """Text on one line, with the characters that no page can show replaced."""
    shown = (
        " " if mark.isspace() else "\N{REPLACEMENT CHARACTER}" if _unshowable(mark) else mark for mark in text
    )
    return " ".join("".join(shown).split())


def short(text: str, width: int = _NAME_WIDTH) -> str:
    """A name cut to so many columns; East Asian characters and emoji take two."""
    text = one_line(text)
    if _columns(text) <= width:
        return text
    kept = ""
    for mark in text:
        if _columns(kept + mark) > width - 1:
            break
        kept += mark
    return kept.rstrip() + "…"


def curves(lines: Sequence[Line], *, name: str, words: str, x_label: str, percent: bool = False) -> str:
    """Lines over epochs or steps, each named at its end, with whole numbers along the bottom.

    A line's look goes by its place in ``lines``; one without values is not drawn, but keeps its place.
    ``name`` must be the picture's own on its page, and ``words`` is what the picture says.
    """
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    width, height = 380.0, 245.0
    with _drawing(name) as figure:
        figure.set_size_inches(width / 72, height / 72)
        styled = [(line, style) for line, style in zip(lines, _cycled(len(lines)), strict=True) if line[1]]
        names = [short(line[0]) for line, _ in styled]
        right = 14 + max(map(_columns, names)) * _FONT * 0.56
        axes = _axes(figure, (50, 38, width - 50 - right, height - 38 - 14))
        axes.grid(axis="y", color=_RULE, linewidth=0.8)
        for (_, x, y), (colour, dash, marker) in styled:
            axes.plot(x, y, color=colour, linestyle=dash, linewidth=1.8)
            if len(x) <= 30:
                axes.plot(x, y, color=colour, linestyle="none", marker=marker, markersize=4.5)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=7))
        axes.yaxis.set_major_locator(MaxNLocator(nbins=5))
        if percent:
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value * 100:.4g}%"))
        axes.set_xlabel(x_label, color=_MUTED, fontsize=_FONT)
        low, high = axes.get_ylim()
        ends = [(line[2][-1] - low) / (high - low) * (height - 52) for line, _ in styled]
        for text, at, (_, (colour, _, _)) in zip(names, _apart(ends, 14.0), styled, strict=True):
            axes.annotate(
                text,
                (1.0, at / (height - 52)),
                xycoords="axes fraction",
                xytext=(8, 0),
                textcoords="offset points",
                va="center",
                color=colour,
                fontsize=_FONT,
                parse_math=False,
                annotation_clip=False,
            )
        return _finished(figure, name, words)


def confusion(
    table: Sequence[Sequence[int]], rows: Sequence[str], columns: Sequence[str], *, name: str
) -> str:
    """Counts of true (rows) against predicted (columns) classes, shaded by their share of the row."""
    from matplotlib.patches import Rectangle

    largest = max((count for row in table for count in row), default=0)
    many = len(columns) > 8
    tight = 10_000 if many else None
    side = max(30.0 if many else 56.0, len(_count(largest, tight)) * 6.4 + 8)
    font = 10.0 if many else 12.5
    row_names = [short(row, _NAME_WIDTH if many else 14) for row in rows]
    column_names = [short(column, _NAME_WIDTH if many else 14) for column in columns]
    upright = many or max(map(_columns, column_names)) * _FONT * 0.56 > side
    left = 28 + max(map(_columns, row_names)) * _FONT * 0.58
    top = 26 + (max(map(_columns, column_names)) * _FONT * (0.58 if many else 0.42) + 8 if upright else 16)
    spare = 2.0 if many or not upright else max(map(_columns, column_names)) * _FONT * 0.4
    width, height = left + side * len(columns) + spare, top + side * len(rows) + 2
    with _drawing(name) as figure:
        figure.set_size_inches(width / 72, height / 72)
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_axis_off()
        axes.set_xlim(0, width)
        axes.set_ylim(height, 0)

        def write(x: float, y: float, text: str, **how: Any) -> None:
            how = {"color": _INK, "fontsize": _FONT, "ha": "center", "va": "center_baseline", **how}
            axes.text(x, y, text, parse_math=False, rotation_mode="anchor", **how)

        for row, counts in enumerate(table):
            y, total = top + row * side, sum(counts)
            write(left - 7, y + side / 2, row_names[row], ha="right")
            for column, count in enumerate(counts):
                x, share = left + column * side, count / total if total else 0.0
                if count:
                    axes.add_patch(
                        Rectangle(
                            (x, y), side, side, facecolor=_ACCENT, alpha=0.06 + 0.94 * share, linewidth=0
                        )
                    )
                colour = _ON_ACCENT if share > 0.5 else _INK if count else _MUTED
                if count or not many:
                    write(x + side / 2, y + side / 2, _count(count, tight), fontsize=font, color=colour)
        for line in range(len(columns) + 1):
            axes.plot([left + line * side] * 2, [top, top + side * len(rows)], color=_RULE, linewidth=0.8)
        for line in range(len(rows) + 1):
            axes.plot([left, left + side * len(columns)], [top + line * side] * 2, color=_RULE, linewidth=0.8)
        for column, text in enumerate(column_names):
            turn = 90 if many else 40
            how = {"rotation": turn, "ha": "left"} if upright else {}
            shift = 0 if many or not upright else -6
            write(left + (column + 0.5) * side + shift, top - 9, text, **how)
        write(left + side * len(columns) / 2, 10, "predicted", color=_MUTED)
        write(10, top + side * len(rows) / 2, "true", color=_MUTED, rotation=90)
        return _finished(figure, name, _confusion_words(table, rows, columns))


def reliability(bins: Sequence[Mapping[str, Any]], *, name: str, ece: float) -> str:
    """How often answers of each sureness are right, over how many answers there are of each."""
    from matplotlib.ticker import FuncFormatter

    width, height = 340.0, 310.0
    filled = [entry for entry in bins if entry["n"]]
    with _drawing(name) as figure:
        figure.set_size_inches(width / 72, height / 72)
        axes = _axes(figure, (60, 120, width - 76, height - 134))
        axes.grid(axis="y", color=_RULE, linewidth=0.8)
        for entry in filled:
            size = entry["high"] - entry["low"]
            middle = (entry["low"] + entry["high"]) / 2
            axes.bar(middle, entry["accuracy"], size * 0.9, color=_PAPER, linewidth=0)
            axes.bar(middle, entry["accuracy"], size * 0.9, color=_ACCENT, alpha=0.55, linewidth=0)
            axes.plot(entry["confidence"], entry["accuracy"], "o", color=_ACCENT, markersize=5)
        axes.plot([0, 1], [0, 1], color=_MUTED, linestyle=(0, (4, 3)), linewidth=1)
        axes.set_ylim(0, 1.02)
        axes.set_ylabel("right answers", color=_MUTED, fontsize=_FONT)
        counts = _axes(figure, (60, 38, width - 76, 66))
        most = max((entry["n"] for entry in filled), default=1)
        for entry in filled:
            middle = (entry["low"] + entry["high"]) / 2
            counts.bar(
                middle,
                entry["n"],
                (entry["high"] - entry["low"]) * 0.9,
                color=_MUTED,
                alpha=0.45,
                linewidth=0,
            )
            counts.annotate(
                _count(entry["n"], 1_000),
                (middle, entry["n"]),
                xytext=(0, 3),
                textcoords="offset points",
                ha="center",
                color=_MUTED,
                fontsize=_FONT - 2,
            )
        counts.set_ylim(0, most * 1.35)
        counts.set_yticks([])
        counts.set_ylabel("texts", color=_MUTED, fontsize=_FONT)
        counts.set_xlabel("probability of the answer", color=_MUTED, fontsize=_FONT)
        percent = FuncFormatter(lambda value, _: f"{value:.0%}")
        for axis in (axes, counts):
            axis.set_xlim(0, 1)
            axis.set_xticks([0, 0.25, 0.5, 0.75, 1])
            axis.xaxis.set_major_formatter(percent)
        axes.set_yticks([0, 0.25, 0.5, 0.75, 1])
        axes.yaxis.set_major_formatter(percent)
        axes.tick_params(labelbottom=False)
        words = f"Calibration, expected error {ece:.2%}. " + " ".join(
            f"Of {entry['n']:,} {'text' if entry['n'] == 1 else 'texts'} at {entry['low']:.0%} to "
            f"{entry['high']:.0%} (mean {entry['confidence']:.1%}), {entry['accuracy']:.1%} are right."
            for entry in filled
        )
        return _finished(figure, name, words)


def _confusion_words(table: Sequence[Sequence[int]], rows: Sequence[str], columns: Sequence[str]) -> str:
    said = []
    for row, counts in enumerate(table):
        total = sum(counts)
        if not total:
            continue
        if row >= len(columns):
            said.append(f"{short(rows[row], 40)}: {total:,}, unseen in training.")
            continue
        text = f"{short(rows[row], 40)}: {counts[row]:,} of {total:,} right"
        others = [(count, column) for column, count in enumerate(counts) if column != row and count]
        if others:
            count, column = max(others, key=lambda pair: (pair[0], -pair[1]))
            text += f", most often taken for {short(columns[column], 40)} ({count:,})"
        said.append(text + ".")
    return "Confusions. " + " ".join(said)


def _unshowable(mark: str) -> bool:
    """Control characters, halves of surrogate pairs and the places Unicode keeps empty."""
    return unicodedata.category(mark) in ("Cc", "Cs") or ord(mark) & 0xFFFE == 0xFFFE


def _columns(text: str) -> int:
    return sum(
        0 if unicodedata.combining(mark) else 2 if unicodedata.east_asian_width(mark) in "WF" else 1
        for mark in text
    )


def _count(count: int, most: int | None = None) -> str:
    """A count; one of ``most`` or more is rounded, as 12345 to 12.3k."""
    if most is None:
        return f"{count:,}"
    if count < most:
        return str(count)
    size, letter = (1_000_000, "M") if count >= 999_500 else (1_000, "k")
    return f"{count / size:.1f}{letter}" if count < 100 * size else f"{count / size:.0f}{letter}"


def _cycled(n: int) -> list[tuple[str, Any, str]]:
    return [_STYLES[number % len(_STYLES)] for number in range(n)]


def _apart(places: Sequence[float], gap: float) -> list[float]:
    """The places, moved up or down a little until none is within ``gap`` of another."""
    order = sorted(range(len(places)), key=lambda row: places[row])
    moved = [places[row] for row in order]
    for index in range(1, len(moved)):
        moved[index] = max(moved[index], moved[index - 1] + gap)
    if moved:
        shift = sum(moved) / len(moved) - math.fsum(places) / len(places)
        moved = [place - shift for place in moved]
    result = [0.0] * len(places)
    for row, place in zip(order, moved, strict=True):
        result[row] = place
    return result


def _axes(figure: Figure, box: tuple[float, float, float, float]) -> Axes:
    """Axes at a box of left, bottom, width and height in picture units, with quiet edges."""
    width, height = figure.get_size_inches() * 72
    axes = figure.add_axes((box[0] / width, box[1] / height, box[2] / width, box[3] / height))
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(_RULE)
    axes.tick_params(colors=_MUTED, length=0, labelsize=_FONT - 1, pad=6)
    axes.set_axisbelow(True)
    return axes


@contextlib.contextmanager
def _drawing(name: str) -> Iterator[Figure]:
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


def _finished(figure: Figure, name: str, words: str) -> str:
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
    root.attrib.update(
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "width": f"{width:.0f}",
            "height": f"{height:.0f}",
            "role": "img",
            "aria-label": one_line(words),
            "font-family": "system-ui, sans-serif",
            "stroke-linejoin": "round",
        }
    )
    return ElementTree.tostring(root, encoding="unicode")


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
        value = re.sub(r"font-family:[^;]*;?\s*", "", value)
        return key, re.sub("#[0-9a-f]{6}", lambda found: _VARIABLES.get(found[0], found[0]), value)
    return key, value
