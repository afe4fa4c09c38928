"""Find, open, decompress and decode files; read their records, each with its place in the file."""

from __future__ import annotations

import codecs
import contextlib
import csv
import glob
import gzip
import hashlib
import json
import shutil
import sys
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Literal, cast

import pyarrow as pa
import pyarrow.parquet as pq

from elmokit.core.errors import DataError, nearest
from elmokit.text.settings import ReadConfig
from elmokit.text.tokenizing import replace_surrogates

Format = Literal["txt", "csv", "tsv", "jsonl", "parquet"]
FORMATS: dict[str, Format] = {
    ".txt": "txt", ".text": "txt", ".csv": "csv", ".tsv": "tsv", ".tab": "tsv",
    ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet",
}  # fmt: skip
_PACKED = (".gz", ".zst")
_CHUNK = 1 << 20
_LONGEST_LINE = 1 << 20
_UNREADABLE = {".zip", ".tar", ".7z", ".rar", ".pdf", ".doc", ".docx", ".xls", ".xlsx", ".bz2", ".xz"}


def format_of(path: Path) -> Format:
    """The format a file's name promises; a name that promises nothing is plain text."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in _PACKED:
        suffixes.pop()
    return FORMATS.get(suffixes[-1], "txt") if suffixes else "txt"


def _is_text(path: Path) -> bool:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in _PACKED:
        suffixes.pop()
    return bool(suffixes) and suffixes[-1] in FORMATS


def find_files(sources: Sequence[str | Path], outside: Path | None = None) -> list[Path]:
    """The files meant by names, folders and glob patterns, each once, in a stable order.

    Of folders and patterns, files below ``outside`` (where a run writes) are left out.
    """

    def own(file: Path) -> bool:
        return outside is not None and outside.resolve() in file.resolve().parents

    found: dict[Path, None] = {}
    for source in sources:
        path = Path(source)
        try:
            exists, is_dir = path.exists(), path.is_dir()
        except OSError:  # a name too long for a file, for one
            exists = is_dir = False
        if is_dir:
            inside = [
                file
                for file in sorted(path.rglob("*"))
                if file.is_file()
                and not any(part.startswith(".") for part in file.relative_to(path).parts)
                and _is_text(file)
                and not own(file)
            ]
            if not inside:
                raise DataError(
                    f"The folder {path} holds no text files.",
                    remedy=f"Files are known by their ending: {', '.join(FORMATS)} (also .gz, .zst).",
                )
            found.update(dict.fromkeys(inside))
        elif exists:
            if not path.is_file():
                raise DataError(
                    f"{path} is neither a file nor a folder; texts are read more than once.",
                    remedy="Pipe it in as standard input: ... | elmokit pretrain -",
                )
            if path.suffix.lower() in _UNREADABLE:
                raise DataError(
                    f"{path}: files ending in {path.suffix} are not read.",
                    remedy="Unpack or export it first to .txt, .csv, .tsv, .jsonl or .parquet.",
                )
            found[path] = None
        else:
            matches = sorted(glob.glob(str(source), recursive=True))
            files = [Path(match) for match in matches if Path(match).is_file() and not own(Path(match))]
            if not files:
                siblings = [file.name for file in path.parent.iterdir()] if path.parent.is_dir() else []
                hint = nearest(path.name, siblings) if 0 < len(siblings) < 200 else ""
                raise DataError(
                    f"There is no file or folder {str(source)!r}.",
                    remedy=hint if hint.startswith("Did") else "Check the name and the folder.",
                )
            found.update(dict.fromkeys(files))
    return list(found)


def open_bytes(path: Path) -> IO[bytes]:
    """The file's bytes, decompressed if its name ends in .gz or .zst."""
    try:
        if path.suffix.lower() == ".zst":
            return cast(IO[bytes], pa.CompressedInputStream(pa.OSFile(str(path), "rb"), "zstd"))
        if path.suffix.lower() == ".gz":
            return cast(IO[bytes], gzip.open(path, "rb"))
        return open(path, "rb")
    except OSError as error:
        raise DataError(f"Cannot open {path}: {error.strerror or error}.") from error


def _chunks(stream: IO[bytes], name: str) -> Iterator[bytes]:
    while True:
        try:
            chunk = stream.read(_CHUNK)
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(
                f"{name} cannot be decompressed or read to its end: {error}.",
                remedy="The file looks cut off or damaged; take a fresh copy.",
            ) from error
        if not chunk:
            return
        yield bytes(chunk)


def _binary(text: str) -> bool:
    sample = text[:65536]
    odd = sum(1 for char in sample if char < " " and char not in "\t\n\r\f\v\x1b")
    return odd * 100 > len(sample)


def decode_lines(
    stream: IO[bytes], name: str, *, encoding: str = "utf-8", errors: str = "strict", whole: bool = False
) -> Iterator[str]:
    """Lines without their ends (``\\n``, ``\\r\\n`` or ``\\r``), decoded strictly unless told.

    Memory does not grow with the stream: a line over a megabyte comes in parts cut at spaces,
    unless lines must be ``whole`` (records).
    """
    try:
        "a".encode(encoding)  # a LookupError for rot13, hex and the like
        decoder = codecs.getincrementaldecoder(encoding)(errors)
    except (LookupError, UnicodeError) as error:
        raise DataError(
            f"There is no encoding {encoding!r}.", remedy="Common ones: utf-8, latin-1, cp1252, utf-16."
        ) from error
    line, n_bytes, pending, first = 1, 0, "", True
    for chunk in _chunks(stream, name):
        try:
            text = decoder.decode(chunk)
        except UnicodeDecodeError as error:
            raise _undecodable(error, name, encoding, line, n_bytes, len(chunk), first) from error
        except UnicodeError as error:
            raise DataError(
                f"{name} is not {encoding} text: {error}.",
                remedy="Say the file's encoding (--encoding utf-8, ...).",
            ) from error
        n_bytes += len(chunk)
        if first:
            if _binary(text):
                raise _not_text(name)
            text, first = text.removeprefix("\ufeff"), False
        pending += text
        held = "\r" if pending.endswith("\r") else ""  # it may be half of \r\n
        body = pending[: len(pending) - len(held)]
        if "\r" in body:
            body = body.replace("\r\n", "\n").replace("\r", "\n")
        lines = body.split("\n")
        pending = lines.pop() + held
        line += len(lines)
        yield from lines
        while len(pending) > _LONGEST_LINE and not whole:
            cut = pending.rfind(" ", 0, _LONGEST_LINE)
            cut = cut if cut > 0 else _LONGEST_LINE
            yield pending[:cut]
            pending = pending[cut:].removeprefix(" ")
    try:
        pending += decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise _undecodable(error, name, encoding, line, n_bytes, 0, first) from error
    if pending.rstrip("\r"):
        yield pending.rstrip("\r")


def _not_text(name: str) -> DataError:
    return DataError(
        f"{name} looks like a binary file, not text.",
        remedy="Give text in .txt, .csv, .tsv, .jsonl or .parquet (also .gz, .zst); "
        "for UTF-16 text say --encoding utf-16.",
    )


def _undecodable(
    error: UnicodeDecodeError, name: str, encoding: str, line: int, n_bytes: int, size: int, first: bool
) -> DataError:
    """The error, with its place in the whole file worked out from its place in the chunk."""
    seen = bytes(error.object)
    if first and seen[:65536].count(0) * 100 > len(seen[:65536]):
        return _not_text(name)
    before = seen[: error.start].replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    place = n_bytes + size - len(seen) + error.start
    return DataError(
        f"{name}, line {line + before.count(10)}, byte {place}: "
        f"0x{seen[error.start]:02x} is not valid {encoding} ({error.reason}).",
        remedy="Say the file's encoding (--encoding latin-1, cp1252, ...), "
        "or replace what cannot be read (--errors replace).",
    )


_LARGEST_FIELD = 1 << 26


@contextlib.contextmanager
def _explaining(path: Path) -> Iterator[None]:
    """Turn whatever goes wrong in a Parquet file into an error that helps."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(
            f"{path} cannot be read as Parquet: {error}.",
            remedy="The file looks cut off, damaged or foreign; take a fresh copy.",
        ) from error


class FileSource:
    """Some files, in order, and how each format is read: what texts and rows are made from.

    Args:
        sources: files, folders, glob patterns, or ``-`` for standard input (kept in a temporary
            file, since it is read more than once).
        config: how to read them.
        outside: of folders and patterns, files below this folder are left out.
    """

    def __init__(
        self,
        sources: str | Path | Sequence[str | Path],
        config: ReadConfig | None = None,
        outside: Path | None = None,
    ) -> None:
        sources = [sources] if isinstance(sources, str | Path) else sources
        self.config = config or ReadConfig()
        self._stdin: IO[bytes] | None = None
        if any(str(source) == "-" for source in sources):
            if len(sources) > 1:
                raise DataError("Standard input (-) cannot be mixed with files.")
            self._stdin = tempfile.TemporaryFile(prefix="elmokit-")  # noqa: SIM115 (lives with self)
            shutil.copyfileobj(sys.stdin.buffer, self._stdin)
            self.files: list[Path] = []
        else:
            self.files = find_files(sources, outside)
            if not self.files:
                raise DataError(
                    "No text was given.", remedy="Name a file, a folder, or - for standard input."
                )

    @property
    def name(self) -> str:
        """What to call it in a message."""
        if self._stdin is not None:
            return "standard input"
        more = f" and {len(self.files) - 1} more files" if len(self.files) > 1 else ""
        return f"{self.files[0]}{more}"

    def marks(self) -> list[list[Any]]:
        """Name, size and time of each file: cheap to compare, and enough to see a change."""
        if self._stdin is not None:
            self._stdin.seek(0)
            digest = hashlib.blake2b(digest_size=16)
            while chunk := self._stdin.read(1 << 20):
                digest.update(chunk)
            return [["-", digest.hexdigest()]]
        stats = [(path, path.stat()) for path in self.files]
        return [[path.name, stat.st_size, stat.st_mtime_ns] for path, stat in stats]

    @property
    def is_stdin(self) -> bool:
        """Whether this is standard input."""
        return self._stdin is not None

    # -- one format each ----------------------------------------------------------------------

    def _lines(self, stream: IO[bytes], name: str, whole: bool = False) -> Iterator[str]:
        config = self.config
        return decode_lines(stream, name, encoding=config.encoding, errors=config.errors, whole=whole)

    def _paragraphs(self, stream: IO[bytes], name: str) -> Iterator[tuple[int, str]]:
        """Each paragraph of a plain text as one line, with the number of its first line."""
        block: list[str] = []
        start = 0
        for number, line in enumerate(self._lines(stream, name), start=1):
            if stripped := line.strip():
                start = start if block else number
                block.append(stripped)
            elif block:
                yield start, " ".join(block)
                block = []
        if block:
            yield start, " ".join(block)

    def _table(self, stream: IO[bytes], path: Path) -> Iterator[tuple[int, list[str]]]:
        """The rows of a table that are not blank, all of one width, with the line each begins on."""
        csv.field_size_limit(_LARGEST_FIELD)
        lines = (line + "\n" for line in self._lines(stream, str(path), whole=True))
        # Tab-separated files have no quoting: a quote in them is a character like any other.
        rows = (
            csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE, strict=True)
            if format_of(path) == "tsv"
            else csv.reader(lines, strict=True)
        )
        width = 0
        start = 1
        try:
            for row in rows:
                if any(map(str.strip, row)):
                    if len(row) != width:
                        if width:
                            raise DataError(
                                f"{path}, line {start}: {len(row)} fields where the first row has {width}.",
                                remedy="Mend the row; a field that holds the separator must be quoted.",
                            )
                        width = len(row)
                    yield start, row
                start = rows.line_num + 1
        except csv.Error as error:
            begun = f"; the row begins on line {start}" if start < rows.line_num else ""
            raise DataError(
                f"{path}, line {rows.line_num}: not readable as a table ({error}){begun}.",
                remedy="Look for a quote that is not closed or not doubled near this line.",
            ) from error

    def _objects(self, stream: IO[bytes], path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
        """The objects of a file of JSON lines, with their lines; a bare string is a text."""
        for number, line in enumerate(self._lines(stream, str(path), whole=True), start=1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise DataError(
                    f"{path}, line {number}: not valid JSON ({error}).",
                    remedy="Mend the line: each must be one whole JSON object.",
                ) from error
            if isinstance(record, dict):
                yield number, record
            elif isinstance(record, str) and self.config.columns in ([], ["text"]):
                yield number, {"text": record}
            else:
                raise DataError(
                    f"{path}, line {number}: not a JSON object.",
                    remedy=f'Each line must look like {{"{(self.config.columns or ["text"])[0]}": "..."}}.',
                )

    def _parquet_names(self, path: Path) -> list[str]:
        """The names of the columns of a Parquet file."""
        with _explaining(path), pq.ParquetFile(path) as file:
            return list(file.schema_arrow.names)

    def _parquet(self, path: Path, names: list[str]) -> Iterator[tuple[Any, ...]]:
        """The rows of a Parquet file: of each the cells in the columns of these names."""
        with _explaining(path), pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=1024, columns=list(dict.fromkeys(names))):
                there = batch.schema.names  # of two columns with one name, the first is meant ...
                places = range(len(there)) if there == names else map(there.index, names)  # ... or both
                columns = [batch.column(place).to_pylist() for place in places]
                yield from zip(*columns, strict=True)

    # -- columns ------------------------------------------------------------------------------

    def _has_header(self, first: Sequence[str]) -> bool:
        """Whether the first row of a table names its columns."""
        if self.config.header != "auto":
            return self.config.header == "yes"
        wanted = self.config.columns
        return not all(map(str.isdecimal, wanted)) if wanted else "text" in first

    def _text_places(self, names: Sequence[str], path: Path, header: bool) -> list[int]:
        """Where the text columns stand in a table."""
        if self.config.columns:
            return [self._place(name, names, path, header) for name in self.config.columns]
        if header and "text" in names:
            return [names.index("text")]
        if len(names) == 1:
            return [0]
        raise DataError(
            f"{path} has {len(names)} columns ({', '.join(names)[:200]}): which hold the text?",
            remedy="Say --text-columns NAME[,NAME] or, without a header row, numbers from 1.",
        )

    def _parquet_text_places(self, names: Sequence[str], path: Path) -> list[int]:
        """Where the text columns stand in a Parquet file."""
        wanted = self.config.columns or ["text"]
        return [self._place(name, names, path, True, " Choose with --text-columns.") for name in wanted]

    def _place(
        self,
        name: str,
        names: Sequence[str],
        path: Path,
        header: bool,
        advice: str = " Choose with --text-columns; if there is no header row, by numbers from 1.",
    ) -> int:
        """Where the column of this name or number stands."""
        if header and name in names:
            return names.index(name)
        if name.isdecimal():
            if 1 <= int(name) <= len(names):
                return int(name) - 1
            raise DataError(
                f"{path} has {len(names)} columns, so there is no column {name}.",
                remedy=f"Number the columns from 1 to {len(names)}.",
            )
        if not header:
            raise DataError(
                f"Without a header row, {path} has no column named {name!r}.",
                remedy=f"Number the columns from 1 to {len(names)}.",
            )
        raise DataError(f"{path} has no column {name!r}.", remedy=nearest(name, names) + advice)

    # -- cells --------------------------------------------------------------------------------

    def _text(self, cells: Iterable[Any]) -> str:
        """Cells of any type as one text; those that are missing add nothing."""
        parts = [cell.strip() if type(cell) is str else self._cell(cell) for cell in cells]
        return replace_surrogates(" ".join(filter(None, parts)))

    def _cell(self, cell: Any) -> str:
        if isinstance(cell, str):
            return cell.strip()
        if isinstance(cell, bytes):
            return cell.decode(self.config.encoding, self.config.errors).strip()
        return "" if cell is None or cell != cell else str(cell).strip()  # NaN is not itself

    def _object_text(self, record: dict[str, Any], wanted: Sequence[str], path: Path, number: int) -> str:
        """The text in the fields ``wanted`` of a JSON object."""
        try:
            return self._text([record[name] for name in wanted])
        except KeyError as error:
            name = str(error.args[0])
            raise no_field(name, record, f"{path}, line {number}", "--text-columns") from None


def no_field(name: str, record: dict[str, Any], place: str, flag: str) -> DataError:
    """The error for a JSON object that lacks a field."""
    hint = (
        f"JSON fields are chosen by name, not by number: {', '.join(record)}."
        if name.isdecimal()
        else nearest(name, record)
    )
    return DataError(f"{place}: no field {name!r}.", remedy=f"{hint} Choose with {flag}.")
