"""The ranking as columns: what each method reaches and what it costs, as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from elmokit.comparison.pictures import FAMILIES
from elmokit.comparison.standing import (
    accuracy_of,
    at,
    figure,
    figures_in,
    main_split,
    name_of,
    ranked,
    spread_of,
    unranked,
)
from elmokit.comparison.verdict import chosen
from elmokit.core.formatting import format_size
from elmokit.tasks.drawing import one_line
from elmokit.tasks.report_page import SPLITS
from elmokit.tasks.report_words import percent, rough_time

__all__ = ["Column", "Row", "ranking_columns", "ranking_rows"]


@dataclass(frozen=True)
class Column:
    """A column of the ranking.

    Args:
        group: what stands above it and its neighbours.
        name: what stands above it.
        value: its text for a method.
        under: more of it, in small.
        label: what it is called where it stands alone, if not by its name.
    """

    group: str
    name: str
    value: Callable[[Mapping[str, Any]], str]
    under: Callable[[Mapping[str, Any]], str] = lambda method: ""

    label: str = ""


@dataclass(frozen=True)
class Row:
    """A method's row of the ranking.

    Args:
        rank: its rank, or a dash.
        name: what it is called.
        family: elmo, static or linear.
        chosen: whether it is the one to take.
        remark: for a method without figures, why it has none.
        values: the text of each column, and what stands under it in small.
    """

    rank: str
    name: str
    family: str
    chosen: bool
    remark: str
    values: list[tuple[str, str]]

    @property
    def chip(self) -> str:
        """The family, if it is one of those that have a colour."""
        return self.family if self.family in FAMILIES else ""


def ranking_columns(facts: Mapping[str, Any]) -> list[Column]:
    """The columns that any method has something to say in."""
    main = main_split(ranked(facts))
    columns = [Column("Accuracy", main.capitalize(), _accuracy(main), _interval(main), f"Accuracy on {main}")]
    columns += [
        Column("Accuracy", split.capitalize(), _share("splits", split, "accuracy", "mean"))
        for split in reversed(SPLITS)
        if split != main
    ]
    columns += [
        Column(f"Macro, {main}", name, _share("splits", main, "macro", name.lower()))
        for name in ("Precision", "Recall", "F1")
    ]
    columns += [
        Column("Time", "Pretrain", _shown(rough_time, "seconds", "pretrain")),
        Column("Time", "Fit", _shown(rough_time, "seconds", "fit")),
        Column("", "Texts/s", _shown(_rate, "documents_per_second")),
        Column("Room", "Memory", _shown(format_size, "peak_memory")),
        Column("Room", "Disk", _shown(format_size, "bytes")),
        Column("", "Published", _published),
    ]
    methods = ranked(facts)
    return [column for column in columns if any(column.value(method) != "–" for method in methods)]


def ranking_rows(facts: Mapping[str, Any]) -> list[Row]:
    """The methods with figures in their order, then the others."""
    columns, ranks, take = ranking_columns(facts), at(facts, "ranking", "ranks") or {}, chosen(facts)
    rows = [
        Row(
            rank=one_line(str(ranks.get(method.get("id")) or place)),
            name=name_of(method),
            family=str(method.get("family")),
            chosen=method is take and len(facts["methods"]) > 1,
            remark="",
            values=[(column.value(method), column.under(method)) for column in columns],
        )
        for place, method in enumerate(ranked(facts), start=1)
    ]
    return rows + [
        Row("–", name_of(method), str(method.get("family")), False, one_line(remark), [])
        for method, remark in unranked(facts)
    ]


def _accuracy(split: str) -> Callable[[Mapping[str, Any]], str]:
    def value(method: Mapping[str, Any]) -> str:
        mean, sd = accuracy_of(method, split), spread_of(at(method, "splits", split, "accuracy"))
        return percent(mean) + ("" if mean is None or sd is None else f" ± {percent(sd)}")

    return value


def _interval(split: str) -> Callable[[Mapping[str, Any]], str]:
    def value(method: Mapping[str, Any]) -> str:
        low, high = (figure(method, "splits", split, "accuracy", end) for end in ("low", "high"))
        return "" if low is None or high is None else f"{low * 100:.1f} to {high * 100:.1f}"

    return value


def _share(*keys: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda method: percent(figure(method, *keys))


def _shown(words: Callable[[float], str], *keys: str) -> Callable[[Mapping[str, Any]], str]:
    def value(method: Mapping[str, Any]) -> str:
        found = figure(method, *keys)
        return "–" if found is None else words(found)

    return value


def _rate(speed: float) -> str:
    return f"{speed:,.0f}" if speed >= 10 else f"{speed:.2g}"


def _published(method: Mapping[str, Any]) -> str:
    return " / ".join(f"{value * 100:.1f}" for value in figures_in(method.get("published"))) or "–"
