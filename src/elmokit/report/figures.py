"""Draw the figures of a report as SVG, and as PNG for slides.

In a page, a figure has no colors and fonts but those of the page (``--ink``, ``--accent`` and so on), so it
follows the page into dark mode and onto paper. Text stays text: the reader's fonts show names in any script.
Every figure also says in words what it shows.
"""

from __future__ import annotations

import contextlib
import html
import io
import itertools
import logging
import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from rich.cells import cell_len, set_cell_size

from elmokit.core.atomic import atomic_write
from elmokit.core.formatting import format_duration, one_line
from elmokit.report.document import Figure, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

# The colors of a bright page, in which files are drawn; in pages, ``_figure`` puts variables in their place.
_INK, _MUTED, _RULE, _PAPER = "#1d2126", "#5d6671", "#d9dde2", "#ffffff"
_ACCENT, _SECOND, _THIRD, _ON_ACCENT = "#1c62a8", "#b04a0b", "#1f7a55", "#fffffe"
_COLORS = (_INK, _MUTED, _RULE, _PAPER, _ACCENT, _SECOND, _THIRD, _ON_ACCENT)
_NAMES = ("ink", "muted", "rule", "paper", "accent", "second", "third", "on-accent")
_VARIABLES = dict(zip(_COLORS, _NAMES, strict=True))
_LOOKS = ((_ACCENT, "o"), (_SECOND, "s"), (_THIRD, "^"), (_INK, "D"), (_MUTED, "v"))
_DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (5, 2, 1, 2)))
_TIMES = (0.01, 0.1, 1, 10, 60, 600, 3600, 36_000, 360_000)
_MOST_DOTS = 600
_TIME_NAMES = ("0.01 s", "0.1 s", "1 s", "10 s", "1 min", "10 min", "1 h", "10 h", "100 h")
_STYLE = {
    **dict.fromkeys(("axes.axisbelow", "axes.grid", "figure.constrained_layout.use"), True),
    **dict.fromkeys((f"axes.spines.{side}" for side in ("left", "right", "top")), False),
    **dict.fromkeys(("legend.frameon", "text.parse_math"), False),
    **dict.fromkeys(("axes.edgecolor", "grid.color"), _RULE),
    **dict.fromkeys(("axes.labelcolor", "xtick.color", "ytick.color"), _MUTED),
    **dict.fromkeys(("xtick.labelsize", "ytick.labelsize"), 11),
    **dict.fromkeys(("xtick.major.size", "ytick.major.size"), 0),
    "axes.grid.axis": "y",
    "figure.dpi": 72,
    "font.family": ["DejaVu Sans"],
    "font.size": 12,
    "lines.linewidth": 1.8,
    "lines.markeredgecolor": _PAPER,
    "svg.fonttype": "none",
    "svg.hashsalt": "elmokit",
    "text.color": _INK,
}


@dataclass(frozen=True)
class Line:
    """Values along an axis; ``spread`` draws a band around them, ``look`` picks color and marker."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    spread: Sequence[float] = ()
    look: int | None = None


@dataclass(frozen=True)
class Point:
    """A labeled point with the interval of ``y``; ``x_from`` draws a faint line from there to ``x``."""

    label: str
    name: str
    x: float
    y: float
    low: float
    high: float
    x_from: float | None = None
    look: int = 0


def draw_lines(
    lines: Sequence[Line], *, x_label: str, caption: str = "", in_percent: bool = False, log_x: bool = False
) -> Figure:
    """Lines over epochs, steps or (``log_x``) numbers of rows, with their names above."""
    names = [shorten(line.name, 44) for line in lines]
    n_columns = max(1, min(4, 62 // (max(map(cell_len, names)) + 7)))
    looks = [number if line.look is None else line.look for number, line in enumerate(lines)]
    with _canvas(250 + 20 * math.ceil(len(lines) / n_columns)) as canvas:
        axes = canvas.subplots()
        for number, line in enumerate(lines):
            color, marker = _LOOKS[looks[number] % len(_LOOKS)]
            dash = _DASHES[looks[:number].count(looks[number]) % len(_DASHES)]
            if line.spread:
                y, spread = np.array(line.y), np.array(line.spread)
                axes.fill_between(line.x, y - spread, y + spread, color=color, alpha=0.13, linewidth=0)
            every = math.ceil(len(line.x) / 30)
            style: Any = {"color": color, "linestyle": dash, "marker": marker, "markevery": every}
            axes.plot(line.x, line.y, label=names[number], **style)
        if log_x:
            ticks = _spaced(sorted({x for line in lines for x in line.x}))
            axes.set_xscale("log")
            axes.set_xticks(ticks, [f"{tick:,.0f}" for tick in ticks])
            axes.minorticks_off()
        else:
            axes.locator_params(axis="x", integer=True)
        axes.locator_params(axis="y", nbins=6)
        if in_percent:
            axes.yaxis.set_major_formatter(_format_percent)
        axes.set_xlabel(x_label)
        canvas.legend(loc="outside upper left", ncols=n_columns, columnspacing=1.4)
        sentences = [_describe_line(line, x_label, in_percent) for line in lines]
        return _figure(canvas, f"{caption or 'Lines'} by {x_label}", sentences, caption)


def draw_scatter(points: Sequence[Point], *, x_label: str, y_label: str) -> Figure:
    """Shares and their intervals over seconds, on a logarithmic axis.

    A dotted line joins the points that none beats in both.
    """
    front: list[Point] = []
    for point in sorted(points, key=lambda point: (point.x, -point.y)):
        if not front or point.y > front[-1].y:
            front.append(point)
    times = [x for point in points for x in (point.x, point.x_from) if x]
    with _canvas(340) as canvas:
        axes = canvas.subplots()
        xs, ys = zip(*((point.x, point.y) for point in front), strict=True)
        axes.plot(xs, ys, color=_MUTED, linewidth=1, linestyle=(0, (2, 3)))
        for point in reversed(points):  # the first on top
            color, marker = _LOOKS[point.look % len(_LOOKS)]
            if point.x_from and point.x_from < 0.9 * point.x:
                faint: Any = {"color": color, "linewidth": 1, "alpha": 0.35, "markeredgecolor": color}
                axes.plot([point.x_from, point.x], [point.y, point.y], "|-", **faint)
            axes.vlines(point.x, point.low, point.high, color=color, alpha=0.5)
            axes.plot([point.x], [point.y], marker, color=color, markersize=17)
            axes.annotate(
                point.label,
                (point.x, point.y),
                xytext=(0, -2.5 if marker == "^" else 0),
                textcoords="offset points",
                ha="center",
                va="center",
                color=_ON_ACCENT,
                fontsize=9.5,
            )
        axes.grid(axis="x")
        axes.margins(y=0.14)
        axes.set(xscale="log", xlabel=x_label, ylabel=y_label)
        axes.set_xticks(_TIMES, _TIME_NAMES)
        axes.set_xlim(min(times) / 2, max(times) * 2)
        axes.minorticks_off()
        axes.yaxis.set_major_formatter(_format_percent)
        sentences = [
            f"{p.label}, {p.name}: {p.y:.1%}, interval {p.low:.1%} to {p.high:.1%}, {format_duration(p.x)}."
            for p in points
        ]
        return _figure(canvas, f"{y_label} and {x_label}", sentences)


def draw_groups(groups: Mapping[str, npt.NDArray[np.float64]], *, caption: str) -> Figure:
    """Points of several groups in the plane, (n, 2) each, with the name of a group in its middle."""
    with _canvas(340) as canvas:
        axes = canvas.subplots()
        for number, (name, points) in enumerate(groups.items()):
            color, marker = _LOOKS[number % len(_LOOKS)]
            axes.plot(*points.T, marker, color=color, alpha=0.55, markersize=6)
            box = {"facecolor": _PAPER, "edgecolor": color, "boxstyle": "round"}
            x, y = points.mean(axis=0).tolist()
            axes.text(x, y, shorten(name), color=color, ha="center", va="center", bbox=box)
        axes.set_xticks([])
        axes.set_yticks([])
        axes.grid(visible=False)
        sentences = [f"{name}: {len(points):,} points." for name, points in groups.items()]
        return _figure(canvas, caption, sentences, caption)


def draw_reliability(bins: Sequence[tuple[int, float, float]], *, caption: str) -> Figure:
    """How often predictions are right by their probability, with their number above each bar.

    Args:
        bins: Of equal ranges of the probability: predictions, their mean probability, share of right ones.
    """
    used = [(place / len(bins), *one) for place, one in enumerate(bins) if one[0]]
    lows, counts, probabilities, shares = zip(*used, strict=True)
    with _canvas(300) as canvas:
        axes = canvas.subplots()
        axes.plot([0, 1], [0, 1], color=_MUTED, linewidth=1, linestyle=(0, (4, 3)))
        bars = axes.bar(lows, shares, 0.94 / len(bins), align="edge", color=_ACCENT, alpha=0.4)
        axes.bar_label(bars, [f"{n:,}" for n in counts], padding=7, color=_MUTED, fontsize=9.5)
        axes.plot(probabilities, shares, "o", color=_ACCENT)
        axes.set(
            xlim=(-0.03, 1.03), ylim=(0, 1.1), xlabel="probability of the prediction", ylabel="share right"
        )
        axes.xaxis.set_major_formatter(_format_percent)
        axes.yaxis.set_major_formatter(_format_percent)
        sentences = [
            f"{low:.0%} to {low + 1 / len(bins):.0%}, mean {mean:.1%}: {share:.1%} of {n:,} right."
            for low, n, mean, share in used
        ]
        return _figure(canvas, "Share of right predictions by their probability", sentences, caption)


def draw_agreement(true: Sequence[float], predicted: Sequence[float], *, caption: str = "") -> Figure:
    """Predicted numbers over true ones, and the line on which both agree; of many rows, an even choice."""
    x, y = np.asarray(true), np.asarray(predicted)
    every = math.ceil(len(x) / _MOST_DOTS)
    low, high = min(x.min(), y.min()), max(x.max(), y.max())
    with _canvas(340) as canvas:
        axes = canvas.subplots()
        axes.plot([low, high], [low, high], color=_MUTED, linewidth=1, linestyle=(0, (4, 3)))
        axes.plot(x[::every], y[::every], "o", color=_ACCENT, alpha=0.4, markersize=4, markeredgewidth=0)
        axes.grid(axis="x")
        axes.set(xlabel="true", ylabel="predicted")
        edges = np.linspace(x.min(), x.max(), 6)
        sentences = [
            f"True {start:.3g} to {end:.3g}: mean prediction {y[part].mean():.3g} of {part.sum():,} rows."
            for start, end in itertools.pairwise(edges)
            if (part := (x >= start) & (x <= end)).any()
        ]
        return _figure(canvas, "Predicted and true numbers", sentences, caption)


def save_confusion(folder: Path, name: str, table: Table) -> list[str]:
    """A confusion matrix as two pictures for slides, SVG and PNG; their names."""
    side = 44 if len(table.columns) <= 10 else 32
    columns = [shorten(column.title) for column in table.columns[1:]]
    shades = [[cell.shade or 0.0 for cell in row[1:]] for row in table.rows]
    with _canvas(side * len(table.rows), side * len(columns)) as canvas:
        axes = canvas.add_axes((0, 0, 1, 1))
        axes.grid(visible=False)
        axes.imshow(shades, cmap="Blues", vmin=0, vmax=1)
        for y, row in enumerate(table.rows):
            for x, cell in enumerate(row[1:]):
                if cell.shade:
                    color = "white" if cell.shade > 0.5 else "black"
                    axes.text(x, y, cell.text, color=color, fontsize=9.5, ha="center", va="center")
        axes.set_xticks(range(len(columns)), columns, rotation=90)
        axes.set_yticks(range(len(table.rows)), [shorten(row[0].text) for row in table.rows])
        axes.set(xlabel="predicted", ylabel="true", title=shorten(table.caption, 50))
        for form, mark in (("svg", "Date"), ("png", "Software")):
            with atomic_write(folder / f"{name}.{form}") as temporary:
                options: Any = {"bbox_inches": "tight", "metadata": {mark: None}}
                canvas.savefig(temporary, format=form, dpi=144, **options)
    return [f"{name}.svg", f"{name}.png"]


def shorten(text: str, width: int = 18) -> str:
    """A name cut to so many columns; East Asian characters and emoji take two."""
    text = one_line(text)
    return text if cell_len(text) <= width else set_cell_size(text, width - 1).rstrip() + "…"


def _format_percent(share: float, _: float) -> str:
    return f"{share * 100:.4g}%"


def _describe_line(line: Line, x_label: str, in_percent: bool) -> str:
    """Every value of a short line, a dozen values of a long one."""
    every = math.ceil(len(line.y) / 12)
    number = "{:.2%}" if in_percent else "{:.4f}"
    values = [f"{number.format(y)} at {x_label} {x:g}" for x, y in zip(line.x, line.y, strict=True)]
    return f"{line.name}: {', '.join([*values[:-1:every], values[-1]])}."


def _spaced(values: Sequence[float]) -> list[float]:
    """The values that leave room for their names on a logarithmic axis, the last one always."""
    gap = math.log10(values[-1] / values[0]) / 8
    kept = [values[-1]]
    for value in reversed(values[:-1]):
        if math.log10(kept[-1] / value) >= gap:
            kept.append(value)
    return kept


@contextlib.contextmanager
def _canvas(height: float, width: float = 420) -> Iterator[Canvas]:
    """An empty figure, independent of the user's matplotlib settings, without warnings or log messages."""
    log = logging.getLogger("matplotlib")
    level = log.level
    log.setLevel(logging.ERROR)  # the first import may report that it looks for fonts
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of missing glyphs: the reader's fonts draw the text
            import matplotlib
            from matplotlib.figure import Figure as Canvas

            default: Any = matplotlib.rcParamsDefault
            style: Any = {key: default[key] for key in default if "backend" not in key}
            with matplotlib.rc_context(style | _STYLE):
                yield Canvas(figsize=(width / 72, height / 72))
    finally:
        log.setLevel(level)


def _figure(canvas: Canvas, title: str, sentences: Sequence[str], caption: str = "") -> Figure:
    """A drawing as an SVG element in the colors and fonts of the page, described by a title and sentences."""
    words = one_line(". ".join([title, " ".join(sentences)]))
    file, png = io.StringIO(), io.BytesIO()
    canvas.savefig(png, format="png", dpi=144, metadata={"Software": None})
    canvas.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Title": one_line(title)})
    svg = " ".join(file.getvalue().partition("<svg")[2].split())
    svg = re.sub("<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", svg)
    svg = re.sub('style="[^"]*"', _page_style, svg)
    about = f'role="img" aria-label="{html.escape(words)}" font-family="system-ui, sans-serif"'
    return Figure(f"<svg {about} {svg}", words, caption, png.getvalue())


def _page_style(style: re.Match[str]) -> str:
    """A style without a font, with variables for colors."""
    text = re.sub('font-family:[^;"]*;?', "", style[0])
    return re.sub("|".join(_VARIABLES), lambda color: f"var(--{_VARIABLES[color[0]]}, {color[0]})", text)
