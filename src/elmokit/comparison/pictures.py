"""The pictures of a comparison: accuracies with their intervals, accuracy against cost, learning curves."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from elmokit.comparison.labels import along_line, place_labels, text_width
from elmokit.tasks.drawing import (
    ACCENT,
    FONT,
    INK,
    MUTED,
    PAPER,
    RULE,
    SECOND,
    THIRD,
    apart,
    drawing,
    finished,
    plot_axes,
    short,
)
from elmokit.tasks.report_words import duration

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["FAMILIES", "Curve", "Mark", "accuracies", "cost", "learning_curves"]

FAMILIES = {"elmo": "ELMo", "static": "static vectors", "linear": "linear models"}
"""The families of methods, in their order, and what each is called."""

_LOOKS = {"elmo": (ACCENT, "o"), "static": (SECOND, "s"), "linear": (THIRD, "^")}
_OTHER_LOOK = (MUTED, "D")
_DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (5, 2, 1, 2)))
_TIMES = (0.01, 0.1, 1, 10, 60, 600, 3600, 36_000, 360_000)


@dataclass(frozen=True)
class Mark:
    """A method in a picture.

    Args:
        name: what it is called.
        family: elmo, static or linear, which give it its colour and its shape.
        accuracy: the mean over all seeds.
        low: where its interval begins.
        high: where its interval ends.
        values: one accuracy for each seed.
        seconds: what it costs in all.
        fit: what fitting alone costs.
    """

    name: str
    family: str
    accuracy: float
    low: float | None = None
    high: float | None = None
    values: Sequence[float] = ()
    seconds: float | None = None
    fit: float | None = None


@dataclass(frozen=True)
class Curve:
    """A method's accuracy over numbers of labels: (labels, mean, standard deviation) in order."""

    name: str
    family: str
    points: Sequence[tuple[float, float, float | None]]


def accuracies(marks: Sequence[Mark], *, name: str, words: str, wide: bool = True) -> str:
    """A dot for each method, the whisker being its interval and the small marks its seeds.

    The narrow picture, for a phone, has the names above the dots instead of beside them.
    """
    width, step = (720.0, 30.0) if wide else (360.0, 44.0)
    names = [short(mark.name, 34) for mark in marks]
    left = 14 + max(map(text_width, names)) if wide else 8.0
    right = 52.0
    height = 14 + step * len(marks) + 40
    with drawing(name) as figure:
        figure.set_size_inches(width / 72, height / 72)
        axes = plot_axes(figure, (left, 40, width - left - right, height - 54))
        axes.set_ylim(len(marks) - 0.5, -0.5)
        axes.set_xlim(*_limits([value for mark in marks for value in _values_of(mark)]))
        axes.set_yticks([])
        axes.grid(axis="x", color=RULE, linewidth=0.8)
        _percent_axis(axes.xaxis, 7 if wide else 5)
        axes.set_xlabel("accuracy", color=MUTED, fontsize=FONT)
        first = marks[0]
        if first.low is not None and first.high is not None:
            axes.axvspan(first.low, first.high, color=_look(first)[0], alpha=0.08, linewidth=0)
        down = 0.0 if wide else 0.18
        for row, (mark, text) in enumerate(zip(marks, names, strict=True)):
            colour, shape = _look(mark)
            y = row + down
            if mark.low is not None and mark.high is not None:
                axes.plot([mark.low, mark.high], [y, y], color=colour, linewidth=2, solid_capstyle="round")
            if len(mark.values) > 1:
                axes.plot(mark.values, [y] * len(mark.values), "|", color=colour, markersize=9, alpha=0.6)
            axes.plot([mark.accuracy], [y], shape, color=colour, markeredgecolor=PAPER, markersize=8.5)
            _beside(axes, 1.0, y, f"{mark.accuracy * 100:.1f}%", 8, INK, ha="left")
            if wide:
                _beside(axes, 0.0, y, text, -10, INK, ha="right")
            else:
                _beside(axes, 0.0, row - 0.24, text, 0, INK, ha="left")
        return finished(figure, name, words)


def cost(marks: Sequence[Mark], *, name: str, words: str, wide: bool = True) -> str:
    """Accuracy over the seconds a method costs; a faint line leads from fitting alone to the whole.

    A dashed line joins the methods that none beats in both. Names stand where nothing is in their way.
    """
    width, height = (720.0, 400.0) if wide else (360.0, 400.0)
    marks = [mark for mark in marks if mark.seconds is not None and mark.seconds > 0]
    box = (56.0, 44.0, width - 56 - 16, height - 44 - 16)
    times = [seconds for mark in marks for seconds in (mark.seconds, mark.fit) if seconds]
    low_x, high_x = math.log10(min(times)), math.log10(max(times))
    spare = max(0.12 * (high_x - low_x), 0.25)
    low_x, high_x = low_x - spare, high_x + spare
    low_y, high_y = _limits([mark.accuracy for mark in marks], 0.16)

    def place(seconds: float, accuracy: float) -> tuple[float, float]:
        return (
            box[0] + (math.log10(seconds) - low_x) / (high_x - low_x) * box[2],
            box[1] + (accuracy - low_y) / (high_y - low_y) * box[3],
        )

    with drawing(name) as figure:
        figure.set_size_inches(width / 72, height / 72)
        axes = plot_axes(figure, box)
        axes.set_xscale("log")
        axes.set_xlim(10**low_x, 10**high_x)
        axes.set_ylim(low_y, high_y)
        axes.grid(color=RULE, linewidth=0.8)
        ticks = [time for time in _TIMES if 10**low_x <= time <= 10**high_x]
        axes.set_xticks(ticks, [_short_time(time) for time in ticks])
        axes.set_xticks([], minor=True)
        _percent_axis(axes.yaxis, 6)
        axes.set_xlabel("time to pretrain and fit", color=MUTED, fontsize=FONT)
        front = _unbeaten(marks)
        if len(front) > 1:
            axes.plot(*zip(*front, strict=True), color=MUTED, linewidth=1, linestyle=(0, (2, 3)), alpha=0.8)
        for mark in marks:
            colour, shape = _look(mark)
            total = mark.seconds or 0.0
            if mark.fit and mark.fit < 0.9 * total:
                axes.plot([mark.fit, total], [mark.accuracy] * 2, color=colour, linewidth=1, alpha=0.35)
                axes.plot([mark.fit], [mark.accuracy], "|", color=colour, markersize=6, alpha=0.6)
            axes.plot([total], [mark.accuracy], shape, color=colour, markeredgecolor=PAPER, markersize=9.5)
        over = _overlay(figure, width, height)
        spots = [place(mark.seconds or 1.0, mark.accuracy) for mark in marks]
        names = [short(mark.name, 30 if wide else 22) for mark in marks]
        frame = (box[0], box[1], box[0] + box[2], box[1] + box[3])
        lines = [
            piece
            for pair in itertools.pairwise(front)
            for piece in along_line(place(*pair[0]), place(*pair[1]))
        ]
        for mark in marks:
            if mark.fit and mark.seconds:
                lines += along_line(place(mark.fit, mark.accuracy), place(mark.seconds, mark.accuracy))
        labels = place_labels(names, spots, frame, lines)
        for mark, text, (x, y), label in zip(marks, names, spots, labels, strict=True):
            colour, _ = _look(mark)
            near = (min(max(x, label[0]), label[2]), min(max(y, label[1]), label[3]))
            if math.dist(near, (x, y)) > 16:
                over.plot([x, near[0]], [y, near[1]], color=colour, linewidth=0.8, alpha=0.7)
            side = "left" if label[0] >= x else "right" if label[2] <= x else "center"
            edge = {"left": label[0] + 2, "right": label[2] - 2, "center": (label[0] + label[2]) / 2}[side]
            _write(over, edge, (label[1] + label[3]) / 2, text, colour, side)
        return finished(figure, name, words)


def learning_curves(curves: Sequence[Curve], *, name: str, words: str, wide: bool = True) -> str:
    """Accuracy over the number of labels, with a band of one standard deviation either way."""
    width, height = (720.0, 380.0) if wide else (360.0, 380.0)
    names = [short(curve.name, 28) for curve in curves]
    right = 20 + max(map(text_width, names)) if wide else 24.0
    below = 44.0 if wide else 44.0 + 18 * len(curves)
    height += below - 44
    counts = sorted({n for curve in curves for n, _, _ in curve.points})
    with drawing(name) as figure:
        figure.set_size_inches(width / 72, height / 72)
        axes = plot_axes(figure, (54, below, width - 54 - right, height - below - 14))
        axes.set_xscale("log")
        axes.set_xlim(counts[0] / 1.12, counts[-1] * 1.12)
        axes.set_ylim(
            *_limits(
                [
                    at
                    for curve in curves
                    for _, mean, sd in curve.points
                    for at in (mean - (sd or 0), mean + (sd or 0))
                ]
            )
        )
        axes.grid(axis="y", color=RULE, linewidth=0.8)
        kept = _spaced([math.log10(n) for n in counts], (width - 54 - right) / 40)
        axes.set_xticks([counts[place] for place in kept], [_short_count(counts[place]) for place in kept])
        axes.set_xticks([], minor=True)
        _percent_axis(axes.yaxis, 6)
        axes.set_xlabel("labelled texts", color=MUTED, fontsize=FONT)
        looks = []
        for number, curve in enumerate(curves):
            colour, shape = _LOOKS.get(curve.family, _OTHER_LOOK)
            dash = _DASHES[sum(other.family == curve.family for other in curves[:number]) % len(_DASHES)]
            looks.append((colour, shape, dash))
            x, means, spreads = zip(*curve.points, strict=True)
            axes.fill_between(
                x,
                [mean - (spread or 0) for mean, spread in zip(means, spreads, strict=True)],
                [mean + (spread or 0) for mean, spread in zip(means, spreads, strict=True)],
                color=colour,
                alpha=0.13,
                linewidth=0,
            )
            axes.plot(x, means, color=colour, linestyle=dash, linewidth=1.8)
            axes.plot(x, means, shape, color=colour, markeredgecolor=PAPER, markersize=6.5)
        inner = height - below - 14
        low, high = axes.get_ylim()
        ends = [(curve.points[-1][1] - low) / (high - low) * inner for curve in curves]
        if wide:
            for text, up, (colour, _, _) in zip(names, apart(ends, 16.0, 0.0, inner), looks, strict=True):
                _beside(axes, 1.0, up / inner, text, 8, colour, ha="left", fraction=True)
            return finished(figure, name, words)
        over = _overlay(figure, width, height)
        for row, number in enumerate(sorted(range(len(curves)), key=lambda number: -ends[number])):
            y = below - 54 - 18 * row
            colour, shape, dash = looks[number]
            over.plot([14, 46], [y, y], color=colour, linestyle=dash, linewidth=1.8)
            over.plot([30], [y], shape, color=colour, markeredgecolor=PAPER, markersize=6.5)
            _write(over, 56, y, names[number], INK, "left")
        return finished(figure, name, words)


def _overlay(figure: Figure, width: float, height: float) -> Axes:
    """Empty axes over the whole picture, in its units."""
    over = figure.add_axes((0, 0, 1, 1))
    over.set_axis_off()
    over.set_xlim(0, width)
    over.set_ylim(0, height)
    return over


def _write(axes: Axes, x: float, y: float, text: str, colour: str, side: str) -> None:
    axes.text(x, y, text, color=colour, fontsize=FONT, ha=side, va="center_baseline", parse_math=False)


def _look(mark: Mark) -> tuple[str, str]:
    return _LOOKS.get(mark.family, _OTHER_LOOK)


def _values_of(mark: Mark) -> list[float]:
    ends = [value for value in (mark.low, mark.high) if value is not None]
    return [mark.accuracy, *ends, *mark.values]


def _limits(values: Sequence[float], share: float = 0.06) -> tuple[float, float]:
    """From a little below the lowest to a little above the highest, and within reach of 0 and 1."""
    low, high = min(values), max(values)
    spare = max(share * (high - low), 0.004)
    return max(low - spare, -0.02), min(high + spare, 1.02)


def _percent_axis(axis: Any, n_ticks: int) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axis.set_major_locator(MaxNLocator(nbins=n_ticks, steps=[1, 2, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value * 100:.4g}%"))


def _beside(
    axes: Axes, x: float, y: float, text: str, shift: float, colour: str, *, ha: str, fraction: bool = False
) -> None:
    """Text at a share of the axes' width and at a value (or a share of their height)."""
    axes.annotate(
        text,
        (x, y),
        xycoords=("axes fraction", "axes fraction" if fraction else "data"),
        xytext=(shift, 0),
        textcoords="offset points",
        ha=ha,
        va="center_baseline",
        color=colour,
        fontsize=FONT,
        parse_math=False,
        annotation_clip=False,
    )


def _unbeaten(marks: Sequence[Mark]) -> list[tuple[float, float]]:
    """The methods that none beats in both time and accuracy, from the quickest to the best."""
    found: list[tuple[float, float]] = []
    for mark in sorted(marks, key=lambda mark: (mark.seconds or 0.0, -mark.accuracy)):
        if not found or mark.accuracy > found[-1][1]:
            found.append((mark.seconds or 0.0, mark.accuracy))
    return found


def _spaced(places: Sequence[float], room: float) -> list[int]:
    """Which of the places can have a name, if ``room`` names fit between the first and the last."""
    gap = (places[-1] - places[0]) / max(room, 1.0)
    kept = [len(places) - 1]
    for number in range(len(places) - 2, -1, -1):
        if places[kept[-1]] - places[number] >= gap:
            kept.append(number)
    return kept[::-1]


def _short_time(seconds: float) -> str:
    text = duration(seconds)
    return text.replace(" 0 s", "").replace(" 0 min", "")


def _short_count(n: float) -> str:
    return f"{n:,.0f}"
