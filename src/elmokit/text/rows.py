"""Texts, labels and ids of the records in files: what models read, learn from and label."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from elmokit.core.errors import DataError, nearest
from elmokit.text.readers import FileSource, OpenFile
from elmokit.text.settings import LabelConfig, ReadConfig
from elmokit.text.tokenizing import replace_surrogates

_USUAL_LABELS = ("class", "category", "target")
_MISSING = ("", "nan", "<na>")
_UNLABELED = "Give every row a label, or drop unlabeled rows with --set drop_unlabeled=true."
_Header = Literal["yes", "no", "json"]
"""Whether columns have names and numbers, only numbers, or only names."""


@dataclass(frozen=True)
class Row:
    """A text with its label and id.

    Attributes:
        place: The file and the line the row begins on (in Parquet: the row, from 1).
        text: The text columns, joined by a space; empty if all are blank.
        label: None if there is none.
        cells: All columns by name, unchanged, if the source keeps them.
        id: From the id column, if there is one.
        texts: The text columns one by one, for tasks that read several texts.
    """

    place: str
    text: str
    label: str | None
    cells: dict[str, Any] | None = None
    id: str = ""
    texts: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class _Layout:
    """The names of the columns, and the places of those that are read."""

    names: list[str]
    header: _Header
    text: Sequence[int]
    label: int | None = None
    id: int | None = None


class _Records(FileSource):
    """Finds the columns of each record; the base of texts, texts with ids, and rows."""

    labels: Literal["required", "optional", "none"] = "none"
    labels_config = LabelConfig()
    id_column = ""
    keep = False

    def _read_texts(self) -> Iterator[str]:
        """The text of every record; very long lines of plain text come in parts."""
        for file in self.open():
            if file.format == "txt":
                yield from (block for _, block in file.blocks(whole=False))
            else:
                for number, cells, layout in self._records(file):
                    yield _join(self._texts(cells, layout, file.place(number)))

    def _read_rows(self) -> Iterator[Row]:
        for file in self.open():
            for number, cells, layout in self._records(file):
                place = file.place(number)
                texts = self._texts(cells, layout, place)
                yield Row(
                    place,
                    _join(texts),
                    None if layout.label is None else self._label(cells[layout.label], place),
                    dict(zip(layout.names, cells, strict=True)) if self.keep else None,
                    "" if layout.id is None else self._id(cells[layout.id], place),
                    texts,
                )

    # -- columns ------------------------------------------------------------------------------

    @property
    def _label_name(self) -> str | None:
        return None if self.labels == "none" else self.labels_config.label_column

    def _records(self, file: OpenFile) -> Iterator[tuple[int, Sequence[Any], _Layout]]:
        """The records of a file, with their numbers and their layout."""
        label = self._label_name
        if file.format == "txt":
            layout = _Layout(["text"], "no", [0])
            yield from ((number, (block,), layout) for number, block in file.blocks(whole=True))
        elif file.format == "jsonl":
            yield from self._objects(file, label)
        elif file.format == "parquet":
            names = file.parquet_names()
            layout = self._layout(names, file.name, "yes", label)
            if not self.keep:  # other columns are not even read
                n, labels = len(layout.text), () if layout.label is None else (layout.label,)
                names = [names[place] for place in (*layout.text, *labels)]
                layout = _Layout(names, "yes", range(n), n if labels else None)
            yield from ((number, cells, layout) for number, cells in file.parquet(names))
        else:
            rows = file.table()
            for number, first in rows:
                layout = self._table_layout(first, file.name, label)
                if layout.header == "no":
                    yield number, first, layout
                yield from ((number, cells, layout) for number, cells in rows)

    def _objects(self, file: OpenFile, label: str | None) -> Iterator[tuple[int, Sequence[Any], _Layout]]:
        """JSON objects: each has fields of its own, and the label may be in some of them only."""
        may_lack = self.labels == "optional" or self.labels_config.drop_unlabeled
        names, place, has_label = [], "", self.labels != "required"
        for number, record in file.objects():
            names, place = list(record), file.place(number)
            if label == "":
                label = usual_label(names, self.config.columns or ["text"]) or ""
            is_missing = label is not None and label not in record
            layout = self._layout(names, place, "json", None if is_missing and may_lack else label)
            has_label = has_label or not is_missing
            yield number, list(record.values()), layout
        if names and not has_label:
            self._layout(names, place, "json", label)  # raises an error that names the fields

    def _table_layout(self, first: Sequence[str], file: str, label: str | None) -> _Layout:
        """The layout of a table by its first row, which may name the columns."""
        names, columns, header = [name.strip() for name in first], self.config.columns, self.config.header
        if header == "auto":
            by_name = any(not name.isdecimal() for name in (*columns, label, self.id_column) if name)
            has_label = label == "" and len(names) > 1 and usual_label(names, columns) is not None
            header = "yes" if by_name or has_label or (not columns and "text" in names) else "no"
        return self._layout(names, file, header, label)

    def _layout(self, names: Sequence[str], where: str, header: _Header, label: str | None) -> _Layout:
        """Where the text, the label (None: not read) and the id are.

        Args:
            where: The file (of JSON: the line), for errors.
            label: Name or number of its column; "" for the usual ones.
        """
        columns = self.config.columns
        if not columns and (header == "json" or (header == "yes" and "text" in names)):
            columns = ["text"]
        if not columns and len(names) > 1:
            raise DataError(
                f"{where} has {len(names)} columns ({', '.join(names)[:200]}): which hold the text?",
                remedy="Use --text-columns NAME[,NAME] or, without a header row, numbers from 1.",
            )
        text = [_place(name, names, where, header, "--text-columns") for name in columns] or [0]
        place = None if label is None else self._label_place(names, where, header, label, text)
        if place is not None and place in text:
            raise DataError(
                f"{where}: the column {names[place]!r} is used both as text and as label.",
                remedy="Choose other columns with --text-columns or --label-column.",
            )
        shown = [str(number + 1) for number in range(len(names))] if header == "no" else unique(names)
        id = _place(self.id_column, shown, where, header, "--id-column") if self.id_column else None
        return _Layout(shown, header, text, place, id)

    def _label_place(
        self, names: Sequence[str], where: str, header: _Header, label: str, text: Sequence[int]
    ) -> int | None:
        more = f" {_UNLABELED}" if header == "json" else ""
        if label:
            return _place(label, names, where, header, "--label-column", more)
        usual = usual_label(names, [names[place] for place in text]) if header != "no" else None
        if usual is not None:
            return names.index(usual)
        if self.labels == "optional":
            return None
        hint = nearest("label", names)
        raise DataError(
            f"{where} has {len(names)} columns ({', '.join(names)[:200]}): which holds the label?",
            remedy=(f"{hint} " if hint.startswith("Did") else "")
            + f"Use --label-column NAME or, without a header row, a number from 1.{more}",
        )

    # -- cells --------------------------------------------------------------------------------

    def _texts(self, cells: Sequence[Any], layout: _Layout, place: str) -> tuple[str, ...]:
        return tuple(self._cell(cells[column], place) for column in layout.text)

    def _cell(self, cell: Any, place: str) -> str:
        """A cell of any type as text; empty if it is missing."""
        if isinstance(cell, bytes):
            try:
                cell = cell.decode(self.config.encoding, self.config.errors)
            except UnicodeError as error:
                raise DataError(
                    f"{place}: not valid {self.config.encoding} ({error}).",
                    remedy="Specify the encoding (--encoding latin-1, ...), or use --set errors=replace.",
                ) from error
        if cell is None or cell != cell:  # NaN is not itself
            return ""
        return replace_surrogates(str(cell)).strip()

    def _scalar(self, cell: Any, place: str) -> str:
        """A label or id as text: ``true``, not ``True``; ``3``, not ``3.0``."""
        if isinstance(cell, bool):
            return str(cell).lower()
        if isinstance(cell, float) and cell.is_integer() and abs(cell) < 1 << 53:
            return str(int(cell))
        return self._cell(cell, place)

    def _label(self, cell: Any, place: str) -> str | None:
        """A cell as a label; None if there is none."""
        separator = self.labels_config.label_separator
        if isinstance(cell, list) and not separator:
            raise DataError(
                f"{place}: the label is a list.",
                remedy="If rows can have several labels, add --label-separator '|'.",
            )
        cells = cell if isinstance(cell, list) else [cell]
        for part in cells:
            if isinstance(part, dict | list):
                raise DataError(
                    f"{place}: the label is {'an object' if isinstance(part, dict) else 'a list'}.",
                    remedy="A label must be a text, a number, or true or false.",
                )
        labels = [self._scalar(part, place) for part in cells]
        for label in labels:
            if isinstance(cell, list) and separator in label:
                raise DataError(
                    f"{place}: the label {label!r} holds the separator {separator!r}.",
                    remedy="Choose a --label-separator that no label holds.",
                )
        label = separator.join(label for label in labels if label.lower() not in _MISSING)
        return label if self.labels_config.split(label) else None

    def _id(self, cell: Any, place: str) -> str:
        id = self._scalar(cell, place)
        if not id or isinstance(cell, dict | list):
            raise DataError(
                f"{place}: the column {self.id_column!r} holds no id.",
                remedy="Give every row an id, or leave --id-column out.",
            )
        return id


class TextSource(_Records):
    """The texts of some files, in order; can be read any number of times.

    Args:
        sources: Files, folders, glob patterns, or ``-`` for standard input (kept in a temporary file, since
            it is read more than once).
        config: How to read them.
        exclude: Files that folders and patterns find below this folder are left out.
    """

    def __iter__(self) -> Iterator[str]:
        return self._read_texts()


class IdentifiedTexts(_Records):
    """The texts of some files, each with its id; can be read any number of times.

    Args:
        id_column: A name, or a number from 1; empty: texts are numbered from 0.
    """

    def __init__(
        self,
        sources: str | Path | Sequence[str | Path],
        config: ReadConfig | None = None,
        id_column: str = "",
        exclude: Path | None = None,
    ) -> None:
        super().__init__(sources, config, exclude)
        self.id_column, self.keep = id_column, bool(id_column)
        if id_column and (plain := self.plain_file()):
            raise DataError(
                f"{plain} is plain text, which has no column {id_column!r}.",
                remedy="Leave --id-column out: texts are then numbered from 0.",
            )

    def __iter__(self) -> Iterator[tuple[str, str]]:
        if self.id_column:
            return ((row.id, row.text) for row in self._read_rows())
        return ((str(number), replace_surrogates(text)) for number, text in enumerate(self._read_texts()))


class RowSource(_Records):
    """The rows of some files, in order; can be read any number of times.

    Blank rows (and blank lines of a .txt file) are skipped. A label is its cell as text: ``true`` and
    ``false`` for JSON and Parquet booleans, ``3`` for the numbers 3 and 3.0. It is missing if the cell is
    blank, null or not a number (also spelled out: ``nan``).

    Args:
        sources: Files, folders, glob patterns, or ``-`` for standard input (plain text).
        config: How to read them.
        labels_config: Where the labels are. A column that is named there must exist.
        labels: ``required``: a row without a label is an error, or left out if ``labels_config`` says so;
            ``optional``: it has the label None; ``none``: labels are not read.
        keep: Return all columns of each row, as ``Row.cells``.

    Attributes:
        n_dropped: Rows without a label that the latest pass has left out.
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
        self.labels, self.keep, self.n_dropped = labels, keep, 0
        if labels == "required" and (plain := self.plain_file()):
            raise DataError(
                f"{plain} is plain text, which holds no labels.",
                remedy="Use labeled rows in .csv, .tsv, .jsonl or .parquet.",
            )

    def __iter__(self) -> Iterator[Row]:
        self.n_dropped = 0
        for row in self._read_rows():
            if row.label is not None or self.labels != "required":
                yield row
            elif self.labels_config.drop_unlabeled:
                self.n_dropped += 1
            else:
                raise DataError(f"{row.place}: the row has no label.", remedy=_UNLABELED)

    def columns(self) -> list[str] | None:
        """The names that ``Row.cells`` has in the first file; None where every row has its own (JSON)."""
        for file in self.open():
            if file.format in ("txt", "jsonl"):
                return ["text"] if file.format == "txt" else None
            if file.format == "parquet":
                return unique(file.parquet_names())
            for _, first in file.table():
                return self._table_layout(first, file.name, self._label_name).names
            break
        return []


def _join(texts: Iterable[str]) -> str:
    return " ".join(filter(None, texts))


def usual_label(names: Collection[str], texts: Collection[str] = ()) -> str | None:
    """The column that is the label unless another is named; never one of ``texts``.

    >>> usual_label(["title", "body", "category"])
    'category'
    """
    if "label" in names and "label" not in texts:
        return "label"
    usual = [name for name in _USUAL_LABELS if name in names and name not in texts]
    return usual[0] if len(usual) == 1 else None


def unique(names: Iterable[str]) -> list[str]:
    """The names, with ``_2``, ``_3``, ... after one that was there before.

    >>> unique(["text", "note", "note"])
    ['text', 'note', 'note_2']
    """
    names = list(names)
    result: dict[str, None] = {}
    for name in names:
        number, new = 1, name
        while new in result or (number > 1 and new in names):
            number += 1
            new = f"{name}_{number}"
        result[new] = None
    return list(result)


def _place(name: str, names: Sequence[str], where: str, header: _Header, flag: str, more: str = "") -> int:
    """Where the column of this name or number is; ``more`` is added to the remedy."""
    if header != "no" and name in names:
        return names.index(name)
    if name.isdecimal() and header != "json":
        if 1 <= int(name) <= len(names):
            return int(name) - 1
        problem = f"{where} has {len(names)} columns, so there is no column {name}."
        raise DataError(problem, remedy=f"Number the columns from 1 to {len(names)}.")
    if header == "no":
        problem = f"Without a header row, {where} has no column named {name!r}."
        raise DataError(problem, remedy=f"Number the columns from 1 to {len(names)}.")
    hint = nearest(name, names)
    if name.isdecimal():
        hint = f"JSON fields are chosen by name, not by number: {', '.join(names)}."
    by_number = "; without a header row, by number from 1" if header == "yes" else ""
    noun = "column" if header == "yes" else "field"
    raise DataError(f"{where} has no {noun} {name!r}.", remedy=f"{hint} Choose with {flag}{by_number}.{more}")
