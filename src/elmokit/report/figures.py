"""Draw the figures of a report as SVG.

A figure has no colors and fonts of its own but those of the page (``--ink``, ``--accent`` and so on), so it
follows the page into dark mode and onto paper. Text stays text: the reader's fonts show names in any script.
Every figure also says in words what it shows.
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
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from xml.etree import ElementTree

from elmokit.core.atomic import atomic_write
from elmokit.core.formatting import format_duration, one_line, percent
from elmokit.report.document import Figure, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure as Canvas

# Stand-ins that matplotlib accepts; ``_page_colors`` replaces them by the page's variables.
_INK, _MUTED, _RULE, _PAPER = "#010101", "#020202", "#030303", "#040404"
_ACCENT, _SECOND, _THIRD, _ON_ACCENT = "#050505", "#060606", "#070707", "#080808"
_VARIABLES = {
    _INK: "var(--ink, #1d2126)",
    _MUTED: "var(--muted, #5d6671)",
    _RULE: "var(--rule, #d9dde2)",
    _PAPER: "var(--paper, #ffffff)",
    _ACCENT: "var(--accent, #1c62a8)",
    _SECOND: "var(--second, #b04a0b)",
    _THIRD: "var(--third, #1f7a55)",
    _ON_ACCENT: "var(--on-accent, #ffffff)",
}
_LOOKS = ((_ACCENT, "o"), (_SECOND, "s"), (_THIRD, "^"), (_INK, "D"), (_MUTED, "v"))
_DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (5, 2, 1, 2)))
_TIMES = (0.01, 0.1, 1, 10, 60, 600, 3600, 36_000, 360_000)
_FONT, _WIDTH = 12.0, 420.0


@dataclass(frozen=True)
class Line:
    """Values along an axis; ``spread`` draws a band around them, ``look`` picks color and marker."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    spread: Sequence[float] = ()
    look: int | None = None


@dataclass(frozen=True)
class Interval:
    """A value with its confidence interval and, as small ticks, the single values behind it."""

    name: str
    value: float
    low: float
    high: float
    values: Sequence[float] = ()
    look: int = 0


@dataclass(frozen=True)
class Point:
    """A labeled point; ``x_from`` draws a faint line from there to ``x``."""

    label: str
    name: str
    x: float
    y: float
    x_from: float | None = None
    look: int = 0


@dataclass(frozen=True)
class Bin:
    """Predictions with a probability between ``low`` and ``high``: its mean, and the share of right ones."""

    low: float
    high: float
    n: int
    confidence: float
    accuracy: float


def draw_lines(
    lines: Sequence[Line], *, x_label: str, caption: str = "", in_percent: bool = False, log_x: bool = False
) -> Figure:
    """Lines over epochs, steps or (``log_x``) numbers of rows, with their names above."""
    from matplotlib.ticker import MaxNLocator

    looks = [number if line.look is None else line.look for number, line in enumerate(lines)]
    styles = [
        (*_LOOKS[look % len(_LOOKS)], _DASHES[looks[:number].count(look) % len(_DASHES)])
        for number, look in enumerate(looks)
    ]
    places = _flow([line.name for line in lines])
    height = 288.0 + 18 * max(row for row, _ in places)
    with _canvas(height) as canvas:
        axes = _axes(canvas, (52, 40, _WIDTH - 66, 215), x_label)
        for line, (color, marker, dash) in zip(lines, styles, strict=True):
            if line.spread:
                low = [value - spread for value, spread in zip(line.y, line.spread, strict=True)]
                high = [value + spread for value, spread in zip(line.y, line.spread, strict=True)]
                axes.fill_between(line.x, low, high, color=color, alpha=0.13, linewidth=0)
            axes.plot(line.x, line.y, color=color, linestyle=dash, linewidth=1.8)
            if len(line.x) <= 30:
                axes.plot(line.x, line.y, marker, color=color, markeredgecolor=_PAPER, markersize=6)
        if log_x:
            ticks = _spaced(sorted({x for line in lines for x in line.x}))
            axes.set_xscale("log")
            axes.set_xticks(ticks, [f"{tick:,.0f}" for tick in ticks])
            axes.set_xticks([], minor=True)
        else:
            axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=7))
        _value_axis(axes.yaxis, 5, in_percent)
        over = _overlay(canvas)
        for line, (row, left), (color, marker, dash) in zip(lines, places, styles, strict=True):
            y = height - 12 - 18 * row
            over.plot([left, left + 26], [y, y], color=color, linestyle=dash, linewidth=1.8)
            over.plot([left + 13], [y], marker, color=color, markeredgecolor=_PAPER, markersize=6)
            _write(over, left + 33, y, shorten(line.name, 44))
        sentences = [_describe_line(line, x_label, in_percent) for line in lines]
        return _figure(canvas, f"{caption or 'Lines'} by {x_label}", sentences, caption)


def draw_intervals(intervals: Sequence[Interval], *, x_label: str, caption: str = "") -> Figure:
    """A dot for each share, its interval as a whisker, its name above."""
    step = 40.0
    with _canvas(step * len(intervals) + 52) as canvas:
        axes = _axes(canvas, (10, 42, _WIDTH - 66, step * len(intervals)), x_label, grid="x")
        axes.set_ylim(len(intervals) - 0.5, -0.5)
        axes.set_xlim(*_limits([value for entry in intervals for value in (entry.low, entry.high)]))
        axes.set_yticks([])
        _value_axis(axes.xaxis, 6, True)
        over = _overlay(canvas)
        for row, entry in enumerate(intervals):
            color, marker = _LOOKS[entry.look % len(_LOOKS)]
            if row == 0:
                axes.axvspan(entry.low, entry.high, color=color, alpha=0.08, linewidth=0)
            y = row + 0.2
            axes.plot([entry.low, entry.high], [y, y], color=color, linewidth=2, solid_capstyle="round")
            if len(entry.values) > 1:
                axes.plot(entry.values, [y] * len(entry.values), "|", color=color, markersize=9, alpha=0.6)
            axes.plot([entry.value], [y], marker, color=color, markeredgecolor=_PAPER, markersize=8.5)
            middle = 42 + step * (len(intervals) - row - 0.5)
            _write(over, 10, middle + 9, shorten(entry.name, 48))
            _write(over, _WIDTH - 50, middle - 8, f"{percent(entry.value, 1)}%")
        sentences = [f"{i.name}: {i.value:.1%}, interval {i.low:.1%} to {i.high:.1%}." for i in intervals]
        return _figure(canvas, caption or x_label, sentences, caption)


def draw_scatter(points: Sequence[Point], *, x_label: str, y_label: str, caption: str = "") -> Figure:
    """Shares over seconds, on a logarithmic axis; a dotted line joins the points that none beats in both."""
    times = [x for point in points for x in (point.x, point.x_from) if x]
    spare = max(0.1 * math.log10(max(times) / min(times)), 0.25)
    limits = min(times) / 10**spare, max(times) * 10**spare
    with _canvas(340) as canvas:
        axes = _axes(canvas, (52, 42, _WIDTH - 66, 284), x_label, y_label, grid="both")
        axes.set_xscale("log")
        axes.set_xlim(*limits)
        axes.set_ylim(*_limits([point.y for point in points], 0.14))
        ticks = [time for time in _TIMES if limits[0] <= time <= limits[1]]
        names = [format_duration(time).replace(" 0 s", "").replace(" 0 min", "") for time in ticks]
        axes.set_xticks(ticks, names)
        axes.set_xticks([], minor=True)
        _value_axis(axes.yaxis, 6, True)
        front: list[Point] = []
        for point in sorted(points, key=lambda point: (point.x, -point.y)):
            if not front or point.y > front[-1].y:
                front.append(point)
        steps = [point.x for point in front], [point.y for point in front]
        axes.plot(*steps, color=_MUTED, linewidth=1, linestyle=(0, (2, 3)))
        for point in reversed(points):  # the first on top
            color, marker = _LOOKS[point.look % len(_LOOKS)]
            if point.x_from and point.x_from < 0.9 * point.x:
                axes.plot([point.x_from, point.x], [point.y] * 2, color=color, linewidth=1, alpha=0.35)
                axes.plot([point.x_from], [point.y], "|", color=color, markersize=6, alpha=0.6)
            axes.plot([point.x], [point.y], marker, color=color, markeredgecolor=_PAPER, markersize=17)
            lower = 2.5 if marker == "^" else 0  # in the middle of a triangle
            _label(axes, point.x, point.y, point.label, -lower, _ON_ACCENT)
        sentences = [f"{p.label}, {p.name}: {p.y:.1%}, {format_duration(p.x)}." for p in points]
        return _figure(canvas, caption or f"{y_label} and {x_label}", sentences, caption)


def draw_reliability(bins: Sequence[Bin], *, error: float, caption: str = "") -> Figure:
    """How often predictions of each probability are right, above how many there are."""
    quarters = [0, 0.25, 0.5, 0.75, 1]
    sentences = []
    with _canvas(330) as canvas:
        axes = _axes(canvas, (62, 130, _WIDTH - 80, 190), "", "share correct")
        counts = _axes(canvas, (62, 40, _WIDTH - 80, 70), "predicted probability", "texts", grid="")
        for entry in bins:
            if not entry.n:
                continue
            middle, width = (entry.low + entry.high) / 2, (entry.high - entry.low) * 0.9
            axes.bar(middle, entry.accuracy, width, color=_PAPER, linewidth=0)
            axes.bar(middle, entry.accuracy, width, color=_ACCENT, alpha=0.55, linewidth=0)
            axes.plot(entry.confidence, entry.accuracy, "o", color=_ACCENT, markersize=5)
            counts.bar(middle, entry.n, width, color=_MUTED, alpha=0.45, linewidth=0)
            count = f"{entry.n:,}" if entry.n < 1000 else f"{entry.n / 1000:.3g}k"
            _label(counts, middle, entry.n, count, 7, _MUTED)
            sentences.append(
                f"Probability {entry.low:.0%} to {entry.high:.0%} (mean {entry.confidence:.1%}): "
                f"{entry.accuracy:.1%} of {entry.n:,} correct."
            )
        axes.plot([0, 1], [0, 1], color=_MUTED, linestyle=(0, (4, 3)), linewidth=1)
        axes.set_ylim(0, 1.02)
        axes.set_yticks(quarters, [f"{share:.0%}" for share in quarters])
        counts.set_ylim(0, 1.35 * max((entry.n for entry in bins), default=1))
        counts.set_yticks([])
        for each in (axes, counts):
            each.set_xlim(0, 1)
            each.set_xticks(quarters, [f"{share:.0%}" for share in quarters])
        axes.tick_params(labelbottom=False)
        return _figure(canvas, f"Calibration, expected error {error:.2%}", sentences, caption)


def save_confusion_png(path: Path, table: Table) -> None:
    """A confusion matrix as a picture for slides."""
    side = 44.0 if len(table.columns) <= 10 else 32.0
    rows = [shorten(row[0].text) for row in table.rows]
    columns = [shorten(column.title) for column in table.columns[1:]]
    margin = 46 + 7 * max(map(_columns_of, [*rows, *columns]))
    width, height = side * len(columns), side * len(rows)
    with _canvas(height + margin + 40) as canvas:
        canvas.set_size_inches((width + margin + 20) / 72, (height + margin + 40) / 72)
        axes = _axes(canvas, (margin, margin, width, height), "predicted", "true", grid="")
        shades = [[cell.shade or 0.0 for cell in row[1:]] for row in table.rows]
        axes.imshow(shades, cmap="Blues", vmin=0, vmax=1, aspect="auto")
        for y, row in enumerate(table.rows):
            for x, cell in enumerate(row[1:]):
                if cell.shade:
                    _label(axes, x, y, cell.text, 0, "white" if cell.shade > 0.5 else "black")
        axes.set_yticks(range(len(rows)), rows, parse_math=False)
        axes.set_xticks(range(len(columns)), columns, parse_math=False, rotation=90)
        axes.set_title(shorten(table.caption, 50), parse_math=False, fontsize=_FONT)
        with atomic_write(path) as temporary:
            canvas.savefig(temporary, format="png", dpi=144, metadata={"Software": None})


def shorten(text: str, width: int = 18) -> str:
    """A name cut to so many columns; East Asian characters and emoji take two."""
    text = one_line(text)
    if _columns_of(text) <= width:
        return text
    kept = ""
    for mark in text:
        if _columns_of(kept + mark) > width - 1:
            break
        kept += mark
    return kept.rstrip() + "…"


def _columns_of(text: str) -> int:
    wide = sum(unicodedata.east_asian_width(mark) in "WF" for mark in text)
    return len(text) + wide - sum(unicodedata.combining(mark) > 0 for mark in text)


def _flow(names: Sequence[str]) -> list[tuple[int, float]]:
    """Row and left edge of each entry of a legend."""
    places: list[tuple[int, float]] = []
    row, left = 0, 10.0
    for name in names:
        width = 52 + _columns_of(shorten(name, 44)) * _FONT * 0.58
        if places and left + width > _WIDTH:
            row, left = row + 1, 10.0
        places.append((row, left))
        left += width
    return places


def _describe_line(line: Line, x_label: str, in_percent: bool) -> str:
    """Every value of a short line, the turning points of a long one."""

    def value_at(index: int) -> str:
        value = f"{line.y[index]:.2%}" if in_percent else f"{line.y[index]:.4f}"
        return f"{value} at {x_label} {line.x[index]:g}"

    if len(line.y) <= 12:
        return f"{line.name}: " + ", ".join(map(value_at, range(len(line.y)))) + "."
    low, high = list(line.y).index(min(line.y)), list(line.y).index(max(line.y))
    return f"{line.name}: {value_at(0)}, lowest {value_at(low)}, highest {value_at(high)}, {value_at(-1)}."


def _limits(values: Sequence[float], share: float = 0.06) -> tuple[float, float]:
    """From a little below the lowest value to a little above the highest; little beyond 0 and 1."""
    low, high = min(values), max(values)
    spare = max(share * (high - low), 0.004)
    return max(low - spare, min(low, -0.02)), min(high + spare, max(high, 1.02))


def _spaced(values: Sequence[float]) -> list[float]:
    """The values that leave room for their names on a logarithmic axis, the last one always."""
    gap = math.log10(values[-1] / values[0]) / 8
    kept = [values[-1]]
    for value in reversed(values[:-1]):
        if math.log10(kept[-1] / value) >= gap:
            kept.append(value)
    return kept[::-1]


def _value_axis(axis: Axis, n_ticks: int, in_percent: bool) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axis.set_major_locator(MaxNLocator(nbins=n_ticks, steps=[1, 2, 5, 10]))
    if in_percent:
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value * 100:.4g}%"))


def _axes(
    canvas: Canvas,
    box: tuple[float, float, float, float],
    x_label: str,
    y_label: str = "",
    *,
    grid: Literal["x", "y", "both", ""] = "y",
) -> Axes:
    """Axes at left, bottom, width and height, with a line at the bottom only."""
    width, height = canvas.get_size_inches() * 72
    axes = canvas.add_axes((box[0] / width, box[1] / height, box[2] / width, box[3] / height))
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(_RULE)
    axes.tick_params(colors=_MUTED, length=0, labelsize=_FONT - 1, pad=6)
    axes.set_axisbelow(True)
    axes.set_xlabel(x_label, color=_MUTED, fontsize=_FONT)
    axes.set_ylabel(y_label, color=_MUTED, fontsize=_FONT)
    if grid:
        axes.grid(axis=grid, color=_RULE, linewidth=0.8)
    return axes


def _overlay(canvas: Canvas) -> Axes:
    """Empty axes over the whole figure, in its own units."""
    width, height = canvas.get_size_inches() * 72
    over = canvas.add_axes((0, 0, 1, 1), facecolor="none")
    over.set_axis_off()
    over.set_xlim(0, width)
    over.set_ylim(0, height)
    return over


def _write(axes: Axes, x: float, y: float, text: str) -> None:
    axes.text(x, y, text, color=_INK, fontsize=_FONT, va="center_baseline", parse_math=False)


def _label(axes: Axes, x: float, y: float, text: str, up: float, color: str) -> None:
    """Small text in the middle of, or ``up`` from, a point."""
    size: dict[str, Any] = {"fontsize": _FONT - 2.5, "ha": "center", "va": "center"}
    axes.annotate(text, (x, y), xytext=(0, up), textcoords="offset points", color=color, **size)


@contextlib.contextmanager
def _canvas(height: float) -> Iterator[Canvas]:
    """An empty figure, independent of the user's matplotlib settings, without warnings or log messages."""
    log = logging.getLogger("matplotlib")
    level = log.level
    log.setLevel(logging.ERROR)  # the first import may report that it looks for fonts
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of missing glyphs: the reader's fonts draw the text
            import matplotlib
            from matplotlib.figure import Figure as Canvas

            own = {key: value for key, value in matplotlib.rcParamsDefault.items() if "backend" not in key}
            own |= {"svg.fonttype": "none", "svg.hashsalt": "elmokit", "font.family": ["DejaVu Sans"]}
            with matplotlib.rc_context(own):
                yield Canvas(figsize=(_WIDTH / 72, height / 72), dpi=72)
    finally:
        log.setLevel(level)


def _figure(canvas: Canvas, title: str, sentences: Sequence[str], caption: str) -> Figure:
    """A drawing with its description: a title and sentences."""
    words = one_line(". ".join([title, " ".join(sentences)]))
    return Figure(_to_svg(canvas, title, words), words, caption)


def _to_svg(canvas: Canvas, title: str, words: str) -> str:
    """An SVG element for a page, with the colors and fonts of the page."""
    text = io.StringIO()
    canvas.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    root = ElementTree.fromstring(text.getvalue())
    for element in root.iter():
        element.tag, element.tail = element.tag.rpartition("}")[2], None
        if element.tag != "text":
            element.text = None
        for key, value in list(element.attrib.items()):
            del element.attrib[key]
            if key == "style":
                value = re.sub(r"font-family:[^;]*;?\s*", "", value)
                value = re.sub("#[0-9a-f]{6}", lambda color: _VARIABLES.get(color[0], color[0]), value)
            element.set(key.rpartition("}")[2], " ".join(value.split()))
    for parent in list(root.iter()):
        for child in list(parent):
            is_empty = child.tag in ("g", "defs") and not len(child)
            if is_empty or child.tag in ("metadata", "style") or child.get("style") == "fill: none":
                parent.remove(child)
    ElementTree.SubElement(root, "title").text = one_line(title)
    width, height = canvas.get_size_inches() * 72
    size = {"width": f"{width:.0f}", "height": f"{height:.0f}", "xmlns": "http://www.w3.org/2000/svg"}
    words_and_font = {"role": "img", "aria-label": words, "font-family": "system-ui, sans-serif"}
    root.attrib.update({**size, **words_and_font})
    return ElementTree.tostring(root, encoding="unicode")
