"""A Document as HTML, as Markdown and on the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elmokit.report.document import Document

if TYPE_CHECKING:
    from rich.console import Console


def render_html(document: Document) -> str:
    """One page that needs no other file and no script."""
    raise NotImplementedError


def render_markdown(document: Document) -> str:
    """The same as Markdown, tables instead of figures."""
    raise NotImplementedError


def print_document(document: Document, console: Console) -> None:
    """Lead, facts and notes, and the tables that are not folded."""
    raise NotImplementedError


def write_report(folder: Path, document: Document, record: Mapping[str, Any]) -> list[Path]:
    """Write report.html, report.md and, from ``record``, report.json; each whole or not at all."""
    raise NotImplementedError
