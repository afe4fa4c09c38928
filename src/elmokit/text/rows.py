"""Labelled rows out of .csv, .tsv, .jsonl and .parquet files: what classifiers learn from and label."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

from elmokit.core.errors import DataError, nearest
from elmokit.text.readers import FileSource, find_files, format_of, no_field, open_bytes
from elmokit.text.settings import LabelConfig, ReadConfig
from elmokit.text.tokenizing import replace_surrogates

_USUAL = ("class", "category", "target")
_BLANK = ("", "nan", "<na>")
_REMEDY = "Give every row a label, or drop unlabeled rows with --set drop_unlabelled=true."


@dataclass(frozen=True)
class Row:
    """A text, its label, and where both stand.

    Attributes:
        place: the file and the line the row begins on (in Parquet: the row, from 1).
        text: the text columns, joined by a space; empty if all are blank.
        label: the label as text; None if there is none.
        cells: all columns by name, as they are in the file, if they were asked for.
    """

    place: str
    text: str
    label: str | None
    cells: dict[str, Any] | None = None


class TextSource(FileSource):
    """The texts of some files, in order; can be gone through any number of times.

    Args:
        sources: files, folders, glob patterns, or ``-`` for standard input (kept in a temporary
            file, since it is read more than once).
        config: how to read them.
        outside: of folders and patterns, files below this folder are left out.
    """

    def __iter__(self) -> Iterator[str]:
        if self._stdin is not None:
            self._stdin.seek(0)
            yield from self._blocks(self._stdin, "standard input")
        for path in self.files:
            yield from self._texts(path)

    def _texts(self, path: Path) -> Iterator[str]:
        kind = format_of(path)
        if kind == "parquet":
            names = self._parquet_names(path)
            wanted = [names[place] for place in self._parquet_text_places(names, path)]
            yield from map(self._text, self._parquet(path, wanted))
            return
        with open_bytes(path) as stream:
            if kind == "txt":
                yield from self._blocks(stream, str(path))
            elif kind == "jsonl":
                wanted = self.config.columns or ["text"]
                for number, record in self._objects(stream, path):
                    yield self._object_text(record, wanted, path, number)
            else:
                yield from self._table_texts(stream, path)

    def _blocks(self, stream: IO[bytes], name: str) -> Iterator[str]:
        if self.config.blocks == "lines":
            yield from (line for line in self._lines(stream, name) if line.strip())
        else:
            yield from (text for _, text in self._paragraphs(stream, name))

    def _table_texts(self, stream: IO[bytes], path: Path) -> Iterator[str]:
        places: list[int] | None = None
        for _, row in self._table(stream, path):
            if places is None:
                names = [name.strip() for name in row]
                header = self._has_header(names)
                places = self._text_places(names, path, header)
                if header:
                    continue
            yield " ".join(cell for place in places if (cell := row[place].strip()))


class RowSource(FileSource):
    """The rows of some files, in order; can be gone through any number of times.

    Blank rows (and blank lines of a .txt file) are no rows. A label is what its cell holds, as
    text: ``true`` and ``false`` for JSON and Parquet booleans, ``3`` for the numbers 3 and 3.0. It is
    missing if the cell is blank, null or not a number (also spelt out: ``nan``).

    Args:
        sources: files, folders, glob patterns, or ``-`` for standard input (plain text).
        config: how to read them.
        labels_config: where the labels stand. A column that is named there must exist.
        labels: ``required``: a row without a label is an error, or left out if ``labels_config``
            says so; ``optional``: it has the label None; ``none``: no labels are looked for.
        keep: give all columns of each row along, as ``Row.cells``.

    Attributes:
        n_dropped: how many rows without a label the latest pass has left out.
    """

    def __init__(
        self,
        sources: str | Path | Sequence[str | Path],
        config: ReadConfig | None = None,
        labels_config: LabelConfig | None = None,
        *,
        labels: Literal["required", "optional", "none"] = "required",
        keep: bool = False,
    ) -> None:
        super().__init__(sources, config)
        self.labels_config = labels_config or LabelConfig()
        self.labels = labels
        self.keep = keep
        self.n_dropped = 0
        plain = next((path for path in self.files if format_of(path) == "txt"), None)
        if labels == "required" and (plain is not None or self.is_stdin):
            raise DataError(
                f"{plain or 'Standard input'} is plain text, which holds no labels.",
                remedy="Give the labelled rows as .csv, .tsv, .jsonl or .parquet.",
            )

    def __iter__(self) -> Iterator[Row]:
        self.n_dropped = 0
        if self._stdin is not None:
            self._stdin.seek(0)
            yield from self._plain_rows(self._stdin, "standard input")
        for path in self.files:
            yield from self._rows(path)

    def columns(self) -> list[str] | None:
        """The names ``Row.cells`` has in the first file; None where every row has its own (JSON)."""
        kind = "txt" if self.is_stdin else format_of(self.files[0])
        if kind == "txt":
            return ["text"]
        if kind == "jsonl":
            return None
        path = self.files[0]
        if kind == "parquet":
            return unique(self._parquet_names(path))
        with open_bytes(path) as stream:
            for _, first in self._table(stream, path):
                return self._layout(first, path).names
        return []

    # -- one format each ----------------------------------------------------------------------

    def _rows(self, path: Path) -> Iterator[Row]:
        kind = format_of(path)
        if kind == "parquet":
            yield from self._parquet_rows(path)
            return
        with open_bytes(path) as stream:
            if kind == "txt":
                yield from self._plain_rows(stream, str(path))
            elif kind == "jsonl":
                yield from self._object_rows(stream, path)
            else:
                yield from self._table_rows(stream, path)

    def _plain_rows(self, stream: IO[bytes], name: str) -> Iterator[Row]:
        blocks = (
            enumerate(self._lines(stream, name, whole=True), start=1)
            if self.config.blocks == "lines"
            else self._paragraphs(stream, name)
        )
        for number, block in blocks:
            if text := block.strip():
                yield Row(f"{name}, line {number}", text, None, {"text": block} if self.keep else None)

    def _table_rows(self, stream: IO[bytes], path: Path) -> Iterator[Row]:
        layout: _Layout | None = None
        for number, cells in self._table(stream, path):
            if layout is None:
                layout = self._layout(cells, path)
                if layout.header:
                    continue
            row = self._row(f"{path}, line {number}", cells, layout)
            if row is not None:
                yield row

    def _parquet_rows(self, path: Path) -> Iterator[Row]:
        names = self._parquet_names(path)
        text = self._parquet_text_places(names, path)
        label = self._label_place(names, path, True, text)
        if self.keep:
            layout = _Layout(unique(names), True, text, label)
        else:
            names = [names[place] for place in ([*text] if label is None else [*text, label])]
            layout = _Layout(names, True, list(range(len(text))), None if label is None else len(text))
        for number, cells in enumerate(self._parquet(path, names), start=1):
            row = self._row(f"{path}, row {number}", cells, layout)
            if row is not None:
                yield row

    def _object_rows(self, stream: IO[bytes], path: Path) -> Iterator[Row]:
        texts = self.config.columns or ["text"]
        name = self.labels_config.label_column
        seen = False
        place = ""
        record: dict[str, Any] = {}
        for number, record in self._objects(stream, path):
            place = f"{path}, line {number}"
            text = self._object_text(record, texts, path, number)
            name = name or usual_label(record, texts) or ""
            if name in texts and self.labels != "none":
                raise _both(name, path)
            if name and name in record:
                seen = True
            elif self.labels == "required" and not self.labels_config.drop_unlabelled:
                raise self._no_label_field(name, record, place)
            label = record.get(name) if name and self.labels != "none" else None
            row = self._labelled(place, text, label, record if self.keep else None)
            if row is not None:
                yield row
        if self.labels == "required" and place and not seen:
            raise self._no_label_field(name, record, place)

    # -- columns ------------------------------------------------------------------------------

    def _layout(self, first: Sequence[str], path: Path) -> _Layout:
        """What stands where in a table, from its first row."""
        names = [name.strip() for name in first]
        header = self._has_header(names)
        text = self._text_places(names, path, header)
        label = self._label_place(names, path, header, text)
        called = unique(names) if header else [str(number) for number in range(1, len(names) + 1)]
        return _Layout(called, header, text, label)

    def _has_header(self, first: Sequence[str]) -> bool:
        name = self.labels_config.label_column
        if self.config.header == "auto" and self.labels != "none":
            usual = not name and len(first) > 1 and usual_label(first, self.config.columns)
            if usual or (name and not name.isdecimal()):
                return True
        return super()._has_header(first)

    def _label_place(self, names: Sequence[str], path: Path, header: bool, text: Sequence[int]) -> int | None:
        """Where the label column stands."""
        if self.labels == "none":
            return None
        name = self.labels_config.label_column
        if name:
            place = self._place(name, names, path, header, " Choose with --label-column.")
            if place in text:
                raise _both(name, path)
            return place
        usual = usual_label(names, [names[place] for place in text]) if header else None
        if usual is not None:
            return names.index(usual)
        if self.labels == "optional":
            return None
        raise DataError(
            f"{path} has {len(names)} columns ({', '.join(names)[:200]}): which holds the label?",
            remedy=_perhaps(names) + "Say --label-column NAME or, without a header row, a number from 1.",
        )

    @staticmethod
    def _no_label_field(name: str, record: dict[str, Any], place: str) -> DataError:
        if name:
            error = no_field(name, record, place, "--label-column")
            return DataError(error.message, remedy=f"{error.remedy} {_REMEDY}")
        return DataError(
            f"{place} has {len(record)} fields ({', '.join(record)[:200]}): which holds the label?",
            remedy=_perhaps(record) + f"Say --label-column NAME. {_REMEDY}",
        )

    # -- rows and labels ----------------------------------------------------------------------

    def _row(self, place: str, cells: Sequence[Any], layout: _Layout) -> Row | None:
        text = self._text(cells[at] for at in layout.text)
        label = None if layout.label is None else cells[layout.label]
        kept = dict(zip(layout.names, cells, strict=True)) if self.keep else None
        return self._labelled(place, text, label, kept)

    def _labelled(self, place: str, text: str, cell: Any, cells: dict[str, Any] | None) -> Row | None:
        """The row, or None if it is to be left out for want of a label."""
        label = self._label(cell, place)
        if label is None and self.labels == "required":
            if not self.labels_config.drop_unlabelled:
                raise DataError(f"{place}: the row has no label.", remedy=_REMEDY)
            self.n_dropped += 1
            return None
        return Row(place, text, label, cells)

    def _label(self, cell: Any, place: str) -> str | None:
        """What a cell says as a label; None if that is nothing."""
        separator = self.labels_config.label_separator
        if isinstance(cell, list):
            if not separator:
                raise DataError(
                    f"{place}: the label is a list.",
                    remedy="If rows can have several labels, say --label-separator '|'.",
                )
            labels = [label for part in cell if (label := self._one_label(part, place)) is not None]
            for label in labels:
                if separator in label:
                    raise DataError(
                        f"{place}: the label {label!r} holds the separator {separator!r}.",
                        remedy="Choose another --label-separator, one that no label holds.",
                    )
            return separator.join(labels) or None
        label = self._one_label(cell, place)
        return label if label is not None and self.labels_config.split(label) else None

    def _one_label(self, cell: Any, place: str) -> str | None:
        if isinstance(cell, dict | list):
            raise DataError(
                f"{place}: the label is {'an object' if isinstance(cell, dict) else 'a list'}.",
                remedy="A label must be a text, a number, or true or false.",
            )
        if isinstance(cell, bool):
            return "true" if cell else "false"
        if isinstance(cell, float) and cell.is_integer() and abs(cell) < 1 << 53:
            return str(int(cell))
        label = replace_surrogates(self._cell(cell))
        return None if label.lower() in _BLANK else label


@dataclass(frozen=True)
class _Layout:
    """What stands where in the rows of a table."""

    names: list[str]
    header: bool
    text: list[int]
    label: int | None


def usual_label(names: Collection[str], texts: Collection[str] = ()) -> str | None:
    """The column that must be the label when nobody says which: none of ``texts``, of course.

    >>> usual_label(["title", "body", "category"])
    'category'
    """
    if "label" in names and "label" not in texts:
        return "label"
    found = [name for name in _USUAL if name in names and name not in texts]
    return found[0] if len(found) == 1 else None


def unique(names: Iterable[str]) -> list[str]:
    """The names, with ``_2``, ``_3``, ... after one that was there before.

    >>> unique(["text", "note", "note"])
    ['text', 'note', 'note_2']
    """
    names = list(names)
    taken: set[str] = set()
    found = []
    for name in names:
        number, chosen = 1, name
        while chosen in taken or (number > 1 and chosen in names):
            number += 1
            chosen = f"{name}_{number}"
        taken.add(chosen)
        found.append(chosen)
    return found


def _both(name: str, path: Path) -> DataError:
    return DataError(
        f"{path}: the column {name!r} is asked for both as text and as label.",
        remedy="Choose other columns with --text-columns or --label-column: "
        "a text that holds its own label teaches nothing.",
    )


def _perhaps(names: Iterable[str]) -> str:
    hint = nearest("label", names)
    return f"{hint} " if hint.startswith("Did") else ""


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
                yield str(number), replace_surrogates(text)
        else:
            for row in self._source:
                yield self._id(row), replace_surrogates(row.text)

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
        found = "" if cell is None or cell != cell else replace_surrogates(str(cell)).strip()
        if not found or isinstance(cell, dict | list):
            raise DataError(
                f"{row.place}: the column {self.id_column!r} holds no id.",
                remedy="Give every row an id, or leave --id-column out.",
            )
        return found
