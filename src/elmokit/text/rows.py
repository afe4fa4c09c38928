"""Texts, labels and ids of the records in files: what models read, learn from and label."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from elmokit.core.errors import DataError, nearest
from elmokit.core.formatting import join_names
from elmokit.text.readers import (
    LeftOut,
    OpenFile,
    column_values,
    find_files,
    format_of,
    open_bytes,
    read_chunks,
)
from elmokit.text.settings import LabelConfig, ReadConfig, RowForm
from elmokit.text.tokenizing import replace_surrogates

_SHOWN = {"\t": "tab"}
_MISSING = ("", "nan", "<na>")
_UNLABELED = "Give every row a label, or drop unlabeled rows with --set drop_unlabeled=true."


@dataclass(frozen=True)
class Row:
    """A text with its label and id."""

    place: str  # the file and the line the row begins on (in Parquet: the row, from 1)
    text: str  # the text columns, joined by a space; empty if all are blank
    label: str | None
    cells: dict[str, Any] | None = None  # all columns by name, unchanged, if the source keeps them
    id: str = ""
    texts: tuple[str, ...] = field(default=(), compare=False)  # the text columns one by one
    words: tuple[str, ...] = field(default=(), compare=False)  # of a text that is a list of words
    label_name: str = field(default="", compare=False)  # of the column that holds the label


_CONLLU = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")


@dataclass(frozen=True)
class _Layout:
    """The names of the columns, and the places of those that are read."""

    names: list[str]
    text: list[int]
    label: int | None = None
    id: int | None = None


_Record = tuple[int, Sequence[Any], _Layout]
"""The number of a record, its cells and their layout."""


class _Records:
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
        form: How rows look where nothing is said of their columns.
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
        form: RowForm | None = None,
    ) -> None:
        self.form = form or RowForm()
        sources = [sources] if isinstance(sources, str | Path) else sources
        self.config = config or ReadConfig()
        self._stdin: IO[bytes] | None = None
        self.files: list[Path] = []
        remedy = "Name a file, a folder, or - for standard input."
        if not sources:
            raise DataError("No text was given.", remedy=remedy)
        if "-" not in map(str, sources):
            self.files = find_files(sources, exclude)
        elif len(sources) > 1 or sys.stdin is None:
            problem = "cannot be mixed with files" if sys.stdin else "is closed"
            raise DataError(f"Standard input (-) {problem}.", remedy=remedy)
        else:
            self._stdin = tempfile.TemporaryFile(prefix="elmokit-")  # noqa: SIM115 (lives with self)
            shutil.copyfileobj(sys.stdin.buffer, self._stdin)
        self._unreadable, self._unlabeled = LeftOut("that could not be read"), LeftOut("without a label")
        self.label_config, self.id_column, self.keep = label_config, id_column, keep or self.form.exact
        self._label_column = label_config.label_column if label_config else None  # "": one of the usual names
        self._say, self.label_name, self._said = say, label_name, set[str]()
        self.column_names: Sequence[str] = ("text",)  # of the records read last
        plain = [str(path) for path in self.files if format_of(path) == "txt"]
        if self.form.plain == "txt" and (label_config or id_column) and (plain or not self.files):
            what = "labels" if label_config else f"column {id_column!r}"
            more = "; name a file with a word and its tag on each line .conll"
            more = more if label_config else ", or leave --id-column out: texts are then numbered from 0"
            raise DataError(
                f"{(plain or ['Standard input'])[0]} is plain text, which has no {what}.",
                remedy=f"Use rows in .csv, .tsv, .jsonl or .parquet{more}.",
            )

    @property
    def name(self) -> str:
        """What to call it in a message."""
        if self._stdin is not None:
            return "standard input"
        more = f" and {len(self.files) - 1} more files" if len(self.files) > 1 else ""
        return f"{self.files[0]}{more}"

    def notes(self) -> tuple[str, ...]:
        """Remarks on the rows of the latest pass, in sentences."""
        return (*self._unlabeled.notes(), *self._unreadable.notes())

    def _streams(self) -> Iterator[tuple[str, IO[bytes]]]:
        """The name and the bytes of each file; it is closed when the next one is opened."""
        if self._stdin is not None:
            self._stdin.seek(0)
            yield "standard input", self._stdin
        for path in self.files:
            with open_bytes(path) as stream:
                yield str(path), stream

    def fingerprints(self, before: Sequence[Sequence[Any]] = ()) -> list[list[Any]]:
        """Name and content hash of each file; name, size and time if ``before`` has them, as in 0.1."""
        if any(len(mark) == 3 for mark in before):
            return [[path.name, path.stat().st_size, path.stat().st_mtime_ns] for path in self.files]
        marks = list[list[Any]]()
        for name, stream in self._streams():
            digest = hashlib.blake2b(digest_size=16)
            for chunk in read_chunks(stream, name):
                digest.update(chunk)
            short = Path(name).name.encode("utf-8", "replace").decode() if self.files else "-"
            marks.append([short, digest.hexdigest()])
        return marks

    def open(self) -> Iterator[OpenFile]:
        """Each file in turn, for one pass over all of them."""
        self._unreadable, self._unlabeled = LeftOut(self._unreadable.what), LeftOut(self._unlabeled.what)
        for name, stream in self._streams():
            kind = format_of(Path(name))
            kind = self.form.plain if kind == "txt" else kind
            if kind == "txt" and self._stdin is not None:
                self._say_once(f"{name}: plain text, a text per {self.config.blocks[:-1]}")
            yield OpenFile(name, kind, stream, self.config, self._unreadable)

    def first_columns(self) -> set[str]:
        """The names of the first record's columns, in lower case; "conll" for a CoNLL file."""
        for file in self.open():
            if file.format == "parquet":
                with file.parquet() as table:
                    return {name.casefold() for name in table.schema_arrow.names}
            if file.format in ("txt", "conll"):
                return {"conll"} & {file.format}
            records: Any = file.objects() if file.format in ("json", "jsonl") else file.table()[1]
            return {str(name).strip().casefold() for name in next(records, (0, ()))[1]}
        return set()

    # -- rows ---------------------------------------------------------------------------------

    def _say_once(self, line: str, file: str = "") -> None:
        if line not in self._said:
            self._said.add(line)
            self._say(file + line)

    def _read_rows(self, file: OpenFile) -> Iterator[Row]:
        for number, cells, layout in self._records(file):
            place = file.place(number)
            strip = not self.form.exact
            texts = tuple(self._cell(cells[column], place, strip=strip) for column in layout.text)
            only = cells[layout.text[0]] if len(layout.text) == 1 else None
            yield Row(
                place,
                " ".join(filter(None, texts)),
                None if layout.label is None else self._label(cells[layout.label], place),
                dict(zip(layout.names, cells, strict=True)) if self.keep else None,
                "" if layout.id is None else self._id(cells[layout.id], place),
                texts,
                tuple(self._cell(word, place) for word in only or ()) if _is_words(only) else (),
                "" if layout.label is None else layout.names[layout.label],
            )

    # -- columns ------------------------------------------------------------------------------

    def _records(self, file: OpenFile) -> Iterator[_Record]:
        if file.format in ("json", "jsonl"):
            yield from self._objects(file)
        elif file.format == "parquet":
            yield from self._parquet_rows(file)
        elif file.format == "conll":
            for number, columns in file.sentences():
                yield number, columns, self._conll_layout(file, len(columns))
        elif file.format == "txt":
            layout = _Layout(["text"], [0])
            yield from ((number, (block,), layout) for number, block in file.blocks(whole=True))
        else:
            separator, table = file.table()
            for number, first in table:
                names, where = [name.strip() for name in first], file.name
                if not (has_header := self._has_header(names)):
                    names = [str(place) for place in range(1, len(first) + 1)]
                    where = f"{file.name} (without a header row)"
                layout = self._layout(names, where, self._label_column)
                self._describe(file, layout, layout.names if has_header else ["none"], separator)
                if not has_header:
                    yield number, first, layout
                yield from ((number, cells, layout) for number, cells in table)

    def _conll_layout(self, file: OpenFile, n_columns: int) -> _Layout:
        """Words in the first column and tags in the last one; in CoNLL-U, in "form" and "upos"."""
        names = [str(place) for place in range(1, n_columns + 1)]
        text, label = "1", str(n_columns)
        if ".conllu" in Path(file.name).suffixes and n_columns == len(_CONLLU):
            names, text, label = [*_CONLLU], "form", "upos"
        place_of = functools.partial(_place, names=names, where=file.name, has_numbers=True)
        texts = [place_of(name, flag="--text-columns.") for name in self.config.columns or [text]]
        column = None if self._label_column is None else self._label_column or label
        place = None if column is None else place_of(column, flag="--label-column.")
        if place in texts:
            raise DataError(
                f"{file.name} has {n_columns} column(s), so none holds tags.",
                remedy="Give a word and its tag on each line, or name the columns.",
            )
        self.column_names = names
        layout = _Layout(names, texts, place)
        self._describe(file, layout, ["none"])
        return layout

    def _objects(self, file: OpenFile) -> Iterator[_Record]:
        """JSON objects: each has fields of its own, and the label may be in some of them only."""
        label, may_lack = self._label_column, self.label_config and self.label_config.drop_unlabeled
        for number, record in file.objects():
            if label == "":
                texts = self.config.columns or [self.form.find_text(record) or "text"]
                label = self.form.find_label(record, texts) or ""
            column = None if may_lack and (label or "").casefold() not in map(str.casefold, record) else label
            layout = self._layout(list(record), file.place(number), column, is_object=True)
            yield number, list(record.values()), layout

    def _parquet_rows(self, file: OpenFile) -> Iterator[_Record]:
        """The rows of a Parquet file; unless all columns are kept, only those that are used are read."""
        with file.parquet() as table:
            names, start = table.schema_arrow.names, 1
            layout = self._layout(names, file.name, self._label_column)
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

    def _has_header(self, names: Sequence[str]) -> bool:
        """Whether the first row of a table names the columns.

        It does unless columns are given, all by number, and no name in it is a usual one.
        """
        if self.config.header != "auto":
            return self.config.header == "yes"
        given = filter(None, (*self.config.columns, self._label_column, self.id_column))
        usual = self.form.find_text(names), self.form.find_label(names)
        is_usual = len(names) > 1 and usual != (None, None)
        return is_usual or {name.isdecimal() for name in given} != {True}

    def _layout(self, names: list[str], where: str, label: str | None, *, is_object: bool = False) -> _Layout:
        """Where the text, the label and the id are.

        Args:
            names: The columns of a table (numbers without a header), or the fields of a JSON object.
            where: The file (of JSON: the line), for errors.
        """
        columns = self.form.own_names(self.config.columns, names)
        listed = f"{where} has {len(names)} columns ({', '.join(names)[:200]})"
        if not columns and (is_object or self.form.find_text(names)):
            columns = [self.form.find_text(names) or self.form.text_names[0]]
        place_of = functools.partial(_place, names=names, where=where, has_numbers=not is_object)
        text = [place_of(name, flag="--text-columns.") for name in columns]
        id = place_of(self.id_column, flag="--id-column.") if self.id_column else None
        if label == "":
            label = self.form.find_label(names, [names[place] for place in text]) or ""
        flag = f"--label-column. {_UNLABELED}" if is_object else "--label-column."
        place = place_of(label, flag=flag) if label else None
        if not text:
            text = [one for one in range(len(names)) if one not in (place, id)] if len(names) > 1 else [0]
            if len(text) > 1 and label is None:  # there may be labels that are not read
                others = {self.label_name.casefold(), str(self.form.find_label(names)).casefold()}
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
        self.column_names = unique(names)
        return _Layout(self.column_names, text, place, id)

    def _describe(self, file: OpenFile, layout: _Layout, header: Sequence[str], separator: str = "") -> None:
        """Say once how a table is read."""
        text, label = ", ".join(layout.names[place] for place in layout.text), layout.label
        parts = [f"header: {', '.join(header)[:100]}", f"text column{'s'[: len(layout.text) - 1]}: {text}"]
        parts += [] if label is None else [f"label column: {layout.names[label]}"]
        usual = {"csv": ",", "tsv": "\t"}.get(file.format, "")
        parts += [f"separator: {_SHOWN.get(separator, separator)}"] if separator != usual else []
        self._say_once("; ".join(parts), f"{Path(file.name).name}: ")

    # -- cells --------------------------------------------------------------------------------

    def _cell(self, cell: Any, place: str, *, strip: bool = True) -> str:
        """A cell of any type as text; empty if it is missing."""
        if isinstance(cell, bytes):
            try:
                cell = cell.decode(self.config.encoding, self.config.errors)
            except UnicodeError as error:
                raise DataError(
                    f"{place}: not valid {self.config.encoding} ({error}).",
                    remedy="Specify the encoding (--encoding latin-1, ...), or use --set errors=replace.",
                ) from error
        if cell is None or cell != cell or cell == []:  # NaN is not itself
            return ""
        if _is_words(cell):
            return " ".join(self._cell(word, place) for word in cell)
        text = replace_surrogates(str(cell))
        return text.strip() if strip else text

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
        if self.form.keeps_lists and isinstance(cell, list):
            is_tags = cell and all(isinstance(part, str | int) for part in cell)
            return " ".join(self._scalar(part, place) for part in cell) if is_tags else json.dumps(cell)
        if self.form.open_labels and isinstance(cell, list | dict):
            return json.dumps(cell)
        separator = self.label_config.label_separator
        is_list = isinstance(cell, list) and separator != ""
        parts = cell if is_list else [cell]
        if any(isinstance(part, dict | list) for part in parts):
            raise DataError(
                f"{place}: the label is {'an object' if isinstance(cell, dict) else 'a list'}.",
                remedy="A label must be a text, a number, or true or false. "
                "If rows can have several labels, add --label-separator '|'.",
            )
        labels = [self._scalar(part, place) for part in parts]
        if joint := [label for label in labels if is_list and separator in label]:
            raise DataError(
                f"{place}: the label {joint[0]!r} contains the separator {separator!r}.",
                remedy="Choose a --label-separator that does not occur in any label.",
            )
        joined = separator.join(label for label in labels if label.lower() not in _MISSING)
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
        """Very long lines of plain text come in parts; rows that were left out are named at the end."""
        for file in self.open():
            if file.format == "txt":
                yield from (block for _, block in file.blocks(whole=False))
            else:
                yield from (row.text for row in self._read_rows(file))
        for note in self.notes():
            self._say_once(note)

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
        for row in (row for file in self.open() for row in self._read_rows(file)):
            if row.label is not None or self.label_config is None or self.form.open_labels:
                yield row
            elif self.label_config.drop_unlabeled:
                self._unlabeled.add(row.place)
            else:
                raise DataError(f"{row.place}: the row has no label.", remedy=_UNLABELED)


def _is_words(cell: Any) -> bool:
    return isinstance(cell, list) and bool(cell) and all(isinstance(word, str) for word in cell)


def unique(names: Iterable[str]) -> list[str]:
    """The names, with ``_2``, ``_3``, ... after one that was there before.

    >>> unique(["text", "note", "note"])
    ['text', 'note', 'note_2']
    """
    names, result = list(names), list[str]()
    for name in names:
        if name in result:
            others = (f"{name}_{number}" for number in itertools.count(2))
            name = next(other for other in others if other not in (*names, *result))
        result.append(name)
    return result


def _place(name: str, *, names: list[str], where: str, flag: str, has_numbers: bool) -> int:
    """Where the column of this name, in capitals or not, or of this number is."""
    same = [place for place, other in enumerate(names) if other == name]
    same = same or [place for place, other in enumerate(names) if other.casefold() == name.casefold()]
    if not same and has_numbers and name.isdecimal() and 1 <= int(name) <= len(names):
        same = [int(name) - 1]
    if len(same) == 1:
        return same[0]
    problem, hint = f"no {'column' if has_numbers else 'field'} {name!r}", nearest(name, names)
    if same:
        numbers = join_names(str(place + 1) for place in same)
        problem = f"{len(same)} columns called {name!r}"
        hint = f"Name one by {f'number ({numbers})' if has_numbers else 'its exact name'}."
    raise DataError(f"{where} has {problem}.", remedy=f"{hint} Choose with {flag}")
