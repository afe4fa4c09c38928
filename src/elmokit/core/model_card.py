"""The facts of a model: one object for its README.md, for ``elmokit inspect`` and for programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from elmokit.core.formatting import escape_markdown

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class Facts:
    """What there is to know about a model.

    Attributes:
        summary: What it is, in one sentence, such as "A text classifier."
        rows: Names and values in plain text, in the order in which they are shown.
        values: The same and more as JSON values.
        usage: How to use it, in Markdown.
        title: Its name; that of its folder unless given.
    """

    summary: str
    rows: tuple[tuple[str, str], ...]
    values: Mapping[str, Any] = field(default_factory=dict)
    usage: str = ""
    title: str = ""


def card_text(facts: Facts) -> str:
    """README.md of a model."""
    rows = "".join(f"| {escape_markdown(name)} | {escape_markdown(value)} |\n" for name, value in facts.rows)
    usage = f"\n{facts.usage}\n" if facts.usage else ""
    return f"# {facts.title}\n\n{facts.summary}\n\n| | |\n|---|---|\n{rows}{usage}"


def print_facts(facts: Facts, console: Console) -> None:
    """Show a model on the terminal."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    last = None
    for name, value in facts.rows:
        table.add_row("" if name == last else escape(name), escape(value))
        last = name
    console.print(f"[bold]{escape(facts.title)}[/]: {escape(facts.summary)}\n")
    console.print(table)
