"""Figures as the words and columns of a report."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeGuard

from elmokit.tasks import pictures

__all__ = ["along", "duration", "flat", "four_places", "is_number", "percent", "rough_time", "said", "shown"]


def is_number(value: Any) -> TypeGuard[float]:
    """Whether a plain value is one to reckon with."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def percent(share: float | None) -> str:
    """A share in percent, without the sign."""
    return "–" if share is None else f"{share * 100:.2f}"


def four_places(value: float | None) -> str:
    """Any figure, to four places."""
    return "–" if value is None else f"{value:.4f}"


def shown(value: Any) -> str:
    """Any plain value as text for a table."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 10_000 else str(value)
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    if isinstance(value, (list, dict)):
        return pictures.one_line(json.dumps(value, ensure_ascii=False))
    return pictures.one_line(str(value))


def duration(seconds: float) -> str:
    """As in 1.25 s, 1 min 15 s or 2 h 5 min."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def rough_time(seconds: float) -> str:
    """As in 13 s, 4.2 min, 25 min or 1.6 h: enough to compare.

    >>> rough_time(0.532), rough_time(61), rough_time(1511), rough_time(9000)
    ('0.53 s', '1.0 min', '25 min', '2.5 h')
    """
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= 0.995 * size:
            amount = seconds / size
            return f"{amount:.1f} {unit}" if amount < 9.95 else f"{amount:,.0f} {unit}"
    return f"{seconds:.2g} s" if seconds < 9.95 else f"{seconds:.0f} s"


def flat(values: Mapping[str, Any], before: str = "") -> Iterable[tuple[str, str]]:
    """Names and values of settings within settings, as text: ``head.width``."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{before}{name}.")
        else:
            yield pictures.one_line(before + name), shown(value)


def along(history: Sequence[Mapping[str, Any]]) -> tuple[str, list[float]]:
    """What curves run along: the epoch, the step, or just the number of the measurement."""
    for key in ("epoch", "step"):
        places = [entry.get(key) for entry in history]
        numbers = [float(place) for place in places if is_number(place)]
        if len(numbers) == len(places) and all(a < b for a, b in itertools.pairwise(numbers)):
            return key, numbers
    return "measurement", [float(place) for place in range(1, len(history) + 1)]


def said(line: pictures.Line, where: str, in_percent: bool = False) -> str:
    """A line of a picture in words: every value of a short one, the turning points of a long one."""
    name, places, values = line

    def at(index: int) -> str:
        value = f"{values[index]:.2%}" if in_percent else four_places(values[index])
        return f"{value} at {where} {places[index]:g}"

    if len(values) <= 12:
        return f"{name}: " + ", ".join(map(at, range(len(values)))) + "."
    low, high = values.index(min(values)), values.index(max(values))
    return f"{name}: {at(0)}, lowest {at(low)}, highest {at(high)}, {at(len(values) - 1)}."
