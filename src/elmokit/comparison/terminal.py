"""A comparison's ranking for the command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group
from rich.markup import escape
from rich.table import Table

from elmokit.comparison.ranking_rows import ranking_columns, ranking_rows
from elmokit.comparison.standing import main_split, ranked
from elmokit.tasks.drawing import short

__all__ = ["ranking_table"]

_NAME_WIDTH = 22
_COLUMNS = ("Published", "Valid", "F1", "Pretrain", "Fit", "Texts/s", "Disk")


def ranking_table(facts: Mapping[str, Any]) -> Group:
    """Rank, accuracies, macro F1, times, speed and size of each method, within a hundred columns.

    Under the table stands what became of the methods without figures.
    """
    main = main_split(ranked(facts)).capitalize()
    places = {column.name: place for place, column in enumerate(ranking_columns(facts))}
    shown = [name for name in dict.fromkeys((main, *_COLUMNS)) if name in places]
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column("", justify="right", no_wrap=True)
    table.add_column("method", no_wrap=True)
    for name in shown:
        table.add_column("macro F1" if name == "F1" else name.lower(), justify="right", no_wrap=True)
    remarks = []
    for row in ranking_rows(facts):
        name = escape(short(row.name, _NAME_WIDTH))
        if row.remark:
            remarks.append(f"{name}: {escape(row.remark[:1].lower() + row.remark[1:])}")
            continue
        values = {name: row.values[places[name]][0] for name in shown}
        table.add_row(row.rank, name, *values.values(), style="bold" if row.chosen else "")
    return Group(table, *remarks) if table.row_count else Group(*remarks)
