"""Render a Document as HTML, as Markdown and on the terminal."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elmokit.core.atomic import explain_os_errors, write_text
from elmokit.core.formatting import escape_markdown, join_names, one_line, printable
from elmokit.report.document import Code, Column, Document, Figure, Section, Table
from elmokit.report.figures import save_confusion_png

if TYPE_CHECKING:
    from rich.console import Console

_LONG_TEXT = 60  # characters; a cell with more is prose
_NARROW_COLUMNS = 6  # a table of so many columns fits beside another one
_MARKDOWN_COLUMNS = 14  # a wider table cannot be read as plain text


def write_report(folder: Path, document: Document, record: Mapping[str, Any]) -> list[Path]:
    """Write report.json (from ``record``), report.md, report.html and pictures; each whole or not at all."""
    with explain_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    texts = {
        "report.json": json.dumps(to_json(record), ensure_ascii=False, allow_nan=False, indent=2) + "\n",
        "report.md": render_markdown(document),
        "report.html": render_html(document),
    }
    for name, text in texts.items():
        write_text(folder / name, text)
    tables = [item for section in document.sections for item in section.items if isinstance(item, Table)]
    pictures = {table.picture: table for table in tables if table.picture}
    for name, table in pictures.items():
        save_confusion_png(folder / name, table)
    return [folder / name for name in (*texts, *pictures)]


def to_json(value: Any) -> Any:
    """Plain JSON values: arrays as lists, paths as strings, None for NaN and infinity."""
    if isinstance(value, Mapping):
        return {to_json(str(key)): to_json(entry) for key, entry in value.items()}
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple | set | frozenset):
        return [to_json(entry) for entry in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int):
        return value
    return re.sub("[\ud800-\udfff]", "\N{REPLACEMENT CHARACTER}", str(value))


# -- HTML -----------------------------------------------------------------------------------------


def render_html(document: Document) -> str:
    """One page that needs no script and no other file."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    n_figures = 0

    def svg(figure: Figure) -> Markup:
        nonlocal n_figures
        n_figures += 1
        prefix = rf"\1figure{n_figures}-"  # ids are unique within a page
        return Markup(re.sub(r'(\bid="|href="#|url\(#)', prefix, figure.svg))

    environment = Environment(
        loader=PackageLoader("elmokit.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: printable(value) if type(value) is str else value,
    )
    environment.tests |= {
        "table": lambda item: isinstance(item, Table),
        "figure": lambda item: isinstance(item, Figure),
    }
    environment.filters |= {
        "blocks": _blocks,
        "groups": _groups,
        "is_list": _is_list,
        "is_prose": _is_prose,
        "is_narrow": _is_narrow,
        "join_names": join_names,
        "svg": svg,
    }
    return environment.get_template("report.html.j2").render(document=document) + "\n"


def _blocks(text: str) -> Iterator[tuple[bool, list[str]]]:
    """Paragraphs and lists (True) of a section's text, as lines."""
    for block in re.split(r"\n\s*\n", text.strip()):
        lines = [one_line(line) for line in block.splitlines()]
        if all(line.startswith("- ") for line in lines):
            yield True, [line[2:] for line in lines]
        elif block:
            yield False, [" ".join(lines)]


def _groups(columns: tuple[Column, ...]) -> list[tuple[str, int]]:
    """Neighboring columns of the same group: its title and their number; [] if no column has a group."""
    groups: list[tuple[str, int]] = []
    for column in columns:
        if groups and groups[-1][0] == column.group:
            groups[-1] = column.group, groups[-1][1] + 1
        else:
            groups.append((column.group, 1))
    return groups if any(title for title, _ in groups) else []


def _is_list(table: Table) -> bool:
    """Whether it is a list of names and values, without a header."""
    return not any(column.title for column in table.columns)


def _is_prose(table: Table) -> bool:
    """Whether cells hold whole sentences: on a phone, such a table becomes a list."""
    return not _is_list(table) and any(len(cell.text) > _LONG_TEXT for row in table.rows for cell in row)


def _is_narrow(table: Table) -> bool:
    return len(table.columns) <= _NARROW_COLUMNS and not _is_prose(table)


# -- Markdown -------------------------------------------------------------------------------------


def render_markdown(document: Document) -> str:
    """Everything but the pictures, which are described in words."""
    lead, *more = [" ".join(lines) for _, lines in _blocks(document.lead)] or [""]
    parts = [f"# {escape_markdown(document.title)}", escape_markdown(document.context)]
    parts += [f"**{escape_markdown(lead)}**" if lead else "", *map(escape_markdown, more)]
    parts.append("\n".join(f"- {escape_markdown(note)}" for note in document.notes))
    facts = [
        f"{fact.label}: {fact.value}" + (f" ({fact.note})" if fact.note else "") for fact in document.facts
    ]
    parts.append("\n".join(f"- {escape_markdown(fact)}" for fact in facts))
    for section in document.sections:
        parts += _section_markdown(section)
    return "\n\n".join(part for part in parts if part) + "\n"


def _section_markdown(section: Section) -> Iterator[str]:
    yield f"## {escape_markdown(section.title)}"
    for is_list, lines in _blocks(section.text):
        yield "\n".join(("- " if is_list else "") + escape_markdown(line) for line in lines)
    for item in section.items:
        if item.caption:
            yield f"### {escape_markdown(item.caption)}"
        if isinstance(item, Figure):
            yield escape_markdown(item.alt)
        elif isinstance(item, Code):
            yield _fence(item.text)
        elif len(item.columns) > _MARKDOWN_COLUMNS:
            yield f"This table has {len(item.columns)} columns; see report.html."
        else:
            yield _table_markdown(item)


def _table_markdown(table: Table) -> str:
    titles = [" ".join(filter(None, (column.group, column.title))) for column in table.columns]
    rule = ["---:" if column.align == "right" else "---" for column in table.columns]
    rows = [
        [escape_markdown(f"{cell.text} ({cell.note})" if cell.note else cell.text) for cell in row]
        for row in table.rows
    ]
    for number in [] if table.highlight is None else [table.highlight]:
        rows[number] = [f"**{text}**" if text else "" for text in rows[number]]
    lines = [[escape_markdown(title) for title in titles], rule, *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _fence(text: str) -> str:
    """A block of code, whatever it holds."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{printable(text)}\n{fence}"


# -- terminal -------------------------------------------------------------------------------------


def print_document(document: Document, console: Console) -> None:
    """Print the lead, the facts, the notes and the tables that are not folded."""
    from rich.markup import escape

    for number, (_, lines) in enumerate(_blocks(document.lead)):
        text = escape(" ".join(lines))
        console.print(text if number else f"[bold]{text}[/]")
    for fact in document.facts:
        note = f" [dim]({escape(fact.note)})[/]" if fact.note else ""
        console.print(f"{escape(fact.label)}: [bold]{escape(fact.value)}[/]{note}")
    for note in document.notes:
        console.print(f"[yellow]{escape(one_line(note))}[/]")
    for section in document.sections:
        for item in () if section.folded else section.items:
            if isinstance(item, Table) and not item.folded:
                console.print()
                print_table(item, console)


def print_table(table: Table, console: Console) -> None:
    """Print a table; headers of numbers are wrapped."""
    from rich.markup import escape
    from rich.table import Table as RichTable

    rich = RichTable(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    rich.title, rich.title_justify = table.caption or None, "left"
    rows = [[one_line(cell.text) for cell in row] for row in table.rows]
    for place, column in enumerate(table.columns):
        words = [*column.title.split(), *(row[place] for row in rows)]
        width = max(map(len, words), default=0) if column.align == "right" else None
        rich.add_column(escape(one_line(column.title)), justify=column.align, width=width)
    for number, row in enumerate(rows):
        rich.add_row(*map(escape, row), style="bold" if number == table.highlight else "")
    console.print(rich)
