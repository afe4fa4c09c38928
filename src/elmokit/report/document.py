"""A report as data: what ``render`` turns into HTML, Markdown and terminal output."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from elmokit.core.formatting import format_value

_MAX_PICTURED = 30
_LONG_TEXT = 60  # characters; a cell with more is prose


@dataclass(frozen=True)
class Column:
    """A column of a table; ``group`` is a header above it, shared with neighbors of the same group."""

    title: str
    align: Literal["left", "right"] = "left"
    group: str = ""


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table.

    Attributes:
        shade: How strong its color is, from 0 to 1; None for a cell without color.
        note: Shown small below the text.
        look: Number of the color and shape that stand for it in figures.
    """

    text: str
    shade: float | None = None
    note: str = ""
    bold: bool = False
    look: int | None = None


@dataclass(frozen=True)
class Table:
    """Rows of cells; the first cell of a row names it.

    Attributes:
        highlight: Number of the row to emphasize.
        folded: In pages, closed until the reader opens it.
        picture: Name of a PNG file of a confusion matrix, which is written beside the report.
        searchable: For very many rows: plain cells and a search box in pages, left out of Markdown.
    """

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    highlight: int | None = None
    caption: str = ""
    folded: bool = False
    picture: str = ""
    searchable: bool = False

    @property
    def is_list(self) -> bool:
        """Whether it is a list of names and values, without a header."""
        return not any(column.title for column in self.columns)

    @property
    def is_prose(self) -> bool:
        """Whether cells hold whole sentences: on a phone, such a table becomes a list."""
        return (
            not self.is_list
            and not self.searchable
            and any(len(cell.text) > _LONG_TEXT for row in self.rows for cell in row)
        )


@dataclass(frozen=True)
class Figure:
    """A picture: an SVG element in the colors of the page, a PNG, and ``alt``, what it shows in words."""

    svg: str
    alt: str
    caption: str = ""
    png: bytes = b""


@dataclass(frozen=True)
class Code:
    """Commands, or other text in a fixed-width font."""

    text: str
    caption: str = ""


@dataclass(frozen=True)
class Section:
    """A part of a report.

    Attributes:
        id: For links; unique in the report.
        text: Paragraphs, separated by empty lines; lines that start with "- " are list items.
        folded: In pages, the items are hidden until the reader opens the section.
    """

    id: str
    title: str
    text: str = ""
    items: tuple[Table | Figure | Code, ...] = ()
    folded: bool = False


@dataclass(frozen=True)
class Fact:
    """A number to show large at the top of a report."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Document:
    """A whole report.

    Attributes:
        lead: The main result: one sentence and, after an empty line, further ones.
        facts: The main numbers, the most important one first.
        notes: Sentences that the reader must not miss, such as rows that were left out.
        context: One line below the title: what was measured.
    """

    title: str
    lead: str
    sections: tuple[Section, ...]
    facts: tuple[Fact, ...] = ()
    notes: tuple[str, ...] = ()
    context: str = ""


def make_table(
    columns: Iterable[Column | str], rows: Iterable[Iterable[Cell | str]], **options: Any
) -> Table:
    """A table from plain strings and cells; columns given by title are numbers, except the first."""
    heads = tuple(
        column if isinstance(column, Column) else Column(column, "right" if place else "left")
        for place, column in enumerate(columns)
    )
    make = lru_cache(10_000)(Cell)  # long tables repeat their texts
    cells = tuple(tuple(cell if isinstance(cell, Cell) else make(cell) for cell in row) for row in rows)
    return Table(heads, cells, **options)


def make_list(pairs: Iterable[tuple[str, str]], caption: str = "") -> Table:
    """A table of names and values, without a header."""
    return make_table([Column(""), Column("")], pairs, caption=caption)


def make_details(command: str, *lists: tuple[str, Mapping[str, Any]]) -> Section:
    """The command, and settings and the like, each with a caption."""
    tables = [
        make_list(((name, format_value(value)) for name, value in values.items()), caption)
        for caption, values in lists
        if values
    ]
    items = [Code(command, "Command")] if command else []
    return Section("details", "How it was made", "", (*items, *tables), folded=True)


def make_pairs_table(pairs: Iterable[tuple[str, str, int, int]], caption: str, at_most: int) -> Table:
    """The first pairs of a true and a predicted class: rows, and their share of those of the true class."""
    rows = (
        (true, wrong, f"{n:,}", f"{100 * n / n_true:.2f}")
        for true, wrong, n, n_true in itertools.islice(pairs, at_most)
    )
    columns = ("True", Column("Predicted"), "Rows", "% of the true class")
    return make_table(columns, rows, caption=caption)


def make_confusion_table(
    counts: Sequence[Sequence[int]],
    rows: Sequence[str],
    columns: Sequence[str],
    caption: str = "",
    *,
    folded: bool = False,
    picture: str = "",
) -> Table:
    """True classes in rows, predicted ones in columns, shaded by their share of the row.

    Args:
        picture: Name of a PNG file; up to 30 classes, more would not be readable.
    """
    cells = [
        [Cell(name), *(Cell(f"{count:,}", shade=count / max(1, sum(row))) for count in row)]
        for name, row in zip(rows, counts, strict=True)
    ]
    picture = picture if len(columns) <= _MAX_PICTURED else ""
    return make_table(["True", *columns], cells, caption=caption, folded=folded, picture=picture)
