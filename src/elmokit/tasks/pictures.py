"""The pictures of a report: curves, confusions and reliability, as SVG in the page's colours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree import ElementTree

from elmokit.tasks.drawing import (
    ACCENT,
    FONT,
    INK,
    MUTED,
    ON_ACCENT,
    PAPER,
    RULE,
    apart,
    columns_of,
    drawing,
    dressed,
    finished,
    one_line,
    page_colours,
    plot_axes,
    short,
)

__all__ = ["MAX_PICTURED", "Line", "confusion", "curves", "one_line", "reliability", "short"]

MAX_PICTURED = 60
"""A confusion matrix with more rows than this is not drawn."""

Line = tuple[str, Sequence[float], Sequence[float]]
"""A name, the places along the picture and the values there."""

_STYLES = (
    (ACCENT, "-", "o"),
    (INK, (0, (5, 2)), "s"),
    (MUTED, (0, (1.5, 1.5)), "^"),
    (ACCENT, (0, (5, 2, 1, 2)), "D"),
    (INK, (0, (1.5, 1.5)), "v"),
    (MUTED, "-", "P"),
)
_NAME_WIDTH = 18


def curves(lines: Sequence[Line], *, name: str, words: str, x_label: str, percent: bool = False) -> str:
    """Lines over epochs or steps, each named at its end, with whole numbers along the bottom.

    A line's look goes by its place in ``lines``; one without values is not drawn, but keeps its place.
    ``name`` must be the picture's own on its page, and ``words`` is what the picture says.
    """
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    width, height = 380.0, 245.0
    with drawing(name) as figure:
        figure.set_size_inches(width / 72, height / 72)
        styled = [(line, style) for line, style in zip(lines, _cycled(len(lines)), strict=True) if line[1]]
        names = [short(line[0]) for line, _ in styled]
        right = 14 + max(map(columns_of, names)) * FONT * 0.56
        axes = plot_axes(figure, (50, 38, width - 50 - right, height - 38 - 14))
        axes.grid(axis="y", color=RULE, linewidth=0.8)
        for (_, x, y), (colour, dash, marker) in styled:
            axes.plot(x, y, color=colour, linestyle=dash, linewidth=1.8)
            if len(x) <= 30:
                axes.plot(x, y, color=colour, linestyle="none", marker=marker, markersize=4.5)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=7))
        axes.yaxis.set_major_locator(MaxNLocator(nbins=5))
        if percent:
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value * 100:.4g}%"))
        axes.set_xlabel(x_label, color=MUTED, fontsize=FONT)
        low, high = axes.get_ylim()
        ends = [(line[2][-1] - low) / (high - low) * (height - 52) for line, _ in styled]
        for text, at, (_, (colour, _, _)) in zip(
            names, apart(ends, 14.0, 0.0, height - 52), styled, strict=True
        ):
            axes.annotate(
                text,
                (1.0, at / (height - 52)),
                xycoords="axes fraction",
                xytext=(8, 0),
                textcoords="offset points",
                va="center",
                color=colour,
                fontsize=FONT,
                parse_math=False,
                annotation_clip=False,
            )
        return finished(figure, name, words)


def confusion(
    table: Sequence[Sequence[int]], rows: Sequence[str], columns: Sequence[str], *, name: str
) -> str:
    """Counts of true (rows) against predicted (columns) classes, shaded by their share of the row.

    ``name`` must be the picture's own on its page.
    """
    largest = max((count for row in table for count in row), default=0)
    many = len(columns) > 8
    tight = 10_000 if many else None
    side = max(30.0 if many else 56.0, len(_count(largest, tight)) * 6.4 + 8)
    row_names = [short(row, _NAME_WIDTH if many else 14) for row in rows]
    column_names = [short(column, _NAME_WIDTH if many else 14) for column in columns]
    longest = max(map(columns_of, column_names)) * FONT
    upright = many or longest * 0.56 > side
    left = 28 + max(map(columns_of, row_names)) * FONT * 0.58
    top = 26 + (longest * (0.58 if many else 0.42) + 8 if upright else 16)
    spare = 2.0 if many or not upright else longest * 0.4
    right, bottom = left + side * len(columns), top + side * len(rows)
    width, height = right + spare, bottom + 2

    root = ElementTree.Element("svg", viewBox=f"0 0 {width:.5g} {height:.5g}", id=name)
    shades = ElementTree.SubElement(root, "g", style=page_colours(f"fill: {ACCENT}"))
    grid = [f"M{left + line * side:.5g} {top:.5g}V{bottom:.5g}" for line in range(len(columns) + 1)]
    grid += [f"M{left:.5g} {top + line * side:.5g}H{right:.5g}" for line in range(len(rows) + 1)]
    look = page_colours(f"fill: none; stroke: {RULE}; stroke-width: 0.8")
    ElementTree.SubElement(root, "path", d="".join(grid), style=look)
    shared = {"text-anchor": "middle", "dominant-baseline": "central"}
    kinds = {
        colour: ElementTree.SubElement(
            root, "g", shared, style=page_colours(f"fill: {colour}; font-size: {size}px")
        )
        for colour, size in (
            (INK, 10.0 if many else 12.5),
            (ON_ACCENT, 10.0 if many else 12.5),
            (MUTED, FONT),
        )
    }
    names = ElementTree.SubElement(root, "g", shared, style=page_colours(f"fill: {INK}; font-size: {FONT}px"))

    def write(place: ElementTree.Element, x: float, y: float, text: str, turn: int = 0, **how: str) -> None:
        how |= {"transform": f"rotate({turn} {x:.5g} {y:.5g})"} if turn else {}
        more = {key.replace("_", "-"): value for key, value in how.items()}
        written = ElementTree.SubElement(place, "text", {"x": f"{x:.5g}", "y": f"{y:.5g}", **more})
        written.text = text

    for row, counts in enumerate(table):
        y, total = top + row * side, sum(counts)
        write(names, left - 7, y + side / 2, row_names[row], text_anchor="end")
        for column, count in enumerate(counts):
            x, share = left + column * side, count / total if total else 0.0
            if count:
                box = {"x": f"{x:.5g}", "y": f"{y:.5g}", "width": f"{side:.5g}", "height": f"{side:.5g}"}
                ElementTree.SubElement(shades, "rect", box, opacity=f"{0.06 + 0.94 * share:.3g}")
            if count or not many:
                colour = ON_ACCENT if share > 0.5 else INK if count else MUTED
                write(kinds[colour], x + side / 2, y + side / 2, _count(count, tight))
    for column, text in enumerate(column_names):
        shift = 0 if many or not upright else -6
        turned: dict[str, Any] = {"turn": -90 if many else -40, "text_anchor": "start"} if upright else {}
        write(names, left + (column + 0.5) * side + shift, top - 9, text, **turned)
    write(kinds[MUTED], (left + right) / 2, 10, "predicted")
    write(kinds[MUTED], 10, (top + bottom) / 2, "true", turn=-90)
    return dressed(root, width, height, _confusion_words(table, rows, columns))


def reliability(bins: Sequence[Mapping[str, Any]], *, name: str, ece: float) -> str:
    """How often answers of each sureness are right, over how many answers there are of each."""
    from matplotlib.ticker import FuncFormatter

    width, height = 340.0, 310.0
    filled = [entry for entry in bins if entry["n"]]
    with drawing(name) as figure:
        figure.set_size_inches(width / 72, height / 72)
        axes = plot_axes(figure, (60, 120, width - 76, height - 134))
        axes.grid(axis="y", color=RULE, linewidth=0.8)
        for entry in filled:
            size = entry["high"] - entry["low"]
            middle = (entry["low"] + entry["high"]) / 2
            axes.bar(middle, entry["accuracy"], size * 0.9, color=PAPER, linewidth=0)
            axes.bar(middle, entry["accuracy"], size * 0.9, color=ACCENT, alpha=0.55, linewidth=0)
            axes.plot(entry["confidence"], entry["accuracy"], "o", color=ACCENT, markersize=5)
        axes.plot([0, 1], [0, 1], color=MUTED, linestyle=(0, (4, 3)), linewidth=1)
        axes.set_ylim(0, 1.02)
        axes.set_ylabel("right answers", color=MUTED, fontsize=FONT)
        counts = plot_axes(figure, (60, 38, width - 76, 66))
        most = max((entry["n"] for entry in filled), default=1)
        for entry in filled:
            middle = (entry["low"] + entry["high"]) / 2
            counts.bar(
                middle,
                entry["n"],
                (entry["high"] - entry["low"]) * 0.9,
                color=MUTED,
                alpha=0.45,
                linewidth=0,
            )
            counts.annotate(
                _count(entry["n"], 1_000),
                (middle, entry["n"]),
                xytext=(0, 3),
                textcoords="offset points",
                ha="center",
                color=MUTED,
                fontsize=FONT - 2,
            )
        counts.set_ylim(0, most * 1.35)
        counts.set_yticks([])
        counts.set_ylabel("texts", color=MUTED, fontsize=FONT)
        counts.set_xlabel("probability of the answer", color=MUTED, fontsize=FONT)
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
        return finished(figure, name, words)


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
