"""How much room vectors will take on disk, file by file, before the first is computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from elmokit.vectors.settings import StoreConfig
from elmokit.vectors.store_files import header, row_bytes

__all__ = ["StoreSize", "store_size"]

# Measured: lists of numbers cost a little more than the numbers; float16 has few distinct ones.
_PARQUET_BYTES = {"float32": 4.2, "float16": 3.0}
_PARQUET_ROW_BYTES = 8  # id, position and word, each named once in a group of rows
_SMALL_PRINT = 8192  # names, headers, schemas


@dataclass(frozen=True)
class StoreSize:
    """Bytes of each file. Exports are estimated; the rest is exact.

    Attributes:
        vectors: the file of vectors, header included.
        offsets: ``offsets.npy``.
        texts: ``texts.jsonl``.
        exports: by the name of the format.
    """

    vectors: int
    offsets: int
    texts: int
    exports: dict[str, int]

    @property
    def total(self) -> int:
        """All of them."""
        return self.vectors + self.offsets + self.texts + sum(self.exports.values())


def store_size(
    manifest: dict[str, Any], config: StoreConfig, shape: Sequence[int], exports: Sequence[str] = ()
) -> StoreSize:
    """The size of a folder whose texts were counted, with vectors of this shape."""
    head = len(header(config.format, config.dtype, shape))
    vectors = head + shape[0] * row_bytes(config.dtype, shape)
    places = (manifest["n_texts"] + 1,)
    offsets = len(header("npy", "int64", places)) + places[0] * row_bytes("int64", places)
    texts = manifest["texts_bytes"]
    ids = manifest.get("ids_bytes", texts)
    known = {
        "npz": vectors + 2 * offsets + ids + _SMALL_PRINT,
        "parquet": round(prod(shape) * _PARQUET_BYTES[config.dtype])
        + shape[0] * _PARQUET_ROW_BYTES
        + texts // 2  # either the text or its words, which stand there both
        + _SMALL_PRINT,
    }
    return StoreSize(vectors, offsets, texts, {name: known[name] for name in dict.fromkeys(exports)})
