"""Texts, labels and ids of the records in files: what models read, learn from and label."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from elmokit.core.errors import DataError, nearest
from elmokit.core.formatting import join_names
from elmokit.text.readers import FileSource, LeftOut, OpenFile, column_values
from elmokit.text.settings import LabelConfig, ReadConfig
from elmokit.text.tokenizing import replace_surrogates

_USUAL_LABELS = ("class", "category", "target")
_SHOWN = {"\t": "tab"}
_MISSING = ("", "nan", "<na>")
_UNLABELED = "Give every row a label, or drop unlabeled rows with --set drop_unlabeled=true."
_Header = Literal["yes", "no", "json"]
"""Whether columns have names and numbers, only numbers, or only names."""


@dataclass(frozen=True)
class Row:
    """A text with its label and id."""

    place: str  # the file and the line the row begins on (in Parquet: the row, from 1)
    text: str  # the text columns, joined by a space; empty if all are blank
    label: str | None
    cells: dict[str, Any] | None = None  # all columns by name, unchanged, if the source keeps them
    id: str = ""
    texts: tuple[str, ...] = field(default=(), compare=False)  # the text columns one by one


@dataclass(frozen=True)
class _Layout:
    """The names of the columns, and the places of those that are read."""

    names: list[str]
    text: list[int]
    label: int | None = None
    id: int | None = None


_Record = tuple[int, Sequence[Any], _Layout]
"""The number of a record, its cells and their layout."""


class _Records(FileSource):
    """Finds the text, the label and the id of each record: the base of ``TextSource`` and ``RowSource``.

    Args:
        sources: Files, folders, glob patterns, or ``-`` for standard input (kept in a temporary file, since
            it is read more than once).
        label_config: Where the labels are; every row must have one unless ``drop_unlabeled`` is set. None:
            labels are not read.
        id_column: A name, or a number from 1; empty: texts are numbered from 0.
        keep: Return all columns of each row, as ``Row.cells``.
        exclude: Files that folders and patterns find below this folder are left out.
        say: Gets a line that says how a table is read: its header, and the columns of text and label.
        label_name: A column that holds labels, if there is one, and so no text; for labels that are not read.
    """

    def __init__(
        self,
        sources: str | Path | Sequence[str | Path],
        config: ReadConfig | None = None,
        label_config: LabelConfig | None = None,
        *,
        id_column: str = "",
        keep: bool = False,
        exclude: Path | None = None,
        say: Callable[[str], None] = lambda line: None,
        label_name: str = "",
    ) -> None:
        super().__init__(sources, config, exclude)
        self.label_config, self.id_column, self.keep = label_config, id_column, keep
        self._say, self.label_name, self._said = say, label_name, set[str]()
        self.column_names: Sequence[str] = ("text",)  # of the records read last
        if (label_config or id_column) and (plain := self.plain_file()):
            what = "labels" if label_config else f"column {id_column!r}"
            more = "" if label_config else ", or leave --id-column out: texts are then numbered from 0"
            raise DataError(
                f"{plain} is plain text, which has no {what}.",
                remedy=f"Use rows in .csv, .tsv, .jsonl or .parquet{more}.",
            )

    def _read_texts(self) -> Iterator[str]:
        """The text of every record; very long lines of plain text come in parts."""
        for file in self.open():
            if file.format == "txt":
                yield from (block for _, block in file.blocks(whole=False))
            else:
                yield from (row.text for row in self._read_rows(file))

    def _read_rows(self, file: OpenFile) -> Iterator[Row]:
        for number, cells, layout in self._records(file):
            place = file.place(number)
            texts = tuple(self._cell(cells[column], place) for column in layout.text)
            yield Row(
                place,
                " ".join(filter(None, texts)),
                None if layout.label is None else self._label(cells[layout.label], place),
                dict(zip(layout.names, cells, strict=True)) if self.keep else None,
                "" if layout.id is None else self._id(cells[layout.id], place),
                texts,
            )

    # -- columns ------------------------------------------------------------------------------

    def _records(self, file: OpenFile) -> Iterator[_Record]:
        if file.format == "jsonl":
            yield from self._objects(file)
        elif file.format in ("csv", "tsv"):
            separator, table = file.table()
            for number, first in table:
                layout, has_header = self._table_layout(first, file.name)
                self._describe(file, layout, layout.names if has_header else ["none"], separator)
                if not has_header:
                    yield number, first, layout
                yield from ((number, cells, layout) for number, cells in table)
        elif file.format == "parquet":
            yield from self._parquet_rows(file)
        else:
            layout = _Layout(["text"], [0])
            yield from ((number, (block,), layout) for number, block in file.blocks(whole=True))

    @property
    def _label_name(self) -> str | None:
        """Name or number of the label's column; "" for the usual ones, None if labels are not read."""
        return self.label_config.label_column if self.label_config else None

    def _objects(self, file: OpenFile) -> Iterator[_Record]:
        """JSON objects: each has fields of its own, and the label may be in some of them only."""
        label, may_lack = self._label_name, self.label_config and self.label_config.drop_unlabeled
        for number, record in file.objects():
            if label == "":
                label = usual_label(record, self.config.columns or ["text"]) or ""
            wanted = None if may_lack and (label or "").casefold() not in map(str.casefold, record) else label
            layout = self._layout(list(record), file.place(number), "json", wanted)
            yield number, list(record.values()), layout

    def _parquet_rows(self, file: OpenFile) -> Iterator[_Record]:
        """The rows of a Parquet file; unless all columns are kept, only those that are used are read."""
        with file.parquet() as table:
            names, start = table.schema_arrow.names, 1
            layout = self._layout(names, file.name, "yes", self._label_name)
            self._describe(file, layout, layout.names)
            used = [names[place] for place in (*layout.text, layout.label, layout.id) if place is not None]
            keep = self.keep or len({*names}) < len(names)  # columns of one name are told apart by number
            for batch in table.iter_batches(batch_size=1024, columns=None if keep else used):
                columns = [column_values(column) for column in batch.columns]
                if not keep:
                    read, blank = batch.schema.names, [None] * len(batch)
                    columns = [columns[read.index(name)] if name in read else blank for name in names]
                for number, cells in enumerate(zip(*columns, strict=True), start):
                    yield number, cells, layout
                start += len(batch)

    def _table_layout(self, first: Sequence[str], file: str) -> tuple[_Layout, bool]:
        """The layout of a table by its first row, and whether that row names the columns.

        It does unless columns are given, all by number, and no name in it is a usual one.
        """
        names, label, header = [name.strip() for name in first], self._label_name, self.config.header
        if header == "auto":
            given = [name for name in (*self.config.columns, label, self.id_column) if name]
            is_usual = len(names) > 1 and (_has_text(names) or usual_label(names) is not None)
            header = "no" if given and all(map(str.isdecimal, given)) and not is_usual else "yes"
        return self._layout(names, file, header, label), header == "yes"

    def _layout(self, names: list[str], where: str, header: _Header, label: str | None) -> _Layout:
        """Where the text, the label and the id are; ``where`` is the file (of JSON: the line), for errors."""
        columns, listed = self.config.columns, f"{where} has {len(names)} columns ({', '.join(names)[:200]})"
        if not columns and (header == "json" or (header == "yes" and _has_text(names))):
            columns = ["text"]
        text = [_place(name, names, where, header, "--text-columns") for name in columns]
        id = _place(self.id_column, names, where, header, "--id-column") if self.id_column else None
        if label == "" and header != "no":
            label = usual_label(names, [names[place] for place in text]) or ""
        place = _place(label, names, where, header, "--label-column") if label else None
        if not text:
            text = [one for one in range(len(names)) if one not in (place, id)] if len(names) > 1 else [0]
            if len(text) > 1 and label is None and header == "yes":  # there may be labels that are not read
                others = {self.label_name.casefold(), str(usual_label(names)).casefold()}
                text = [one for one in text if names[one].casefold() not in others]
        if not text or (len(text) > 1 and not columns):
            remedy = "Use --text-columns NAME[,NAME] or, without a header row, numbers from 1."
            raise DataError(f"{listed}: which hold the text?", remedy=remedy)
        if label == "":
            remedy = "Use --label-column NAME or, without a header row, a number from 1."
            raise DataError(f"{listed}: which holds the label?", remedy=remedy)
        if place in text:
            raise DataError(
                f"{where}: the column {label!r} is used both as text and as label.",
                remedy="Choose other columns with --text-columns or --label-column.",
            )
        shown = [str(number + 1) for number in range(len(names))] if header == "no" else unique(names)
        self.column_names = shown
        return _Layout(shown, text, place, id)

    def _describe(self, file: OpenFile, layout: _Layout, header: Sequence[str], separator: str = "") -> None:
        """Say once how a table is read."""
        text, label = ", ".join(layout.names[place] for place in layout.text), layout.label
        parts = [f"header: {', '.join(header)[:100]}", f"text column: {text}"]
        parts += [] if label is None else [f"label column: {layout.names[label]}"]
        usual = {"csv": ",", "tsv": "\t"}.get(file.format, "")
        parts += [f"separator: {_SHOWN.get(separator, separator)}"] if separator != usual else []
        if (line := "; ".join(parts)) not in self._said:
            self._said.add(line)
            self._say(f"{Path(file.name).name}: {line}")

    # -- cells --------------------------------------------------------------------------------

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
        """The label in a cell; None if there is none."""
        assert self.label_config is not None
        separator, labels = self.label_config.label_separator, []
        is_list = isinstance(cell, list) and separator != ""
        for part in cell if is_list else [cell]:
            label = self._scalar(part, place)
            if isinstance(part, dict | list):
                raise DataError(
                    f"{place}: the label is {'an object' if isinstance(part, dict) else 'a list'}.",
                    remedy="A label must be a text, a number, or true or false. "
                    "If rows can have several labels, add --label-separator '|'.",
                )
            if is_list and separator in label:
                raise DataError(
                    f"{place}: the label {label!r} contains the separator {separator!r}.",
                    remedy="Choose a --label-separator that does not occur in any label.",
                )
            if label.lower() not in _MISSING:
                labels.append(label)
        joined = separator.join(labels)
        return joined if self.label_config.split(joined) else None

    def _id(self, cell: Any, place: str) -> str:
        id = self._scalar(cell, place)
        if not id or isinstance(cell, dict | list):
            raise DataError(
                f"{place}: the column {self.id_column!r} holds no id.",
                remedy="Give every row an id, or leave --id-column out.",
            )
        return id


class TextSource(_Records):
    """The texts of some files, in order; can be read any number of times."""

    def __iter__(self) -> Iterator[str]:
        return self._read_texts()

    def open(self) -> Iterator[OpenFile]:
        """Each file in turn; rows that were left out are named once."""
        yield from super().open()
        for note in {*self.notes()} - self._said:
            self._said.add(note)
            self._say(note)

    def with_ids(self) -> Iterator[tuple[str, str]]:
        """Each text after its id."""
        if self.id_column:
            return ((row.id, row.text) for file in self.open() for row in self._read_rows(file))
        return ((str(number), replace_surrogates(text)) for number, text in enumerate(self))


class RowSource(_Records):
    """The rows of some files, in order; can be read any number of times.

    Blank rows (and blank lines of a .txt file) are skipped. A label is its cell as text: ``true`` and
    ``false`` for JSON and Parquet booleans, ``3`` for the numbers 3 and 3.0. It is missing if the cell is
    blank, null or not a number (also spelled out: ``nan``).
    """

    def __iter__(self) -> Iterator[Row]:
        self._unlabeled, has_label = LeftOut("without a label"), False
        for row in (row for file in self.open() for row in self._read_rows(file)):
            has_label = has_label or row.label is not None
            if row.label is not None or self.label_config is None:
                yield row
            elif self.label_config.drop_unlabeled:
                self._unlabeled.add(row.place)
            else:
                raise DataError(f"{row.place}: the row has no label.", remedy=_UNLABELED)
        if self._unlabeled.n and not has_label:
            listed = ", ".join(self.column_names)[:200]
            raise DataError(
                f"{self.name}: no row has a label.", remedy=f"Use --label-column NAME ({listed})."
            )

    def notes(self) -> tuple[str, ...]:
        """What a person should know about the rows of the latest pass."""
        return (*self._unlabeled.notes(), *super().notes())


def _has_text(names: Iterable[str]) -> bool:
    return "text" in map(str.casefold, names)


def usual_label(names: Collection[str], texts: Collection[str] = ()) -> str | None:
    """The column that is the label unless another is named; never one of ``texts``.

    >>> usual_label(["title", "body", "category"])
    'category'
    """
    names = [name for name in names if name not in texts]
    known = {name.casefold(): name for name in names} | {name: name for name in names}
    usual = [known[name] for name in _USUAL_LABELS if name in known]
    return known.get("label") or (usual[0] if len(usual) == 1 else None)


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


def _place(name: str, names: list[str], where: str, header: _Header, flag: str) -> int:
    """Where the column of this name, in capitals or not, or of this number is."""
    same = [place for place, other in enumerate(names) if other == name and header != "no"]
    if not same and header != "no":
        same = [place for place, other in enumerate(names) if other.casefold() == name.casefold()]
    if len(same) == 1:
        return same[0]
    if same:
        numbers = join_names(str(place + 1) for place in same)
        remedy = f"Choose one by {'its exact name' if header == 'json' else f'number ({numbers})'}: {flag}."
        raise DataError(f"{where} has {len(same)} columns called {name!r}.", remedy=remedy)
    if header != "json" and name.isdecimal() and 1 <= int(name) <= len(names):
        return int(name) - 1
    hint = f"{nearest(name, names)} Choose with {flag}."
    if header == "json" and flag == "--label-column":
        hint += f" {_UNLABELED}"
    elif header == "no" or (header == "yes" and name.isdecimal()):
        hint = f"Choose by number, from 1 to {len(names)}, with {flag}."
    kind = {"yes": "column", "no": "header row and so no column", "json": "field"}[header]
    raise DataError(f"{where} has no {kind} {name!r}.", remedy=hint)
