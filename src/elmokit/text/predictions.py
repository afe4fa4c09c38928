"""Write rows with their predictions, as CSV or JSON lines: streaming, whole or not at all."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any, Literal

from elmokit.core.atomic import atomic_write
from elmokit.core.errors import DataError, RunError
from elmokit.text.rows import Row, unique
from elmokit.text.tokenizing import replace_surrogates

_CHUNK = 1 << 16
_SECONDS = 1.0


class PredictionWriter:
    """Writes rows with their predictions; use it in a ``with`` statement.

    Rows keep their own columns; the predictions follow. A mapping is one field in JSON lines and one column
    per key in CSV: ``p(<class>)`` for ``probabilities``. A new column whose name is taken gets ``_2``.

    A file appears under its name only when all is written, and not at all if something goes wrong. Standard
    output is written to at least once a second, as long as rows come in.

    Args:
        out: The file to write; None for standard output.
        columns: Names of the rows' own columns (``RowSource.columns()``); None for those of the first row.
            JSON lines need none: there every row keeps its own fields.
    """

    def __init__(
        self, out: Path | None, format: Literal["csv", "jsonl"], columns: Sequence[str] | None
    ) -> None:
        self.out, self.format = out, format
        self.columns = None if columns is None else unique(columns)
        self._files = contextlib.ExitStack()
        self._stream: IO[bytes] | None = None  # None: standard output
        self._pending = io.StringIO(newline="")
        self._flushed = time.monotonic()
        # With both \r and \n at the end of a row, every version of csv quotes cells that hold either.
        self._csv = csv.writer(SimpleNamespace(write=self._add), lineterminator="\r\n")
        self._has_header = False

    def __enter__(self) -> PredictionWriter:
        if self.out is None:
            return self
        if self.out.is_dir():
            raise RunError(
                f"Cannot write predictions to {self.out}: it is a folder.", remedy="Name a file in it."
            )
        with self._explain_errors():
            path = self.out
            if not path.exists() or path.is_file():  # a pipe or device cannot be replaced
                path = self._files.enter_context(atomic_write(path.resolve()))  # a link stays a link
            self._stream = self._files.enter_context(open(path, "wb"))
        return self

    def __exit__(self, kind: type[BaseException] | None, *details: Any) -> None:
        if kind is None:
            with self._files:
                self._flush()
            return
        with contextlib.suppress(OSError, RunError):
            if self.out is None:  # what was predicted so far is of use
                self._flush()
            self._files.__exit__(kind, *details)

    def write(self, row: Row, values: Mapping[str, Any]) -> None:
        """Add a row with its predictions."""
        try:
            if self.format == "csv":
                self._write_csv(row, values)
            else:
                self._write_json(row, values)
        except RecursionError as error:
            raise DataError(
                f"{row.place}: the fields are nested too deeply to be written.",
                remedy="Leave out the field that holds so many lists in lists.",
            ) from error
        if self._pending.tell() > _CHUNK or time.monotonic() - self._flushed > _SECONDS:
            self._flush()

    def write_header(self, values: Mapping[str, Any]) -> None:
        """Write the header of a CSV file, for predictions such as ``values``; needed only without rows."""
        if self.format == "csv":
            self._has_header = True
            self._add_cells(unique([*(self.columns or ()), *_flatten(values)]))

    def _write_csv(self, row: Row, values: Mapping[str, Any]) -> None:
        own = row.cells or {}
        if self.columns is None:
            self.columns = list(own)
        if not self._has_header:
            self.write_header(values)
        late = [name for name in own if name not in self.columns]
        if late:
            raise DataError(
                f"{row.place}: the column {late[0]!r} is not among those of the first row "
                f"({', '.join(self.columns)[:200]}).",
                remedy="Predict files with different columns one by one, or write JSON lines.",
            )
        new = _flatten(values).values()
        cells = [f"{value:.6f}" if isinstance(value, float) else _cell(value) for value in new]
        self._add_cells([*(_cell(own.get(name)) for name in self.columns), *cells])

    def _add_cells(self, cells: Sequence[str]) -> None:
        self._csv.writerow([replace_surrogates(cell) for cell in cells])

    def _write_json(self, row: Row, values: Mapping[str, Any]) -> None:
        own = row.cells or {}
        new = {name: _rounded(value) for name, value in values.items()}
        # All known columns count as taken, so that the new names are the same in every row.
        taken = dict.fromkeys([*own, *(self.columns or ())])
        names = unique([*taken, *new])[len(taken) :]
        record = own | dict(zip(names, new.values(), strict=True))
        self._add(replace_surrogates(_json(record)))

    # -- writing ------------------------------------------------------------------------------

    def _add(self, line: str) -> None:
        self._pending.write(line.removesuffix("\r\n") + "\n")

    def _flush(self) -> None:
        text, self._pending = self._pending.getvalue(), io.StringIO(newline="")
        self._flushed = time.monotonic()
        with self._explain_errors():
            # UTF-8 and \n on every terminal, unless standard output was replaced by a text stream.
            stream = self._stream
            if stream is None:
                sys.stdout.flush()
                stream = getattr(sys.stdout, "buffer", None)
            if stream is None:
                sys.stdout.write(text)
            else:
                stream.write(text.encode())
                stream.flush()

    @contextlib.contextmanager
    def _explain_errors(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:  # the reader has seen enough
            raise
        except OSError as error:
            name = "standard output" if self.out is None else str(self.out)
            raise RunError(
                f"Cannot write predictions to {name}: {error.strerror or error}.",
                remedy="Check that the folder exists, is writable and not full, or choose another.",
            ) from error


def _flatten(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values by column: a mapping has a column for each key."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            short = "p" if name == "probabilities" else name
            flat |= {f"{short}({key})": inner for key, inner in value.items()}
        else:
            flat[name] = value
    return flat


def _rounded(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _rounded(inner) for name, inner in value.items()}
    return round(value, 6) if isinstance(value, float) else value


def _cell(value: Any) -> str:
    """A value of any type as a cell of a table; what is missing is blank."""
    if value is None or value != value:  # NaN is not itself
        return ""
    return _json(value) if isinstance(value, bool | list | dict) else _text(value)


def _json(value: Any) -> str:
    return json.dumps(_finite(value), ensure_ascii=False, default=_text)


def _finite(value: Any) -> Any:
    """The value with None for NaN and infinity, which JSON does not have."""
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _text(value: Any) -> str:
    """A value that JSON does not know (a date, bytes, a decimal number) as text."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
