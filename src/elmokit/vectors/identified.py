"""Texts of files, each with an id: from a column, or its number."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from elmokit.core.errors import DataError, nearest
from elmokit.text.files import find_files, format_of
from elmokit.text.readers import TextSource
from elmokit.text.rows import Row, RowSource
from elmokit.text.settings import ReadConfig
from elmokit.text.tokenizing import without_surrogates

__all__ = ["IdentifiedTexts"]


class IdentifiedTexts:
    """The texts of some files with their ids, in order; can be gone through any number of times.

    Args:
        sources: files, folders, glob patterns, or ``-`` for standard input.
        read: how to read them.
        id_column: a name, or a number from 1; empty: texts are numbered from 0.
        outside: of folders and patterns, files below this folder are left out.
    """

    def __init__(
        self,
        sources: Sequence[str | Path],
        read: ReadConfig | None = None,
        id_column: str = "",
        outside: Path | None = None,
    ) -> None:
        read = read or ReadConfig()
        self.id_column = id_column
        self._source: TextSource | RowSource
        if not id_column:
            self._source = TextSource(sources, read, outside)
            return
        files = [] if any(str(source) == "-" for source in sources) else find_files(sources, outside)
        plain = next((file for file in files if format_of(file) == "txt"), None)
        if plain is not None or not files:
            raise DataError(
                f"{plain or 'Standard input'} is plain text, which has no column {id_column!r}.",
                remedy="Leave --id-column out: texts are numbered from 0 then.",
            )
        if not id_column.isdecimal() and read.header == "auto":
            read = dataclasses.replace(read, header="yes")  # where else would the name stand?
        self._source = RowSource(files, read, labels="none", keep=True)

    @property
    def name(self) -> str:
        """What to call them in a message."""
        return self._source.name

    def marks(self) -> list[list[Any]]:
        """Name, size and time of each file."""
        return self._source.marks()

    def __iter__(self) -> Iterator[tuple[str, str]]:
        if isinstance(self._source, TextSource):
            for number, text in enumerate(self._source):
                yield str(number), without_surrogates(text)
        else:
            for row in self._source:
                yield self._id(row), without_surrogates(row.text)

    def _id(self, row: Row) -> str:
        cells = row.cells or {}
        name = self.id_column
        if name not in cells:
            by_name = format_of(Path(row.place.rpartition(",")[0])) == "jsonl"
            if not name.isdecimal() or by_name or not 1 <= int(name) <= len(cells):
                raise DataError(
                    f"{row.place}: there is no column {name!r}.",
                    remedy=f"{nearest(name, cells)} Choose with --id-column.",
                )
            name = list(cells)[int(name) - 1]
        cell = cells[name]
        if isinstance(cell, float) and cell.is_integer():
            cell = int(cell)
        found = "" if cell is None or cell != cell else without_surrogates(str(cell)).strip()
        if not found or isinstance(cell, dict | list):
            raise DataError(
                f"{row.place}: the column {self.id_column!r} holds no id.",
                remedy="Give every row an id, or leave --id-column out.",
            )
        return found
