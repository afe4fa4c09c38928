"""Find, open, decompress and decode files; read their records, each with its place in the file."""

from __future__ import annotations

import codecs
import contextlib
import csv
import glob
import gzip
import io
import itertools
import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

import pyarrow as pa
import pyarrow.parquet as pq

from elmokit.core.errors import DataError, nearest
from elmokit.core.formatting import plural
from elmokit.text.settings import Format, ReadConfig

FORMATS: dict[str, Format] = {
    ".txt": "txt", ".text": "txt", ".csv": "csv", ".tsv": "tsv", ".tab": "tsv",
    ".json": "json", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet",
    ".conll": "conll", ".conllu": "conll", ".iob": "conll", ".bio": "conll",
}  # fmt: skip
_COMPRESSED = (".gz", ".zst")
_CHUNK = 1 << 20
_LONGEST_LINE = 1 << 20
_LARGEST_FIELD = 1 << 26
_SEPARATORS = (",", ";", "\t", "|")
_SAMPLE_LINES = 100  # by which the separator is found
_MOST_NAMED = 5  # rows that were left out
_NO_WORD = re.compile(r"-DOCSTART-|\d+[-.]\d+\t\S+\t\S+\t\S+\t\S+\t\S+\t\S+\t\S+\t\S+\t\S+$")

# -- finding files ----------------------------------------------------------------------------


def format_of(path: Path) -> Format:
    """The format that a file's name implies: plain text unless its suffix says otherwise."""
    return FORMATS.get(suffix_of(path), "txt")


def suffix_of(path: Path) -> str:
    """The suffix before .gz or .zst."""
    unpacked = path.with_suffix("") if path.suffix.lower() in _COMPRESSED else path
    return unpacked.suffix.lower()


def find_files(sources: Sequence[str | Path], exclude: Path | None = None) -> list[Path]:
    """The files that names, folders and glob patterns refer to, each once, in a stable order.

    Files that folders and patterns find below ``exclude``, where a run writes, are left out.
    """
    files: dict[Path, None] = {}
    for source in sources:
        path = Path(source)
        if os.path.isfile(path):  # unlike Path.is_file, False for a name that is too long
            files[path] = None
            continue
        if os.path.isdir(path):
            names = (file.relative_to(path) for file in sorted(path.rglob("*")))
            matches = [path / n for n in names if suffix_of(n) in FORMATS and "/." not in f"/{n.as_posix()}"]
        else:
            matches = [Path(match) for match in sorted(glob.glob(str(source), recursive=True))]
        below = exclude.resolve() if exclude else None
        inside = [file for file in matches if file.is_file() and below not in file.resolve().parents]
        if not inside:
            raise _missing(path)
        files.update(dict.fromkeys(inside))
    return list(files)


def _missing(path: Path) -> DataError:
    if os.path.isdir(path):
        return DataError(
            f"The folder {path} holds no text files.",
            remedy=f"Files are recognized by their suffix: {', '.join(FORMATS)} (also .gz, .zst).",
        )
    siblings = os.listdir(path.parent) if os.path.isdir(path.parent) else []
    remedy = "Check the name and the folder; what is not a file can be piped to standard input (-)."
    remedy = nearest(path.name, siblings if len(siblings) < 200 else (), remedy)
    return DataError(f"There is no file or folder {str(path)!r}.", remedy=remedy)


# -- bytes and lines --------------------------------------------------------------------------


def open_bytes(path: Path) -> IO[bytes]:
    """The file's bytes, decompressed if its name ends in .gz or .zst."""
    try:
        if path.suffix.lower() == ".zst":
            return cast(IO[bytes], pa.CompressedInputStream(open(path, "rb"), "zstd"))
        if path.suffix.lower() == ".gz":
            return cast(IO[bytes], gzip.open(path, "rb"))
        return open(path, "rb")
    except OSError as error:
        raise DataError(
            f"Cannot open {path}: {error.strerror or error}.", remedy="Check the path."
        ) from error


def read_chunks(stream: IO[bytes], name: str) -> Iterator[bytes]:
    """The bytes of a stream, a megabyte at a time."""
    try:
        while chunk := stream.read(_CHUNK):
            yield bytes(chunk)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(
            f"{name} cannot be decompressed or read to its end: {error}.",
            remedy="The file looks truncated or damaged; take a fresh copy.",
        ) from error


def decode_lines(
    stream: IO[bytes], name: str, *, encoding: str = "utf-8", errors: str = "strict", whole: bool = False
) -> Iterator[str]:
    """Lines without their ends (``\\n``, ``\\r\\n`` or ``\\r``).

    Memory does not grow with the stream: a line over a megabyte comes in parts cut at spaces, unless
    ``whole`` lines are required (for records).
    """
    try:
        "a".encode(encoding)  # a LookupError for rot13, hex and the like
        codec = codecs.getincrementaldecoder(encoding)(errors)
    except (LookupError, UnicodeError) as error:
        raise DataError(
            f"There is no encoding {encoding!r}.", remedy="Common ones: utf-8, latin-1, cp1252, utf-16."
        ) from error
    decoder = io.IncrementalNewlineDecoder(codec, translate=True)
    n_lines, n_bytes, pending = 0, 0, ""
    for chunk in itertools.chain(read_chunks(stream, name), [b""]):
        is_first, n_bytes = n_bytes == 0, n_bytes + len(chunk)
        try:
            text = decoder.decode(chunk, final=not chunk)
        except UnicodeError as error:
            if is_first:
                _reject_binary(chunk.decode("latin-1"), name)
            raise _undecodable(error, name, encoding, n_lines, n_bytes) from error
        if is_first:
            _reject_binary(text, name)
            text = text.removeprefix("\ufeff")
        *lines, pending = (pending + text).split("\n")
        n_lines += len(lines)
        yield from lines
        while len(pending) > _LONGEST_LINE and not whole:
            cut = pending.rfind(" ", 0, _LONGEST_LINE)
            cut = cut if cut > 0 else _LONGEST_LINE
            yield pending[:cut]
            pending = pending[cut:].removeprefix(" ")
    if pending:
        yield pending


def _reject_binary(text: str, name: str) -> None:
    sample = text[:65536]
    if sum(char < " " and char not in "\t\n\r\f\v\x1b" for char in sample) * 100 > len(sample):
        raise DataError(
            f"{name} looks like a binary file, not text.",
            remedy="Use text in .txt, .csv, .tsv, .jsonl or .parquet (also .gz, .zst); "
            "for UTF-16 text add --encoding utf-16.",
        )


def _undecodable(error: UnicodeError, name: str, encoding: str, n_lines: int, n_bytes: int) -> DataError:
    """The error with its place in the whole file, of which ``n_bytes`` were read."""
    problem = f"{name} is not {encoding} text: {error}."
    if isinstance(error, UnicodeDecodeError):
        content, start = bytes(error.object), error.start
        line = n_lines + len((content[:start] + b"x").splitlines())
        problem = (
            f"{name}, line {line}, byte {n_bytes - len(content) + start}: "
            f"0x{content[start]:02x} is not valid {encoding} ({error.reason})."
        )
    return DataError(
        problem,
        remedy="Specify the file's encoding (--encoding latin-1, cp1252, ...), "
        "or replace what cannot be decoded (--set errors=replace).",
    )


# -- records ----------------------------------------------------------------------------------


@dataclass
class LeftOut:
    """Rows that a pass over some files has left out or changed: how many, and where the first ones are."""

    what: str
    outcome: str = "Left out"
    n: int = 0
    places: list[str] = field(default_factory=list)

    def add(self, place: str, problem: str = "") -> None:
        """Count a row."""
        self.n += 1
        if self.n <= _MOST_NAMED:
            self.places.append(Path(place).name + (f": {problem}" if problem else ""))

    def notes(self) -> tuple[str, ...]:
        """A sentence for a person, if there were any."""
        more = f"; and {self.n - _MOST_NAMED:,} more" if self.n > _MOST_NAMED else ""
        note = f"{self.outcome}: {plural(self.n, 'row')} {self.what} ({'; '.join(self.places)}{more})."
        return (note,) if self.n else ()


@dataclass(frozen=True)
class OpenFile:
    """A file as records, each with the number of the line (in Parquet: row) it begins on."""

    name: str  # for messages
    format: Format  # which of the methods below can read it
    stream: IO[bytes]
    config: ReadConfig
    unreadable: LeftOut

    def place(self, number: int) -> str:
        """Where a record is, for messages."""
        return f"{self.name}, {'row' if self.format in ('json', 'parquet') else 'line'} {number}"

    def _lines(self, whole: bool) -> Iterator[tuple[int, str]]:
        encoding, errors = self.config.encoding, self.config.errors
        lines = decode_lines(self.stream, self.name, encoding=encoding, errors=errors, whole=whole)
        return enumerate(lines, start=1)

    def blocks(self, *, whole: bool) -> Iterator[tuple[int, str]]:
        """The lines of a plain text that are not blank, or its paragraphs as one line each."""
        if self.config.blocks == "lines":
            yield from ((number, line) for number, line in self._lines(whole) if line.strip())
            return
        lines = ((number, line.strip()) for number, line in self._lines(whole=False))
        for has_text, group in itertools.groupby(lines, key=lambda item: item[1] != ""):
            if has_text:
                numbers, paragraph = zip(*group, strict=True)
                yield numbers[0], " ".join(paragraph)

    def table(self) -> tuple[str, Iterator[tuple[int, list[str]]]]:
        """What separates the columns of a .csv or .tsv file; and its rows that are not blank."""
        csv.field_size_limit(_LARGEST_FIELD)
        lines = (line + "\n" for _, line in self._lines(whole=True))
        head = list(itertools.islice(lines, _SAMPLE_LINES))
        separator = self._find_separator(head)
        return separator, self._rows(itertools.chain(head, lines), separator)

    def _parse(self, lines: Iterable[str], separator: str, *, strict: bool) -> Any:
        quoting: Any = csv.QUOTE_NONE if self.config.quotes == "no" else csv.QUOTE_MINIMAL
        return csv.reader(lines, delimiter=separator, quoting=quoting, strict=strict)

    def _find_separator(self, head: Sequence[str]) -> str:
        """Of those that split the first row, the one by which most rows are as wide as the first."""
        if self.config.separator != "auto":
            return "\t" if self.config.separator == "tab" else self.config.separator
        usual = "\t" if self.format == "tsv" else ","
        shares = {usual: 0.3}  # another one must be better, to not be found in single texts
        for separator in (usual, *_SEPARATORS):
            with contextlib.suppress(csv.Error):
                widths = [len(row) for row in self._parse(head, separator, strict=False) if row]
                if len(head) == _SAMPLE_LINES and len(widths) > 2:
                    widths.pop()  # the row may be cut off
                if widths and widths[0] > 1:
                    shares[separator] = widths.count(widths[0]) / len(widths)
        return max(shares, key=lambda one: (shares[one], one == usual))

    def _rows(self, lines: Iterable[str], separator: str) -> Iterator[tuple[int, list[str]]]:
        rows, width, start = self._parse(lines, separator, strict=True), 0, 1
        try:
            for row in rows:
                if any(map(str.strip, row)):
                    width = width or len(row)
                    if rows.line_num > start and separator == "\t" and self.config.quotes == "auto":
                        self._check_quotes(row, width, start)
                    if len(row) == width:
                        yield start, row
                    else:
                        self._reject(
                            start,
                            f"{plural(len(row), 'field')} where the first row has {width}",
                            "Correct the row (a field that holds the separator must be quoted)",
                        )
                start = rows.line_num + 1
        except csv.Error as error:
            begin = f"; the row begins on line {start}" if start < rows.line_num else ""
            raise DataError(
                f"{self.place(rows.line_num)}: not readable as a table ({error}){begin}.",
                remedy="Look for a quote that is not closed or not doubled near this line; if quotes are "
                "characters like any other in this file, add --set quotes=no.",
            ) from error

    def _check_quotes(self, row: Sequence[str], width: int, start: int) -> None:
        """Refuse a quoted field if each of its lines is as wide as a row, so that the quotes may be text."""
        lines = "\t".join(row).split("\n")
        if width > 1 and all(line.count("\t") == width - 1 for line in lines):
            raise DataError(
                f"{self.place(start)}: a quoted field ends on line {start + len(lines) - 1}, but each line "
                "up to there may be a row.",
                remedy="Add --set quotes=no if quotes are characters like any other in this file, otherwise "
                "--set quotes=yes.",
            )

    def _reject(self, number: int, problem: str, remedy: str) -> None:
        """Leave out a row that cannot be read, if this is allowed."""
        if not self.config.skip_bad_rows:
            remedy += ", or leave such rows out with --skip-bad-rows."
            raise DataError(f"{self.place(number)}: {problem}.", remedy=remedy)
        self.unreadable.add(self.place(number), problem)

    def objects(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """The objects of a file of JSON or JSON lines; a bare string is an object with a text."""
        columns = self.config.columns or ["text"]
        if self.format == "json":
            yield from self._listed_objects()
            return
        remedy = f'Each line must be a whole JSON object, as in {{"{columns[0]}": "..."}}; correct the line'
        for number, line in self._lines(whole=True):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except (ValueError, RecursionError) as error:
                self._reject(number, f"not valid JSON ({error})", remedy)
                continue
            if isinstance(record, str) and columns == ["text"]:
                record = {"text": record}
            if isinstance(record, dict):
                yield number, record
            else:
                self._reject(number, "not a JSON object", remedy)

    def _listed_objects(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """The objects of a JSON file: a list, or questions in the nested form of SQuAD, made flat."""
        remedy = "Give a list of objects, or SQuAD; an object on each line is JSON lines (.jsonl)."
        try:
            content = json.loads("\n".join(line for _, line in self._lines(whole=True)))
        except (ValueError, RecursionError) as error:
            raise DataError(f"{self.name}: not valid JSON ({error}).", remedy=remedy) from error
        try:
            records = content if isinstance(content, list) else list(_squad_questions(content))
        except (KeyError, TypeError) as error:
            raise DataError(
                f"{self.name}: neither a list of objects nor SQuAD ({error!r}).", remedy=remedy
            ) from error
        for number, record in enumerate(records, start=1):
            if isinstance(record, dict):
                yield number, record
            else:
                self._reject(number, "not a JSON object", "Correct the row")

    def sentences(self) -> Iterator[tuple[int, list[list[str]]]]:
        """The columns of each sentence of a CoNLL file: a line for each word, a blank line after a sentence.

        Columns are separated by tabs or spaces. Comments, -DOCSTART- lines and the lines of CoNLL-U that are
        no words (ranges such as 1-2, empty nodes such as 1.1) are left out.
        """
        start, rows, width = 0, list[list[str]](), 0
        for number, line in itertools.chain(self._lines(whole=True), [(0, "")]):
            cells = line.split("\t") if "\t" in line else line.split()
            if not line.strip():
                if rows:
                    yield start, [list(column) for column in zip(*rows, strict=True)]
                rows = []
            elif _NO_WORD.match(line) or (line[0] == "#" and not rows and len(cells) != width):
                continue
            else:
                width = width or len(cells)
                start = start if rows else number
                if len(cells) == width:
                    rows.append([cell.strip() for cell in cells])
                else:
                    remedy = "Give every word the same columns, separated by tabs or spaces"
                    self._reject(
                        number, f"{plural(len(cells), 'column')} where the first word has {width}", remedy
                    )

    @contextlib.contextmanager
    def parquet(self) -> Iterator[pq.ParquetFile]:
        """A Parquet file; damage that is noticed while it is read is an error that names the file."""
        try:
            with open(self.name, "rb") as stream, pq.ParquetFile(stream) as file:
                yield file
        except (pa.ArrowException, OSError, ValueError) as error:
            raise DataError(
                f"{self.name} cannot be read as Parquet: {error}.",
                remedy="The file looks truncated, damaged or not a Parquet file; take a fresh copy.",
            ) from error


def _squad_questions(content: Any) -> Iterator[dict[str, Any]]:
    for article in content["data"]:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                id, answers = str(question.get("id", "")), question.get("answers", [])
                fields = {"id": id, "question": question["question"], "passage": paragraph["context"]}
                yield {**fields, "answers": answers}


def column_values(column: pa.Array) -> list[Any]:
    """The cells of a Parquet column; times that Python's types cannot hold are text."""
    try:
        return list(column.to_pylist())
    except (ValueError, OverflowError):  # finer than microseconds, or after the year 9999
        texts = (" ".join(str(column.slice(place, 1))[1:-1].split()) for place in range(len(column)))
        return [None if text == "null" else text for text in texts]
