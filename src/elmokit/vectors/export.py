"""Embedded folders as single files for other programs: Parquet and npz."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from elmokit.core.atomic import atomic_write
from elmokit.core.console import Reporter
from elmokit.core.errors import ConfigError, nearest
from elmokit.vectors.settings import EXPORTS
from elmokit.vectors.store import VectorStore
from elmokit.vectors.store_files import export_path

__all__ = ["check_exports", "export_npz", "export_parquet", "write_exports"]

_ROWS_AT_ONCE = 4096


def check_exports(exports: Sequence[str]) -> None:
    """Refuse what is not a format to export to."""
    for name in exports:
        if name not in EXPORTS:
            raise ConfigError(f"There is no export {name!r}.", remedy=nearest(name, EXPORTS))


def write_exports(store: VectorStore, exports: Sequence[str], reporter: Reporter) -> list[Path]:
    """Write ``vectors.parquet`` and the like into the folder, those that are not there yet."""
    check_exports(exports)
    written = []
    for name in dict.fromkeys(exports):
        path = export_path(store.folder, name)
        if not path.exists():
            with reporter.counting(f"Writing {path.name}", total=len(store), unit="texts") as advance:
                (export_parquet if name == "parquet" else export_npz)(store, path, advance)
        written.append(path)
    return written


def export_parquet(store: VectorStore, path: str | Path, advance: Any = lambda amount: None) -> None:
    """A Parquet table, streaming.

    Pooled texts: a row each, with the columns id, text and vector. Words: a row each, with id,
    position, word and vector. A vector is a list of floats or, with all layers, a list of such lists.
    """
    vector = pa.list_(pa.float32())
    if store.config.all_layers:
        vector = pa.list_(vector)
    named = [("id", pa.string())]
    if store.config.pool == "none":
        named += [("position", pa.int32()), ("word", pa.string())]
    else:
        named += [("text", pa.string())]
    schema = pa.schema([*named, ("vector", vector)])
    # A dictionary of numbers pays only where they repeat, and there are few float16 numbers.
    listed: Any = True if store.config.dtype == "float16" else [name for name, _ in named]
    with (
        atomic_write(Path(path)) as temporary,
        pq.ParquetWriter(temporary, schema, use_dictionary=listed) as writer,
    ):
        for _, records, rows in store.groups(_ROWS_AT_ONCE):
            columns: list[Any]
            if store.config.pool == "none":
                counts = [len(record.words) for record in records]
                columns = [
                    [record.id for record, count in zip(records, counts, strict=True) for _ in range(count)],
                    [position for count in counts for position in range(count)],
                    [word for record in records for word in record.words],
                ]
            else:
                columns = [[record.id for record in records], [record.text for record in records]]
            arrays = [
                pa.array(column, field.type) for column, field in zip(columns, list(schema)[:-1], strict=True)
            ]
            writer.write_batch(
                pa.record_batch([*arrays, _lists(np.asarray(rows, np.float32))], schema=schema)
            )
            advance(len(records))


def export_npz(store: VectorStore, path: str | Path, advance: Any = lambda amount: None) -> None:
    """A numpy archive with the arrays vectors, offsets, ids and id_offsets; no pickled objects.

    Ids are UTF-8 one after the other (uint8), so that a long one costs no more than its length: id i
    is ``bytes(ids[id_offsets[i]:id_offsets[i + 1]]).decode()``.
    """
    coded = [id.encode() for id in store.ids]
    ids = np.frombuffer(b"".join(coded), dtype=np.uint8)
    id_offsets = np.cumsum([0, *map(len, coded)], dtype=np.int64)
    with atomic_write(Path(path)) as temporary, open(temporary, "wb") as file:
        np.savez(file, vectors=store.vectors, offsets=store.offsets, ids=ids, id_offsets=id_offsets)
    advance(len(store))


def _lists(rows: Any) -> Any:
    """An array as nested lists along its last axes."""
    values = pa.array(rows.reshape(-1))
    n_lists = rows.size
    for width in reversed(rows.shape[1:]):
        n_lists //= width
        values = pa.ListArray.from_arrays(np.arange(n_lists + 1, dtype=np.int32) * width, values)
    return values
