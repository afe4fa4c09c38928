"""Write rows with their predictions, as CSV or JSON lines: streaming, whole or not at all."""

from __future__ import annotations

import codecs
import contextlib
import csv
import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

from elmokit.core.atomic import explain_os_errors
from elmokit.core.errors import DataError, RunError
from elmokit.core.run_folder import open_file
from elmokit.text.rows import Row, unique

OutputFormat = Literal["csv", "jsonl", "conll"]


class PredictionWriter:
    """Writes rows with their predictions; use it in a ``with`` statement.

    Rows keep their own columns; the predictions follow. A mapping is one field in JSON lines and one column
    per key in CSV: ``p(<class>)`` for ``probabilities``, ``score(<class>)`` for ``scores``. A new column
    whose name is taken gets ``_2``.

    A file appears under its name only when all is written, and not at all if something goes wrong.

    Args:
        out: The file to write; None for standard output, which gets every row at once.
        options: Those of ``open_file``.
    """

    def __init__(self, out: Path | None, format: OutputFormat, **options: Any) -> None:
        self.out, self.format, self._options = out, format, options
        self._columns: list[str] | None = None  # of the first row; JSON objects have fields of their own
        self._files = contextlib.ExitStack()
        self._stream: Any = None
        # With both \r and \n at the end of a row, every version of csv quotes cells that hold either.
        self._csv = csv.writer(SimpleNamespace(write=self._write_line), lineterminator="\r\n")

    def __enter__(self) -> PredictionWriter:
        if self.out is None:
            if sys.stdout is None:
                raise RunError("Standard output is closed.", remedy="Write to a file: --out FILE.")
            sys.stdout.flush()
            output = getattr(sys.stdout, "buffer", None)  # UTF-8 and \n on every terminal
            self._stream = codecs.getwriter("utf-8")(output, "replace") if output else sys.stdout
            return self
        stream = self._files.enter_context(open_file(self.out, **self._options))
        self._stream = codecs.getwriter("utf-8")(stream, "replace")
        return self

    def __exit__(self, kind: type[BaseException] | None, *details: Any) -> None:
        # After a failure, that of the caller is raised and not one of closing the file.
        with contextlib.suppress(*(() if kind is None else (OSError, RunError))):
            self._files.__exit__(kind, *details)

    def write(self, row: Row, values: Mapping[str, Any]) -> None:
        """Add a row with its predictions."""
        own = row.cells or {}
        if self.format == "conll":
            self._write_words(own, values)
            return
        if self.format == "jsonl":
            names = unique([*own, *values])[len(own) :]
            record = own | dict(zip(names, _finite(list(values.values()), 6), strict=True))
            self._write_line(_json(record))
            return
        if self._columns is None:
            self.write_header(values, list(own))
        known = self._columns or []
        if late := [name for name in own if name not in known]:
            raise DataError(
                f"{row.place}: the column {late[0]!r} is not among those of the first row "
                f"({', '.join(known)[:200]}).",
                remedy="Predict files with different columns one by one, or write JSON lines.",
            )
        new = _flatten(values).values()
        cells = [f"{value:.6f}" if isinstance(value, float) else _cell(value) for value in new]
        self._csv.writerow([*(_cell(own.get(name)) for name in known), *cells])

    def _write_words(self, own: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        """A line for each word: its own columns, or the word, and its tag; then a blank line."""
        tags = values.get("tags")
        if tags is None:
            raise DataError(
                "Only tags can be written as CoNLL files.", remedy="Choose --format csv or jsonl."
            )
        columns = [cell for cell in own.values() if isinstance(cell, list) and len(cell) == len(tags)]
        for cells in zip(*(columns or [values["words"]]), tags, strict=True):
            self._write_line("\t".join(map(_text, cells)))
        self._write_line("")

    def write_header(self, values: Mapping[str, Any], columns: Sequence[str] = ()) -> None:
        """Write the header of a CSV file, for predictions such as ``values``; needed only without rows."""
        if self.format == "csv":
            self._columns = list(columns)
            self._csv.writerow(unique([*columns, *_flatten(values)]))

    def _write_line(self, line: str) -> None:
        with explain_os_errors(self.out or Path("standard output")):
            self._stream.write(line.removesuffix("\r\n") + "\n")
            if self.out is None:
                self._stream.flush()


def _flatten(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values by column: a mapping has a column for each key."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            short = {"probabilities": "p", "scores": "score"}.get(name, name)
            flat |= {f"{short}({key})": inner for key, inner in value.items()}
        else:
            flat[name] = value
    return flat


def _cell(value: Any) -> str:
    """A value of any type as a cell of a table; what is missing is blank."""
    if value is None or value != value:  # NaN is not itself
        return ""
    return _json(value) if isinstance(value, bool | list | dict) else _text(value)


def _json(value: Any) -> str:
    return json.dumps(_finite(value), ensure_ascii=False, default=_text)


def _finite(value: Any, places: int | None = None) -> Any:
    """The value, rounded, with None for NaN and infinity, which JSON does not have."""
    if isinstance(value, Mapping):
        return {name: _finite(inner, places) for name, inner in value.items()}
    if isinstance(value, list):
        return [_finite(inner, places) for inner in value]
    if not isinstance(value, float):
        return value
    return (value if places is None else round(value, places)) if math.isfinite(value) else None


def _text(value: Any) -> str:
    """A value that JSON does not know (a date, bytes, a decimal number) as text."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
