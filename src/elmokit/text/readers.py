"""Find, open, decompress and decode files; read their records, each with its place in the file."""

from __future__ import annotations

import codecs
import contextlib
import csv
import glob
import gzip
import hashlib
import io
import itertools
import json
import os
import shutil
import sys
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, cast

import pyarrow as pa
import pyarrow.parquet as pq

from elmokit.core.errors import DataError, nearest
from elmokit.text.settings import ReadConfig

Format = Literal["txt", "csv", "tsv", "jsonl", "parquet"]
FORMATS: dict[str, Format] = {
    ".txt": "txt", ".text": "txt", ".csv": "csv", ".tsv": "tsv", ".tab": "tsv",
    ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet",
}  # fmt: skip
_COMPRESSED = (".gz", ".zst")
_CHUNK = 1 << 20
_LONGEST_LINE = 1 << 20
_LARGEST_FIELD = 1 << 26

# -- finding files ----------------------------------------------------------------------------


def format_of(path: Path) -> Format:
    """The format that a file's name implies: plain text unless its suffix says otherwise."""
    return FORMATS.get(_suffix(path), "txt")


def _suffix(path: Path) -> str:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in _COMPRESSED:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


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
            matches = [path / n for n in names if _suffix(n) in FORMATS and "/." not in f"/{n.as_posix()}"]
        elif os.path.exists(path):
            remedy = "Pipe it to standard input: ... | elmokit pretrain -"
            raise DataError(f"{path} is no file or folder, and texts are read more than once.", remedy=remedy)
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
    hint = nearest(path.name, siblings) if len(siblings) < 200 else ""
    remedy = hint if hint.startswith("Did") else "Check the name and the folder."
    return DataError(f"There is no file or folder {str(path)!r}.", remedy=remedy)


# -- bytes and lines --------------------------------------------------------------------------


def open_bytes(path: Path) -> IO[bytes]:
    """The file's bytes, decompressed if its name ends in .gz or .zst."""
    try:
        if path.suffix.lower() == ".zst":
            return cast(IO[bytes], pa.CompressedInputStream(pa.OSFile(str(path), "rb"), "zstd"))
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


@dataclass(frozen=True)
class OpenFile:
    """A file as records, each with the number of the line (in Parquet: row) it begins on."""

    name: str  # for messages
    format: Format  # which of the methods below can read it
    stream: IO[bytes]
    config: ReadConfig

    def place(self, number: int) -> str:
        """Where a record is, for messages."""
        return f"{self.name}, {'row' if self.format == 'parquet' else 'line'} {number}"

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

    def table(self) -> Iterator[tuple[int, list[str]]]:
        """The rows of a .csv or .tsv file that are not blank, all of one width."""
        csv.field_size_limit(_LARGEST_FIELD)
        lines = (line + "\n" for _, line in self._lines(whole=True))
        # Tab-separated files have no quoting: a quote in them is a character like any other.
        tabs: Any = {"delimiter": "\t", "quoting": csv.QUOTE_NONE} if self.format == "tsv" else {}
        rows = csv.reader(lines, strict=True, **tabs)
        width, start = 0, 1
        try:
            for row in rows:
                if any(map(str.strip, row)):
                    width = width or len(row)
                    if len(row) != width:
                        raise DataError(
                            f"{self.place(start)}: {len(row)} fields where the first row has {width}.",
                            remedy="Correct the row; a field that holds the separator must be quoted.",
                        )
                    yield start, row
                start = rows.line_num + 1
        except csv.Error as error:
            begin = f"; the row begins on line {start}" if start < rows.line_num else ""
            raise DataError(
                f"{self.place(rows.line_num)}: not readable as a table ({error}){begin}.",
                remedy="Look for a quote that is not closed or not doubled near this line.",
            ) from error

    def objects(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """The objects of a file of JSON lines; a bare string is an object with a text."""
        for number, line in self._lines(whole=True):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise DataError(
                    f"{self.place(number)}: not valid JSON ({error}).",
                    remedy="Correct the line: each must be one whole JSON object.",
                ) from error
            if isinstance(record, str) and self.config.columns in ([], ["text"]):
                record = {"text": record}
            if not isinstance(record, dict):
                raise DataError(
                    f"{self.place(number)}: not a JSON object.",
                    remedy=f'Each line must look like {{"{(self.config.columns or ["text"])[0]}": "..."}}.',
                )
            yield number, record

    @contextlib.contextmanager
    def parquet(self) -> Iterator[pq.ParquetFile]:
        """A Parquet file; damage that is noticed while it is read is an error that names the file."""
        try:
            with pq.ParquetFile(self.name) as file:
                yield file
        except (pa.ArrowException, OSError, ValueError) as error:
            raise DataError(
                f"{self.name} cannot be read as Parquet: {error}.",
                remedy="The file looks truncated, damaged or not a Parquet file; take a fresh copy.",
            ) from error


def _hash(stream: IO[bytes], name: str) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for chunk in read_chunks(stream, name):
        digest.update(chunk)
    return digest.hexdigest()


class FileSource:
    """Some files, in order, that can be read any number of times."""

    def __init__(
        self,
        sources: str | Path | Sequence[str | Path],
        config: ReadConfig | None = None,
        exclude: Path | None = None,
    ) -> None:
        sources = [sources] if isinstance(sources, str | Path) else sources
        self.config = config or ReadConfig()
        self._stdin: IO[bytes] | None = None
        self.files: list[Path] = []
        if not sources:
            raise DataError("No text was given.", remedy="Name a file, a folder, or - for standard input.")
        if "-" not in map(str, sources):
            self.files = find_files(sources, exclude)
        elif len(sources) == 1:
            self._stdin = tempfile.TemporaryFile(prefix="elmokit-")  # noqa: SIM115 (lives with self)
            shutil.copyfileobj(sys.stdin.buffer, self._stdin)
        else:
            raise DataError("Standard input (-) cannot be mixed with files.")

    @property
    def name(self) -> str:
        """What to call it in a message."""
        if self._stdin is not None:
            return "standard input"
        more = f" and {len(self.files) - 1} more files" if len(self.files) > 1 else ""
        return f"{self.files[0]}{more}"

    def plain_file(self) -> str:
        """The first file of plain text, for a message; empty if there is none."""
        plain = (str(path) for path in self.files if format_of(path) == "txt")
        return "Standard input" if self._stdin is not None else next(plain, "")

    def fingerprints(self, before: Sequence[Sequence[Any]] = ()) -> list[list[Any]]:
        """Name and content hash of each file; name, size and time if ``before`` has them, as in 0.1."""
        if any(len(mark) == 3 for mark in before):
            return [[path.name, path.stat().st_size, path.stat().st_mtime_ns] for path in self.files]
        if self._stdin is not None:
            self._stdin.seek(0)
            return [["-", _hash(self._stdin, "standard input")]]
        marks = list[list[Any]]()
        for path in self.files:
            with open_bytes(path) as stream:
                marks.append([path.name.encode("utf-8", "replace").decode(), _hash(stream, str(path))])
        return marks

    def open(self) -> Iterator[OpenFile]:
        """Each file in turn; it is closed when the next one is opened."""
        if self._stdin is not None:
            self._stdin.seek(0)
            yield OpenFile("standard input", "txt", self._stdin, self.config)
        for path in self.files:
            with open_bytes(path) as stream:
                yield OpenFile(str(path), format_of(path), stream, self.config)
