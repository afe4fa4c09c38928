"""How the methods stand, read off a comparison's facts: their order, their accuracy, what they cost."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from elmokit.tasks.drawing import short
from elmokit.tasks.report_page import SPLITS
from elmokit.tasks.report_words import is_number

__all__ = [
    "accuracy_of",
    "at",
    "figure",
    "figures_in",
    "main_split",
    "name_of",
    "ranked",
    "seconds_of",
    "spread_of",
    "tied",
    "unranked",
]


_NAME_WIDTH = 48


def at(facts: Any, *keys: str) -> Any:
    """What lies under the keys, one within the other; None where any of them is missing."""
    for key in keys:
        facts = facts.get(key) if isinstance(facts, Mapping) else None
    return facts


def figure(facts: Any, *keys: str) -> float | None:
    """The number under the keys, if there is one."""
    value = at(facts, *keys)
    return float(value) if is_number(value) and math.isfinite(value) else None


def figures_in(values: Any) -> list[float]:
    """All numbers of a list."""
    return [float(value) for value in values or [] if is_number(value) and math.isfinite(value)]


def name_of(method: Mapping[str, Any]) -> str:
    """What a method is called, on one line and not too long for a sentence."""
    return short(str(method.get("name") or method.get("id") or "a method without a name"), _NAME_WIDTH)


def accuracy_of(method: Mapping[str, Any], split: str) -> float | None:
    """The mean accuracy over all seeds."""
    return figure(method, "splits", split, "accuracy", "mean")


def spread_of(accuracy: Any) -> float | None:
    """The standard deviation over the seeds, if there were several."""
    return figure(accuracy, "sd") if len(at(accuracy, "values") or [None, None]) > 1 else None


def seconds_of(method: Mapping[str, Any]) -> float | None:
    """Pretraining and fitting together."""
    fit = figure(method, "seconds", "fit")
    return None if fit is None else fit + (figure(method, "seconds", "pretrain") or 0.0)


def main_split(methods: Sequence[Mapping[str, Any]]) -> str:
    """The split that ranks: test, or the last that any method was measured on."""
    found = (
        name for name in reversed(SPLITS) if any(accuracy_of(method, name) is not None for method in methods)
    )
    return next(found, "test")


def ranked(facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The methods that finished, the best first, in the order of ``ranking`` where there is one."""
    methods = list(facts.get("methods") or [])
    split = main_split(methods)
    done = [
        method
        for method in methods
        if method.get("status", "done") == "done" and accuracy_of(method, split) is not None
    ]
    order = {name: place for place, name in enumerate(at(facts, "ranking", "order") or [])}
    return sorted(
        done, key=lambda method: (order.get(method.get("id"), len(order)), -(accuracy_of(method, split) or 0))
    )


def unranked(facts: Mapping[str, Any]) -> list[tuple[dict[str, Any], str]]:
    """The other methods, each with what became of it."""
    standing = [id(method) for method in ranked(facts)]
    found = []
    for method in facts.get("methods") or []:
        if id(method) not in standing:
            status = method.get("status")
            opening = "Failed" if status == "failed" else "Left out" if status == "left out" else "No figures"
            reason = str(method.get("reason") or "").strip()
            found.append((method, f"{opening}: {reason}" if reason else f"{opening}."))
    return found


def tied(facts: Mapping[str, Any]) -> list[str] | None:
    """The ids of the methods that cannot be told from the best, the best first; None if it was not tested."""
    methods = [str(method.get("id")) for method in ranked(facts)]
    ranks = at(facts, "ranking", "ranks") or {}
    pairs = at(facts, "ranking", "pairs") or []
    if not methods or not (ranks or pairs):
        return None
    best = methods[0]
    if ranks:
        first = str(ranks.get(best, "1")).partition("–")[0]
        same = {name for name, rank in ranks.items() if str(rank).partition("–")[0] == first}
    else:
        same = {pair.get("worse") for pair in pairs if pair.get("better") == best and not pair.get("real")}
    return [best, *(name for name in methods[1:] if name in same)]
