"""Texts out of .txt, .csv, .tsv, .jsonl and .parquet files: streaming, restartable, with places."""

from __future__ import annotations

import csv
import hashlib
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from elmokit.errors import DataError, nearest
from elmokit.text.files import decoded_lines, find_files, format_of, open_bytes
from elmokit.text.settings import ReadConfig
from elmokit.text.tokenising import without_surrogates

__all__ = ["TextSource"]

_LARGEST_FIELD = 1 << 26


class TextSource:
    """The texts of some files, in order; can be gone through any number of times.

    Args:
        sources: files, folders, glob patterns, or ``-`` for standard input (kept in a temporary
            file, since it is read more than once).
        config: how to read them.
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

    def __iter__(self) -> Iterator[str]:
        if self._stdin is not None:
            self._stdin.seek(0)
            yield from self._blocks(self._stdin, "standard input")
        for path in self.files:
            yield from self._texts(path)

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

    def _texts(self, path: Path) -> Iterator[str]:
        kind = format_of(path)
        if kind == "parquet":
            yield from self._parquet(path)
            return
        with open_bytes(path) as stream:
            if kind == "txt":
                yield from self._blocks(stream, str(path))
            elif kind == "jsonl":
                yield from self._jsonl(stream, path)
            else:
                yield from self._table(stream, path, "\t" if kind == "tsv" else ",")

    def _lines(self, stream: IO[bytes], name: str, whole: bool = False) -> Iterator[str]:
        config = self.config
        return decoded_lines(stream, name, encoding=config.encoding, errors=config.errors, whole=whole)

    def _blocks(self, stream: IO[bytes], name: str) -> Iterator[str]:
        if self.config.blocks == "lines":
            yield from (line for line in self._lines(stream, name) if line.strip())
            return
        block: list[str] = []
        for line in self._lines(stream, name):
            if line.strip():
                block.append(line.strip())
            elif block:
                yield " ".join(block)
                block = []
        if block:
            yield " ".join(block)

    def _table(self, stream: IO[bytes], path: Path, delimiter: str) -> Iterator[str]:
        csv.field_size_limit(_LARGEST_FIELD)
        lines = (line + "\n" for line in self._lines(stream, str(path), whole=True))
        # Tab-separated files have no quoting: a quote in them is a character like any other.
        rows = (
            csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE, strict=True)
            if delimiter == "\t"
            else csv.reader(lines, delimiter=delimiter, strict=True)
        )
        places: list[int] | None = None
        width = 0
        try:
            for row in rows:
                if not any(cell.strip() for cell in row):
                    continue
                if places is None:
                    width = len(row)
                    places, is_header = self._places(row, path)
                    if is_header:
                        continue
                if len(row) != width:
                    raise DataError(
                        f"{path}, line {rows.line_num}: {len(row)} fields where the first row has {width}.",
                        remedy="Mend the row; a field that holds the separator must be quoted.",
                    )
                yield " ".join(cell for place in places if (cell := row[place].strip()))
        except csv.Error as error:
            raise DataError(
                f"{path}, line {rows.line_num}: not readable as a table ({error}).",
                remedy="Look for a quote that is not closed or not doubled near this line.",
            ) from error

    def _places(self, first: list[str], path: Path) -> tuple[list[int], bool]:
        """Where the text columns stand, and whether the first row is a header."""
        wanted, names = self.config.columns, [name.strip() for name in first]
        if not wanted:
            if "text" in names and self.config.header != "no":
                return [names.index("text")], True
            if len(names) == 1:
                return [0], self.config.header == "yes"
            raise DataError(
                f"{path} has {len(names)} columns ({', '.join(names)[:200]}): which hold the text?",
                remedy="Say --text-columns NAME[,NAME] or, without a header row, numbers from 1.",
            )
        if all(name.isdigit() for name in wanted) and self.config.header != "yes":
            numbers = [int(name) for name in wanted]
            for number in numbers:
                if not 1 <= number <= len(names):
                    raise DataError(
                        f"{path} has {len(names)} columns, so there is no column {number}.",
                        remedy=f"Number the columns from 1 to {len(names)}.",
                    )
            return [number - 1 for number in numbers], False
        if self.config.header == "no":
            raise DataError(
                f"Without a header row, {path} has no column named {wanted[0]!r}.",
                remedy=f"Number the columns from 1 to {len(names)}.",
            )
        for name in wanted:
            if name not in names and not (name.isdigit() and 1 <= int(name) <= len(names)):
                raise DataError(
                    f"{path} has no column {name!r}.",
                    remedy=nearest(name, names) + " If there is no header row, number the columns from 1.",
                )
        return [names.index(name) if name in names else int(name) - 1 for name in wanted], True

    def _jsonl(self, stream: IO[bytes], path: Path) -> Iterator[str]:
        wanted = self.config.columns or ["text"]
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
            if isinstance(record, str) and not self.config.columns:
                record = {"text": record}
            if not isinstance(record, dict):
                raise DataError(
                    f"{path}, line {number}: not a JSON object.",
                    remedy='Each line must look like {"text": "..."}.',
                )
            parts = []
            for name in wanted:
                if name not in record:
                    raise DataError(
                        f"{path}, line {number}: no field {name!r}.",
                        remedy=nearest(name, record) + " Choose with --text-columns.",
                    )
                parts.append("" if record[name] is None else str(record[name]).strip())
            yield without_surrogates(" ".join(filter(None, parts)))

    def _parquet(self, path: Path) -> Iterator[str]:
        wanted = self.config.columns or ["text"]
        try:
            with pq.ParquetFile(path) as file:
                names = file.schema_arrow.names
                for name in wanted:
                    if name not in names:
                        raise DataError(
                            f"{path} has no column {name!r}.",
                            remedy=nearest(name, names) + " Choose with --text-columns.",
                        )
                for batch in file.iter_batches(batch_size=1024, columns=wanted):
                    columns = [batch.column(name).to_pylist() for name in wanted]
                    for cells in zip(*columns, strict=True):
                        parts = (self._cell(cell) for cell in cells)
                        yield " ".join(filter(None, parts))
        except (pa.ArrowException, OSError, UnicodeError) as error:
            raise DataError(
                f"{path} cannot be read as Parquet: {error}.",
                remedy="The file looks cut off, damaged or foreign; take a fresh copy.",
            ) from error

    def _cell(self, cell: Any) -> str:
        if isinstance(cell, bytes):
            return cell.decode(self.config.encoding, self.config.errors).strip()
        return "" if cell is None else str(cell).strip()
