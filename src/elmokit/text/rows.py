"""Texts, labels and ids of the records in files: what models read, learn from and label."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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


@dataclass(frozen=True)
class Row:
    """A text with its label and id.

    Attributes:
        place: The file and the line the row begins on (in Parquet: the row, from 1).
        text: The text columns, joined by a space; empty if all are blank.
        texts: The text columns one by one, for tasks that read several texts.
        label: The label as text; None if there is none.
        cells: All columns by name, as they are in the file, if they were asked for.
        id: From the id column, if there is one.
    """

    place: str
    text: str
    label: str | None
    cells: dict[str, Any] | None = None
    id: str = ""
    texts: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class _Layout:
    """What the columns are called, and which are read: by number in tables, by name in JSON objects."""

    names: list[str]
    header: bool
    text: Sequence[Any]
    label: Any = None
    id: Any = None

    def by_name(self, cells: Any) -> dict[str, Any]:
        return cells if isinstance(cells, dict) else dict(zip(self.names, cells, strict=True))


class _Records(FileSource):
    """What texts, rows and texts with ids have in common: finding the columns of each record."""

    labels: Literal["required", "optional", "none"] = "none"
    labels_config = LabelConfig()
    id_column = ""
    keep = False

    def _read_texts(self) -> Iterator[str]:
        """The text of every record; lines of plain text as they are, very long ones in parts."""
        for file in self.open():
            if file.format == "txt":
                yield from (block for _, block in file.blocks(whole=False))
            else:
                for number, cells, layout in self._records(file):
                    yield _join(self._texts(cells, layout.text, file.place(number)))

    def _read_rows(self) -> Iterator[Row]:
        for file in self.open():
            for number, cells, layout in self._records(file):
                place = file.place(number)
                texts = self._texts(cells, layout.text, place)
                yield Row(
                    place,
                    _join(texts),
                    None if layout.label is None else self._label(cells[layout.label], place),
                    layout.by_name(cells) if self.keep else None,
                    "" if layout.id is None else self._id(cells[layout.id], place),
                    texts,
                )

    # -- columns ------------------------------------------------------------------------------

    def _records(self, file: OpenFile) -> Iterator[tuple[int, Any, _Layout]]:
        """The records of a file, with their numbers and their layout."""
        if file.format == "txt":
            layout = _Layout(["text"], False, [0])
            yield from ((number, (block,), layout) for number, block in file.blocks(whole=True))
        elif file.format == "jsonl":
            yield from self._objects(file)
        elif file.format == "parquet":
            names = file.parquet_names()
            layout = self._layout(names, file.name, True)
            if not self.keep:  # other columns are not even read
                n, label = len(layout.text), () if layout.label is None else (layout.label,)
                names = [names[place] for place in (*layout.text, *label)]
                layout = _Layout(names, True, range(n), n if label else None)
            yield from ((number, cells, layout) for number, cells in file.parquet(names))
        else:
            rows = file.table()
            for number, first in rows:
                layout = self._table_layout(first, file.name)
                if not layout.header:
                    yield number, first, layout
                yield from ((number, cells, layout) for number, cells in rows)

    def _objects(self, file: OpenFile) -> Iterator[tuple[int, dict[str, Any], _Layout]]:
        """JSON objects: each has fields of its own, and the label may be in some of them only."""
        texts = self.config.columns or ["text"]
        label = self.labels_config.label_column
        seen, place = False, ""
        record: dict[str, Any] = {}
        for number, record in file.objects():
            place = file.place(number)
            for name, flag in (
                *((name, "--text-columns") for name in texts),
                (self.id_column, "--id-column"),
            ):
                if name and name not in record:
                    raise _no_field(name, record, place, flag)
            if self.labels != "none":
                label = label or usual_label(record, texts) or ""
                if label in texts:
                    raise _both(label, file.name)
            has_label = label != "" and label in record
            if self.labels == "required" and not has_label and not self.labels_config.drop_unlabeled:
                raise _no_label_field(label, record, place)
            seen = seen or has_label
            has_label = has_label and self.labels != "none"
            yield (
                number,
                record,
                _Layout([], True, texts, label if has_label else None, self.id_column or None),
            )
        if self.labels == "required" and place and not seen:
            raise _no_label_field(label, record, place)

    def _table_layout(self, first: Sequence[str], file: str) -> _Layout:
        names = [name.strip() for name in first]
        return self._layout(names, file, self._has_header(names))

    def _layout(self, names: Sequence[str], file: str, header: bool) -> _Layout:
        text = self._text_places(names, file, header)
        label = self._label_place(names, file, header, text)
        shown = unique(names) if header else [str(number) for number in range(1, len(names) + 1)]
        id = _place(self.id_column, shown, file, header, "--id-column") if self.id_column else None
        return _Layout(shown, header, text, label, id)

    def _has_header(self, first: Sequence[str]) -> bool:
        """Whether the first row of a table names its columns."""
        if self.config.header != "auto":
            return self.config.header == "yes"
        label = self.labels_config.label_column if self.labels != "none" else ""
        if not all(name.isdecimal() for name in (*self.config.columns, label, self.id_column) if name):
            return True
        if self.labels != "none" and not label and len(first) > 1 and usual_label(first, self.config.columns):
            return True
        return not self.config.columns and "text" in first

    def _text_places(self, names: Sequence[str], file: str, header: bool) -> list[int]:
        if self.config.columns:
            return [_place(name, names, file, header, "--text-columns") for name in self.config.columns]
        if header and "text" in names:
            return [names.index("text")]
        if len(names) == 1:
            return [0]
        raise DataError(
            f"{file} has {len(names)} columns ({', '.join(names)[:200]}): which hold the text?",
            remedy="Use --text-columns NAME[,NAME] or, without a header row, numbers from 1.",
        )

    def _label_place(self, names: Sequence[str], file: str, header: bool, text: Sequence[int]) -> int | None:
        name = self.labels_config.label_column
        if self.labels == "none":
            return None
        if name:
            place = _place(name, names, file, header, "--label-column")
            if place in text:
                raise _both(name, file)
            return place
        usual = usual_label(names, [names[place] for place in text]) if header else None
        if usual is not None:
            return names.index(usual)
        if self.labels == "optional":
            return None
        raise DataError(
            f"{file} has {len(names)} columns ({', '.join(names)[:200]}): which holds the label?",
            remedy=_perhaps(names) + "Use --label-column NAME or, without a header row, a number from 1.",
        )

    # -- cells --------------------------------------------------------------------------------

    def _texts(self, cells: Any, columns: Sequence[Any], place: str) -> tuple[str, ...]:
        """Cells of any type as texts; empty where they are missing."""
        return tuple(replace_surrogates(self._cell(cells[column], place)) for column in columns)

    def _cell(self, cell: Any, place: str) -> str:
        if isinstance(cell, str):
            return cell.strip()
        if isinstance(cell, bytes):
            try:
                cell = cell.decode(self.config.encoding, self.config.errors)
            except UnicodeError as error:
                raise DataError(
                    f"{place}: not valid {self.config.encoding} ({error}).",
                    remedy="Specify the encoding (--encoding latin-1, ...), or use --set errors=replace.",
                ) from error
        return "" if cell is None or cell != cell else str(cell).strip()  # NaN is not itself

    def _label(self, cell: Any, place: str) -> str | None:
        """A cell as a label; None if there is none."""
        separator = self.labels_config.label_separator
        if not isinstance(cell, list):
            label = self._one_label(cell, place)
            return label if label is not None and self.labels_config.split(label) else None
        if not separator:
            raise DataError(
                f"{place}: the label is a list.",
                remedy="If rows can have several labels, add --label-separator '|'.",
            )
        labels = [label for part in cell if (label := self._one_label(part, place)) is not None]
        for label in labels:
            if separator in label:
                raise DataError(
                    f"{place}: the label {label!r} holds the separator {separator!r}.",
                    remedy="Choose a --label-separator that no label holds.",
                )
        return separator.join(labels) or None

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
        label = replace_surrogates(self._cell(cell, place))
        return None if label.lower() in _MISSING else label

    def _id(self, cell: Any, place: str) -> str:
        if isinstance(cell, float) and cell.is_integer():
            cell = int(cell)
        id = "" if cell is None or cell != cell else replace_surrogates(str(cell)).strip()
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
        self.labels, self.keep = labels, keep
        self.n_dropped = 0
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
                return self._table_layout(first, file.name).names
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


def _place(name: str, names: Sequence[str], file: str, header: bool, flag: str) -> int:
    """Where the column of this name or number is."""
    if header and name in names:
        return names.index(name)
    if name.isdecimal():
        if 1 <= int(name) <= len(names):
            return int(name) - 1
        problem = f"{file} has {len(names)} columns, so there is no column {name}."
    elif header:
        raise DataError(
            f"{file} has no column {name!r}.",
            remedy=f"{nearest(name, names)} Choose with {flag}; without a header row, by number from 1.",
        )
    else:
        problem = f"Without a header row, {file} has no column named {name!r}."
    raise DataError(problem, remedy=f"Number the columns from 1 to {len(names)}.")


def _no_field(name: str, record: Mapping[str, Any], place: str, flag: str) -> DataError:
    hint = (
        f"JSON fields are chosen by name, not by number: {', '.join(record)}."
        if name.isdecimal()
        else nearest(name, record)
    )
    return DataError(f"{place}: no field {name!r}.", remedy=f"{hint} Choose with {flag}.")


def _no_label_field(name: str, record: Mapping[str, Any], place: str) -> DataError:
    if name:
        error = _no_field(name, record, place, "--label-column")
        return DataError(error.message, remedy=f"{error.remedy} {_UNLABELED}")
    return DataError(
        f"{place} has {len(record)} fields ({', '.join(record)[:200]}): which holds the label?",
        remedy=_perhaps(record) + f"Use --label-column NAME. {_UNLABELED}",
    )


def _both(name: str, file: str) -> DataError:
    return DataError(
        f"{file}: the column {name!r} is used both as text and as label.",
        remedy="Choose other columns with --text-columns or --label-column.",
    )


def _perhaps(names: Iterable[str]) -> str:
    hint = nearest("label", names)
    return f"{hint} " if hint.startswith("Did") else ""
