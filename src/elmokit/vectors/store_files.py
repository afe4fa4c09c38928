"""An embedded folder on disk: its files, their headers, its manifest.

manifest.json               what it is, and of what it was made
vectors.npy | .safetensors  all vectors one after the other, (n_vectors, [layer,] dim)
offsets.npy                 text i is vectors[offsets[i]:offsets[i + 1]], (n_texts + 1,)
texts.jsonl                 id, text and words of each text, one a line
progress.json               how far it is; gone once it is done
README.md                   a card for people
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from elmokit.core.atomic import write_text
from elmokit.core.errors import DataError
from elmokit.core.model_folder import FORMAT, FORMAT_VERSION

__all__ = [
    "KIND",
    "MANIFEST",
    "OFFSETS",
    "PROGRESS",
    "README",
    "TEXTS",
    "export_path",
    "header",
    "read_manifest",
    "row_bytes",
]

KIND = "vectors"
MANIFEST, PROGRESS, README = "manifest.json", "progress.json", "README.md"
OFFSETS, TEXTS = "offsets.npy", "texts.jsonl"
_CODES = {"float32": ("<f4", "F32", 4), "float16": ("<f2", "F16", 2), "int64": ("<i8", "I64", 8)}
_ALIGNED = 128


def header(format: Literal["npy", "safetensors"], dtype: str, shape: Sequence[int]) -> bytes:
    """What stands in the file before the numbers: always 128 bytes, or a multiple of it."""
    numpy_code, tensor_code, size = _CODES[dtype]
    if format == "npy":
        listed = ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "")
        text = f"{{'descr': '{numpy_code}', 'fortran_order': False, 'shape': ({listed}), }}"
        text = text.ljust(-(len(text) + 11) % _ALIGNED + len(text)) + "\n"
        return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode("latin-1")
    for width in shape:
        size *= width
    record = {"vectors": {"dtype": tensor_code, "shape": list(shape), "data_offsets": [0, size]}}
    text = json.dumps(record, separators=(",", ":"))
    text = text.ljust(-(len(text) + 8) % _ALIGNED + len(text))
    return struct.pack("<Q", len(text)) + text.encode()


def row_bytes(dtype: str, shape: Sequence[int]) -> int:
    """The size of one row of an array of this shape."""
    size = _CODES[dtype][2]
    for width in shape[1:]:
        size *= width
    return size


def export_path(folder: Path, name: str) -> Path:
    """Where the vectors stand in another format."""
    return folder / f"vectors.{name}"


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest of an embedded folder, however far it is; None if there is none at all."""
    file = folder / MANIFEST
    if not file.exists():
        return None
    again = "Give a folder that elmokit embed has made."
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{file} cannot be read: {error}.", remedy=again) from error
    if not isinstance(record, dict) or record.get("format") != FORMAT or record.get("kind") != KIND:
        raise DataError(f"{file} was not written by elmokit embed.", remedy=again)
    if record.get("format_version") != FORMAT_VERSION:
        raise DataError(
            f"{file} has format version {record.get('format_version')!r}, "
            f"this elmokit reads {FORMAT_VERSION}.",
            remedy="Install a newer elmokit, or embed the texts again.",
        )
    return record


def write_json(file: Path, record: dict[str, Any]) -> None:
    """Write a record atomically."""
    write_text(file, json.dumps(record, indent=2, ensure_ascii=False) + "\n")
