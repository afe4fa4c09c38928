"""The facts of a model: one object for its README.md, for ``elmokit inspect`` and for programs."""

from __future__ import annotations

import datetime
import html
import platform
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import elmokit
from elmokit.core.formatting import escape_markdown, one_line, plural, printable

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class Facts:
    """What there is to know about a model."""

    summary: str  # what it is, in one sentence, such as "A text classifier."
    rows: tuple[tuple[str, str], ...]  # names and values in plain text, in the order in which they are shown
    values: Mapping[str, Any] = field(default_factory=dict)  # the same and more as JSON values
    usage: str = ""  # how to use it, in Markdown
    title: str = ""  # its name; that of its folder unless given


class Described:
    """``repr`` and a table for notebooks, from the first rows of ``facts``."""

    def facts(self) -> Facts:
        """What it is."""
        raise NotImplementedError

    def _summary(self) -> tuple[str, list[tuple[str, str]]]:
        facts = self.facts()
        title, rows = f"{type(self).__name__}: {facts.summary}", [row for row in facts.rows if row[0]][:6]
        return title, [(name, textwrap.shorten(one_line(text), 100, placeholder=" …")) for name, text in rows]

    def __repr__(self) -> str:
        title, rows = self._summary()
        width = max((len(name) for name, _ in rows), default=0)
        return "\n".join([title, *(f"  {name:{width}}  {value}" for name, value in rows)])

    def _repr_html_(self) -> str:
        title, rows = self._summary()
        cells = [
            f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>" for name, value in rows
        ]
        return f"<b>{html.escape(title)}</b><table>{''.join(cells)}</table>"


def versions(*packages: str) -> dict[str, str]:
    """Versions of elmokit, these packages and Python."""
    others = {name: version(name) for name in packages}
    return {"elmokit": elmokit.__version__, **others, "python": platform.python_version()}


def origin_record(command: str, *packages: str) -> dict[str, Any]:
    """When, by which command and with which packages a model was trained, for its training record."""
    date = datetime.date.today().isoformat()
    return {"date": date, "command": command, "versions": versions(*packages)}


def origin_rows(record: Mapping[str, Any], license: str) -> Iterator[tuple[str, str]]:
    """Rows on where a model comes from, by the training record in ``config.json``.

    ``license`` is shown if the record names none.
    """
    if corpus := record.get("corpus"):
        size = f"{corpus['n_words']:,} words in {plural(corpus['n_documents'], 'text')}"
        yield "corpus", f"{size} ({', '.join(corpus['files'])})"
        yield "unknown words", f"{corpus['unknown_share']:.2%} of the corpus"
    if source := record.get("source"):
        yield "converted from", f"{', '.join(source['files'])} ({source['format']})"
    for note in record.get("notes", []):
        yield "note", note
    for name, key in (("imported from", "file"), ("date", "date"), ("made by", "command")):
        if record.get(key):
            yield name, str(record[key])
    yield "license", str(record.get("license") or record.get("licence") or license)  # licence: 0.1


def card_text(facts: Facts) -> str:
    """README.md of a model."""
    rows = "".join(f"| {escape_markdown(name)} | {escape_markdown(value)} |\n" for name, value in facts.rows)
    origin = f"{facts.summary} Made with elmokit {elmokit.__version__}."
    return f"# {printable(facts.title)}\n\n{origin}\n\n| | |\n|---|---|\n{rows}\n{facts.usage}\n"


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
    console.print(f"[bold]{escape(facts.title)}[/]\n{escape(facts.summary)}\n")
    console.print(table)
