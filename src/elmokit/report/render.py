"""Render a Document as HTML, as Markdown and on the terminal."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elmokit.core.atomic import STAGED, atomic_write, explain_os_errors, staging, write_text
from elmokit.core.formatting import escape_markdown, join_names, one_line, printable
from elmokit.report.document import Code, Column, Document, Figure, Table
from elmokit.report.figures import save_confusion

if TYPE_CHECKING:
    from rich.console import Console

_SEARCH = """
for (const box of document.querySelectorAll("input[type=search]")) box.addEventListener("input", () => {
  const wanted = box.value.toLowerCase();
  for (const row of box.nextElementSibling.querySelector("tbody").rows)
    row.hidden = !row.cells[0].textContent.toLowerCase().includes(wanted);
});
"""
_MARKDOWN_COLUMNS = 14  # a wider table cannot be read as plain text


def write_report(folder: Path, document: Document, record: Mapping[str, Any]) -> list[Path]:
    """Write report.json (from ``record``), report.md, report.html and pictures, all of them or none.

    Figures are also written alone, as ``figures/SECTION.svg`` and ``.png``; from the second one of a section,
    ``figures/SECTION-2.svg``. So are confusion matrices, as ``figures/confusion_test.svg`` and the like.
    ``folder`` may be the staging folder of a model.
    """
    if folder.name != STAGED:
        with staging(folder, "report.json") as staged:
            paths = write_report(staged, document, record)
        return [folder / path.relative_to(staged) for path in paths]
    with atomic_write(folder / "report.json") as temporary, open(temporary, "w", encoding="utf-8") as file:
        json.dump(to_json(record), file, ensure_ascii=False, allow_nan=False, indent=2)  # piece by piece
        file.write("\n")
    write_text(folder / "report.md", render_markdown(document))
    write_text(folder / "report.html", render_html(document))
    names = ["report.json", "report.md", "report.html"]
    for table in (item for section in document.sections for item in section.items if isinstance(item, Table)):
        if table.picture:
            with explain_os_errors(folder / "figures"):
                (folder / "figures").mkdir(exist_ok=True)
            names += save_confusion(folder, f"figures/{table.picture}", table)
    figures = {
        f"figures/{section.id}{f'-{number}' if number > 1 else ''}": figure
        for section in document.sections
        for number, figure in enumerate((one for one in section.items if isinstance(one, Figure)), 1)
    }
    for name, figure in figures.items():
        (folder / "figures").mkdir(exist_ok=True)
        write_text(folder / f"{name}.svg", re.sub(r"var\(--[a-z-]+, (#\w+)\)", r"\1", figure.svg) + "\n")
        with atomic_write(folder / f"{name}.png") as temporary:
            temporary.write_bytes(figure.png)
        names += [f"{name}.svg", f"{name}.png"]
    return [folder / name for name in names]


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
    """One page that needs no other file, and no script but to search long tables."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    numbers = itertools.count(1)

    def svg(figure: Figure) -> Markup:
        prefix = rf"\1figure{next(numbers)}-"  # ids are unique within a page
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
    environment.filters |= {"blocks": _blocks, "groups": _groups, "join_names": join_names, "svg": svg}
    is_long = any(getattr(item, "searchable", False) for part in document.sections for item in part.items)
    digest = base64.b64encode(
        hashlib.sha256(_SEARCH.encode()).digest()
    ).decode()  # no other script is allowed
    options = {"search": Markup(_SEARCH) if is_long else "", "digest": digest}
    return environment.get_template("report.html.j2").render(document=document, **options) + "\n"


def _blocks(text: str) -> Iterator[tuple[bool, list[str]]]:
    """Paragraphs and lists (True) of a section's text, as lines."""
    for block in re.split(r"\n\s*\n", text.strip()):
        lines = [one_line(line) for line in block.splitlines()]
        if all(line.startswith("- ") for line in lines):
            yield True, [line[2:] for line in lines]
        elif block:
            yield False, [" ".join(lines)]


def _groups(columns: tuple[Column, ...]) -> list[tuple[str, int]]:
    """Groups of neighboring columns: title, which may be empty, and number of columns."""
    return [(title, len(list(run))) for title, run in itertools.groupby(columns, lambda column: column.group)]


# -- Markdown -------------------------------------------------------------------------------------


def render_markdown(document: Document) -> str:
    """Everything but the pictures, which are described in words."""
    lead, *more = [escape_markdown(" ".join(lines)) for _, lines in _blocks(document.lead)] or [""]
    facts = [
        f"{fact.label}: {fact.value}" + (f" ({fact.note})" if fact.note else "") for fact in document.facts
    ]
    parts = [f"# {escape_markdown(document.title)}", escape_markdown(document.context)]
    parts += [f"**{lead}**" if lead else "", *more]
    parts += ["\n".join(f"- {escape_markdown(line)}" for line in lines) for lines in (document.notes, facts)]
    for section in document.sections:
        parts.append(f"## {escape_markdown(section.title)}")
        for is_list, lines in _blocks(section.text):
            parts.append("\n".join(("- " if is_list else "") + escape_markdown(line) for line in lines))
        for item in section.items:
            parts += [f"### {escape_markdown(item.caption)}" if item.caption else "", _item_markdown(item)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _item_markdown(item: Table | Figure | Code) -> str:
    if isinstance(item, Figure):
        return escape_markdown(item.alt)
    if isinstance(item, Code):
        fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`+", item.text))])
        return f"{fence}\n{printable(item.text)}\n{fence}"
    if len(item.columns) > _MARKDOWN_COLUMNS or item.searchable:
        n_rows, n_columns = len(item.rows), len(item.columns)
        return f"This table has {n_rows:,} rows and {n_columns} columns; see report.html."
    titles = [escape_markdown(f"{column.group} {column.title}") for column in item.columns]
    rule = ["---:" if column.align == "right" else "---" for column in item.columns]
    rows = [
        [escape_markdown(f"{cell.text} ({cell.note})" if cell.note else cell.text) for cell in row]
        for row in item.rows
    ]
    if item.highlight is not None:
        rows[item.highlight] = [f"**{text}**" if text else "" for text in rows[item.highlight]]
    return "\n".join("| " + " | ".join(line) + " |" for line in (titles, rule, *rows))


# -- terminal -------------------------------------------------------------------------------------


def print_table(table: Table, console: Console) -> None:
    """Print a table; headers of numbers are wrapped."""
    from rich.markup import escape
    from rich.table import Table as RichTable

    rich = RichTable(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    rows = [[one_line(cell.text) for cell in row] for row in table.rows]
    for place, column in enumerate(table.columns):
        words = [*column.title.split(), *(row[place] for row in rows)]
        width = max(map(len, words), default=0) if column.align == "right" else None
        rich.add_column(escape(one_line(column.title)), justify=column.align, width=width)
    for number, row in enumerate(rows):
        rich.add_row(*map(escape, row), style="bold" if number == table.highlight else "")
    console.print(rich)
