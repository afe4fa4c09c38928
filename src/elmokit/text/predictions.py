"""Predictions beside the rows they were made for, as CSV or JSON lines: streaming, whole or not at all."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import math
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Literal

from elmokit.core.atomic import sync
from elmokit.core.errors import DataError, RunError
from elmokit.text.rows import Row, unique
from elmokit.text.tokenizing import replace_surrogates

__all__ = ["PredictionWriter"]

_CHUNK = 1 << 16
_SECONDS = 1.0


class PredictionWriter:
    """Writes rows with what was predicted for them; use it in a ``with`` statement.

    Rows keep their own columns as they were; what was predicted follows. A mapping is one field in JSON
    lines and one column per key in CSV: ``p(<class>)`` for ``probabilities``. A new column whose name is
    taken gets ``_2`` after it.

    A file appears under its name only when all is written, and not at all if something goes wrong.
    Standard output is written to at least once a second, as long as rows come in.

    Args:
        out: the file to write; None for standard output.
        format: ``csv`` or ``jsonl``.
        columns: names of the rows' own columns (``RowSource.columns()``); None to go by the first
            row. JSON lines need none: there every row keeps its own fields.
    """

    def __init__(
        self, out: Path | None, format: Literal["csv", "jsonl"], columns: Sequence[str] | None
    ) -> None:
        self.out = None if out is None else Path(out)
        self.format = format
        self.columns = None if columns is None else unique(columns)
        self._target = Path()
        self._temporary: Path | None = None
        self._stream: IO[bytes] | None = None
        self._pending: list[str] = []
        self._n_pending = 0
        self._flushed = time.monotonic()
        self._cells = io.StringIO(newline="")
        # Ending rows in both \r and \n has every cell that holds either quoted, in all versions of csv.
        self._csv = csv.writer(self._cells, lineterminator="\r\n")
        self._known: frozenset[str] = frozenset()
        self._headed = False

    def __enter__(self) -> PredictionWriter:
        if self.out is None:
            return self
        if self.out.is_dir():
            raise RunError(
                f"Cannot write predictions to {self.out}: it is a folder.", remedy="Name a file in it."
            )
        with self._explaining():
            if self.out.exists() and not self.out.is_file():  # a pipe or device cannot be replaced
                self._stream = open(self.out, "wb")
            else:
                self._target = self.out.resolve()  # a link stays a link: what it points to is replaced
                self._temporary = self._target.with_name(f".{self._target.name}.new")
                self._stream = open(self._temporary, "wb")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._finish()
            elif self.out is None:  # what was predicted until then is of use
                with contextlib.suppress(OSError, RunError):
                    self._flush()
        finally:
            with contextlib.suppress(OSError):
                if self._stream is not None:
                    self._stream.close()
            with contextlib.suppress(OSError):
                if self._temporary is not None:
                    self._temporary.unlink(missing_ok=True)

    def write(self, row: Row, values: Mapping[str, Any]) -> None:
        """Add a row with what was predicted for it."""
        if self.format == "csv":
            self._write_csv(row, values)
        else:
            self._write_json(row, values)
        if self._n_pending > _CHUNK or time.monotonic() - self._flushed > _SECONDS:
            self._flush()

    def write_header(self, values: Mapping[str, Any]) -> None:
        """Write the header of a CSV file without rows, for predictions such as ``values``."""
        if self.format == "csv":
            self._head(values)

    # -- CSV ----------------------------------------------------------------------------------

    def _write_csv(self, row: Row, values: Mapping[str, Any]) -> None:
        own = row.cells or {}
        if self.columns is None:
            self.columns = list(own)
        if not self._headed:
            self._head(values)
        if not self._known.issuperset(own):
            other = next(name for name in own if name not in self._known)
            raise DataError(
                f"{row.place}: the column {other!r} is not among those of the first row "
                f"({', '.join(self.columns)[:200]}).",
                remedy="Predict files with different columns one by one, or write JSON lines.",
            )
        new = _flat(values).values()
        cells = [f"{value:.6f}" if isinstance(value, float) else _cell(value) for value in new]
        self._add_cells([*(_cell(own.get(name)) for name in self.columns), *cells])

    def _head(self, values: Mapping[str, Any]) -> None:
        self._known = frozenset(self.columns or ())
        self._add_cells(unique([*(self.columns or ()), *_flat(values)]))
        self._headed = True

    def _add_cells(self, cells: Sequence[str]) -> None:
        self._csv.writerow([replace_surrogates(cell) for cell in cells])
        self._add(self._cells.getvalue().removesuffix("\r\n"))
        self._cells.seek(0)
        self._cells.truncate()

    # -- JSON lines ---------------------------------------------------------------------------

    def _write_json(self, row: Row, values: Mapping[str, Any]) -> None:
        own = row.cells or {}
        new = {name: _rounded(value) for name, value in values.items()}
        # Names are judged by all columns that are known, so that they are the same in every row.
        taken = dict.fromkeys([*own, *(self.columns or ())])
        names = unique([*taken, *new])[len(taken) :]
        record = {**own, **dict(zip(names, new.values(), strict=True))}
        try:
            self._add(replace_surrogates(_json(record)))
        except RecursionError as error:
            raise DataError(
                f"{row.place}: the fields are nested too deep to be written.",
                remedy="Leave out the field that holds so many lists in lists.",
            ) from error

    # -- writing ------------------------------------------------------------------------------

    def _add(self, line: str) -> None:
        self._pending.append(line + "\n")
        self._n_pending += len(line)

    def _flush(self) -> None:
        text = "".join(self._pending)
        self._pending.clear()
        self._n_pending = 0
        self._flushed = time.monotonic()
        with self._explaining():
            if self._stream is not None:
                self._stream.write(text.encode())
                self._stream.flush()
                return
            # UTF-8 and \n whatever the terminal says, unless somebody has put a text stream in place.
            sys.stdout.flush()
            if (buffer := getattr(sys.stdout, "buffer", None)) is None:
                sys.stdout.write(text)
            else:
                buffer.write(text.encode())
            sys.stdout.flush()

    def _finish(self) -> None:
        self._flush()
        if self._stream is None:
            return
        with self._explaining():
            self._stream.close()
            if self._temporary is not None:
                sync(self._temporary)
                os.replace(self._temporary, self._target)
                with contextlib.suppress(OSError):  # some systems cannot sync a folder
                    sync(self._target.parent)

    @contextlib.contextmanager
    def _explaining(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:  # the reader has seen enough
            raise
        except OSError as error:
            name = "standard output" if self.out is None else str(self.out)
            raise RunError(
                f"Cannot write predictions to {name}: {error.strerror or error}.",
                remedy="See that the folder is there, writable and not full, or choose another.",
            ) from error


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values by column: a mapping has one for each of its keys."""
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
    if isinstance(value, str):
        return value
    if value is None or value != value:  # NaN is not itself
        return ""
    if isinstance(value, bool | list | dict):
        return _json(value)
    return _text(value)


def _json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, default=_text)
    except ValueError:  # JSON has no NaN and no infinity
        return json.dumps(_finite(value), ensure_ascii=False, default=_text)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _text(value: Any) -> str:
    """A value that JSON does not know (a date, bytes, a decimal number) as text."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
