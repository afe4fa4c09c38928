"""``VectorStore``: a folder that ``elmokit embed`` has made, read where it lies on disk.

manifest.json               what it holds and what it was made from
vectors.npy | .safetensors  all vectors one after the other, (n_vectors, [layer,] dim)
offsets.npy                 text i is vectors[offsets[i]:offsets[i + 1]], (n_texts + 1,)
texts.jsonl                 id, text and words of each text, one per line
progress.json               how much is done; deleted at the end

Of the engine "ray", a folder holds manifest.json and a store for each input file, shards/00000 and so on.
"""

from __future__ import annotations

import functools
import io
import itertools
import json
import os
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from elmokit.core.atomic import atomic_write, restore, write_text
from elmokit.core.errors import ConfigError, DataError
from elmokit.core.model_folder import FORMAT, FORMAT_VERSION
from elmokit.core.names import checksum, read_json, record_checksum
from elmokit.core.ragged import Ragged
from elmokit.published.hdf5 import require_h5py, write_arrays
from elmokit.vectors.settings import StoreConfig

Reals = npt.NDArray[np.floating[Any]]
MANIFEST, OFFSETS, TEXTS = "manifest.json", "offsets.npy", "texts.jsonl"
_EXPORT_ROWS = 4096
_N_OPEN = 16  # shards
_SHARED = ("settings", "layers", "dim", "dtype")  # by all shards
_FRESH = "Files are damaged or do not belong together; take a fresh copy, or embed the texts again."
_NOT_OURS = "Give a folder that elmokit embed has made."


@dataclass(frozen=True)
class ModelRef:
    """The model that made the vectors; ``name`` may be empty."""

    name: str
    fingerprint: str


@dataclass(frozen=True)
class Manifest:
    """``manifest.json``: what a store holds and what it was made from. Fields are named as in the file."""

    elmokit_version: str
    model: ModelRef
    settings: StoreConfig
    reading: dict[str, Any]  # settings of reading, as JSON values
    files: list[list[Any]]  # name and content hash of each; of 0.1, name, size and time
    layers: int  # that are stored of each vector
    dim: int
    dtype: str
    done: bool = False
    n_texts: int = 0  # like the other counts, 0 until all texts were read
    n_words: int = 0
    n_vectors: int = 0
    n_empty: int = 0
    texts_bytes: int = 0
    texts_hash: str = ""  # of texts.jsonl; empty in 0.1
    vectors_crc32: str = ""  # of all vectors when they are done; empty in 0.1
    shards: int = 0  # stores that this one is made of

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array of all vectors."""
        layers = (self.layers,) if self.settings.all_layers else ()
        return (self.n_vectors, *layers, self.dim)

    @property
    def header(self) -> bytes:
        """The bytes before the numbers in the file of vectors."""
        return array_header(self.settings.format, self.settings.dtype, self.shape)

    def write(self, folder: Path) -> None:
        """Write ``manifest.json``."""
        record = {"format": FORMAT, "format_version": FORMAT_VERSION, "kind": "vectors", **asdict(self)}
        del record["shards"]  # run_shards writes it
        record["checksum"] = record_checksum(record)
        write_text(folder / MANIFEST, json.dumps(record, indent=2, ensure_ascii=False) + "\n")

    @classmethod
    def read(cls, folder: Path) -> Manifest | None:
        """The manifest of a folder; None if there is none, DataError if it is foreign or damaged."""
        file = folder / MANIFEST
        if not file.exists():
            return None
        record = read_json(file)
        if (record.get("format"), record.get("kind")) != (FORMAT, "vectors"):
            raise DataError(f"{file} is damaged, or was not written by elmokit embed.", remedy=_NOT_OURS)
        if (version := record.get("format_version")) != FORMAT_VERSION:
            raise DataError(
                f"{file} has format version {version!r}, this elmokit reads {FORMAT_VERSION}.",
                remedy="Install a newer elmokit, or embed the texts again.",
            )
        try:
            if record.get("checksum", own := record_checksum(record)) != own:  # 0.1 has none
                raise ValueError("its checksum does not match")
            values = {field.name: record[field.name] for field in fields(cls) if field.name in record}
            values["model"] = ModelRef(**record["model"])
            values["settings"] = StoreConfig.from_dict(record["settings"])
            if not all(0 <= values[name] < 1 << 48 for name in values if cls.__annotations__[name] == "int"):
                raise ValueError("a count is out of range")
            return cls(**values)
        except (LookupError, TypeError, ValueError, OverflowError, AttributeError, ConfigError) as error:
            raise DataError(f"{file} is damaged: {error!r}.", remedy=_FRESH) from error


@dataclass(frozen=True)
class StoredText:
    """A text of a vector store."""

    id: str  # from the id column, or its number from 0
    text: str  # as it was read
    words: list[str]  # as the model saw them


class VectorStore:
    """The vectors of many texts, memory-mapped: opening takes no time and no memory.

    >>> store = VectorStore.open("news-vectors")        # doctest: +SKIP
    >>> store[5], store.texts[5], store.ids[5]          # doctest: +SKIP

    ``len(store)`` is the number of texts. ``store[i]`` is the vectors of one text, (n_words, dim), or,
    if texts were pooled, its one vector, (dim,); with all layers (..., layer, dim).

    Attributes:
        config: Which vectors were stored.
        vectors: All vectors, one after the other, read-only; (n_vectors, dim) or (n_vectors, layer, dim).
        offsets: Text i is ``vectors[offsets[i]:offsets[i + 1]]``, (n_texts + 1,).
        fingerprint: Of the model that made the vectors.
        manifest: What else ``manifest.json`` says.
    """

    def __init__(self, folder: Path, manifest: Manifest, rows: Ragged[Any]) -> None:
        self.folder, self.manifest, self.config, self._rows = folder, manifest, manifest.settings, rows
        self.vectors, self.offsets = rows.values, rows.offsets
        self.fingerprint, self.dim = manifest.model.fingerprint, manifest.dim
        self._is_verified = False

    @classmethod
    def open(cls, folder: str | Path) -> VectorStore:
        """Open a finished store. Anything missing, damaged, cut short or foreign is an error that
        names the file; nothing is allocated on a damaged file's word."""
        folder = Path(folder)
        restore(folder)
        manifest = Manifest.read(folder)
        if manifest is None:
            missing = f"{folder} holds no vectors: it has no {MANIFEST}."
            raise DataError(missing if folder.exists() else f"There is no folder {folder}.", remedy=_NOT_OURS)
        if not manifest.done:
            raise DataError(
                f"The vectors in {folder} are not finished.",
                remedy="Run the same elmokit embed command again: it resumes where it stopped.",
            )
        if manifest.shards:
            return _JoinedStore(folder, manifest)
        config, shape = manifest.settings, (manifest.n_texts + 1,)
        file = folder / f"vectors.{config.format}"
        vectors = map_array(file, manifest.header, config.dtype, manifest.shape)
        offsets = map_array(folder / OFFSETS, array_header("npy", "int64", shape), "int64", shape)
        lengths = np.diff(offsets)
        is_wrong = lengths < 0 if config.pool == "none" else lengths != 1
        if offsets[0] != 0 or offsets[-1] != len(vectors) or is_wrong.any():
            raise DataError(f"{folder / OFFSETS} must rise from 0 to {len(vectors)}.", remedy=_FRESH)
        check_file(folder / TEXTS, b"", manifest.texts_bytes)
        return cls(folder, manifest, Ragged(vectors, offsets))

    def verify(self) -> None:
        """Compare all vectors and texts with their checksums, the first time; DataError if they differ."""
        known, texts = self.manifest, self.folder / TEXTS
        if self._is_verified:
            return
        crc32 = f"{zlib.crc32(self.vectors.data):08x}" if known.vectors_crc32 else ""
        if crc32 != known.vectors_crc32 or (known.texts_hash and checksum(texts) != known.texts_hash):
            vectors = self.folder / f"vectors.{self.config.format}"
            wrong = texts if crc32 == known.vectors_crc32 else vectors
            raise DataError(f"{wrong} is damaged: the checksum is another.", remedy=_FRESH)
        self._is_verified = True

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> Reals:
        rows = self._rows[index]
        return rows if self.config.pool == "none" else cast(Reals, rows[0])

    @cached_property
    def ids(self) -> list[str]:
        """The id of each text."""
        return [record.id for record in self.records()]

    @cached_property
    def texts(self) -> list[str]:
        """All texts as they were read, in memory; ``record`` fetches a single one from disk."""
        return [record.text for record in self.records()]

    @cached_property
    def words(self) -> list[list[str]]:
        """The words of all texts, in memory."""
        return [record.words for record in self.records()]

    def record(self, index: int) -> StoredText:
        """Id, text and words of one text."""
        index = range(len(self))[index]
        with open(self.folder / TEXTS, "rb") as file:
            file.seek(self._line_starts[: index + 1][-1])  # the end of a file that lost lines
            return self._parse(file.readline(), index)

    def records(self) -> Iterator[StoredText]:
        """Id, text and words of all texts, in order, streaming."""
        with open(self.folder / TEXTS, "rb") as file:
            for index, line in enumerate(file):
                yield self._parse(line, index)

    def groups(self, n_vectors: int) -> Iterator[tuple[int, list[StoredText], Reals]]:
        """All texts in order, about ``n_vectors`` vectors at a time: the number of the first text of a
        group, its texts, and their vectors one after the other."""
        records, offsets, first = self.records(), self.offsets, 0
        while first < len(self):
            n_fitting = np.searchsorted(offsets, offsets[first] + n_vectors, side="right") - 1 - first
            last = first + max(1, int(n_fitting))
            vectors = self.vectors[int(offsets[first]) : int(offsets[last])]
            yield first, list(itertools.islice(records, last - first)), vectors
            first = last

    @cached_property
    def _line_starts(self) -> npt.NDArray[np.int64]:
        with open(self.folder / TEXTS, "rb") as file:
            return np.concatenate([[0], np.cumsum(np.fromiter(map(len, file), np.int64))])

    def _parse(self, line: bytes, index: int) -> StoredText:
        try:
            record = StoredText(**json.loads(line))
            if self.config.pool == "none" and len(record.words) != len(self._rows[index]):
                raise ValueError("another number of words than vectors")
        except (ValueError, TypeError, IndexError, RecursionError) as error:
            raise DataError(
                f"{self.folder / TEXTS}, line {index + 1}: damaged ({error}).", remedy=_FRESH
            ) from error
        return record


def shard_folder(folder: Path, number: int) -> Path:
    """Where the store of an input file is."""
    return folder / "shards" / f"{number:05d}"


class JoinedRows:
    """Arrays one after the other, read as one array; only a slice across a border is copied.

    Args:
        part: Returns an array by its number; all have rows of one shape.
        starts: The first row of each, and the end, (n_parts + 1,).
    """

    def __init__(self, part: Callable[[int], Any], starts: npt.NDArray[np.int64]) -> None:
        self._part, self._starts, self.dtype = part, starts, part(0).dtype
        self.shape: tuple[int, ...] = (int(starts[-1]), *part(0).shape[1:])
        self.nbytes = prod(self.shape) * self.dtype.itemsize

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Any:
        """A row or a slice; for any other index, all rows are read first."""
        if isinstance(rows, int | np.integer):
            row = range(len(self))[rows]
            number = int(np.searchsorted(self._starts, row, side="right")) - 1
            return self._part(number)[row - int(self._starts[number])]
        if not isinstance(rows, slice) or rows.step not in (None, 1):
            return np.asarray(self)[rows]
        first, last, _ = rows.indices(len(self))
        start = int(np.searchsorted(self._starts, first, side="right")) - 1
        numbers = range(start, int(np.searchsorted(self._starts, last))) if first < last else ()
        places = [slice(max(0, first - at), last - at) for at in self._starts[[*numbers]].tolist()]
        parts = [self._part(number)[place] for number, place in zip(numbers, places, strict=True)]
        return parts[0] if len(parts) == 1 else np.concatenate([self._part(0)[:0], *parts])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.asarray(self[:], dtype)

    def reshape(self, *shape: int) -> JoinedRows:
        """With rows of another shape."""
        return JoinedRows(lambda number: self._part(number).reshape(-1, *shape[1:]), self._starts)


class _JoinedStore(VectorStore):
    """The stores of several files as one; only a few are open at a time."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self._shard = functools.lru_cache(_N_OPEN)(lambda n: VectorStore.open(shard_folder(folder, n)))
        offsets, starts, firsts = [np.zeros(1, np.int64)], [0], [0]
        for store in map(self._shard, range(manifest.shards)):
            is_same = store.fingerprint == manifest.model.fingerprint
            if not is_same or any(getattr(store.manifest, one) != getattr(manifest, one) for one in _SHARED):
                raise DataError(f"{store.folder} does not match {folder / MANIFEST}.", remedy=_FRESH)
            firsts.append(firsts[-1] + len(store))
            offsets.append(store.offsets[1:] + starts[-1])
            starts.append(starts[-1] + len(store.vectors))
        if (firsts[-1], starts[-1]) != (manifest.n_texts, manifest.n_vectors):
            raise DataError(f"The shards in {folder} do not match {MANIFEST}.", remedy=_FRESH)
        joined: Any = JoinedRows(lambda number: self._shard(number).vectors, np.array(starts))
        super().__init__(folder, manifest, Ragged(joined, np.concatenate(offsets)))
        self._firsts = firsts

    def record(self, index: int) -> StoredText:
        """Id, text and words of one text."""
        index = range(len(self))[index]
        number = int(np.searchsorted(self._firsts, index, side="right")) - 1
        return self._renumber(self._shard(number).record(index - int(self._firsts[number])), index)

    def records(self) -> Iterator[StoredText]:
        """Id, text and words of all texts, in order, streaming."""
        stores = map(self._shard, range(self.manifest.shards))
        records = itertools.chain.from_iterable(store.records() for store in stores)
        return (self._renumber(record, index) for index, record in enumerate(records))

    def verify(self) -> None:
        """Compare every shard with its checksums, the first time."""
        for number in range(0 if self._is_verified else self.manifest.shards):
            self._shard(number).verify()
        self._is_verified = True

    def _renumber(self, record: StoredText, index: int) -> StoredText:
        return record if self.config.id_column else replace(record, id=str(index))


def array_header(format: str, dtype: str, shape: Sequence[int]) -> bytes:
    """The bytes before the numbers of an array: 128, or a multiple of it."""
    kind = np.dtype(dtype)
    if format == "npy":
        header = io.BytesIO()
        described = {"descr": kind.newbyteorder("<").str, "fortran_order": False, "shape": tuple(shape)}
        np.lib.format.write_array_header_1_0(header, described)
        return header.getvalue()
    code, offsets = {"float32": "F32", "float16": "F16"}[dtype], [0, kind.itemsize * prod(shape)]
    record = {"dtype": code, "shape": list(shape), "data_offsets": offsets}
    text = json.dumps({"vectors": record}, separators=(",", ":"))
    text += " " * (-(len(text) + 8) % 128)
    return struct.pack("<Q", len(text)) + text.encode()


def export_parquet(store: VectorStore, path: Path) -> None:
    """Write a Parquet table, streaming.

    Pooled texts: a row each, with the columns id, text and vector. Words: a row each, with id,
    position, word and vector. A vector is a list of floats or, with all layers, a list of such lists.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    is_pooled = store.config.pool != "none"
    vector = pa.list_(pa.list_(pa.float32())) if store.config.all_layers else pa.list_(pa.float32())
    named = {"id": pa.string(), "position": pa.int32(), "word": pa.string()}
    named = {"id": pa.string(), "text": pa.string()} if is_pooled else named
    schema = pa.schema([*named.items(), ("vector", vector)])
    # A dictionary of numbers pays only where they repeat, and there are few float16 numbers.
    dictionary: Any = True if store.config.dtype == "float16" else list(named)
    with (
        atomic_write(path) as temporary,
        open(temporary, "wb") as stream,
        pq.ParquetWriter(stream, schema, use_dictionary=dictionary) as file,
    ):
        for _, records, rows in store.groups(_EXPORT_ROWS):
            names: list[tuple[Any, ...]] = [(one.id, one.text) for one in records]
            if not is_pooled:
                names = [(one.id, place, word) for one in records for place, word in enumerate(one.words)]
            vectors = pa.array(np.asarray(rows, np.float32).reshape(-1))
            for width in reversed(rows.shape[1:]):
                ends = np.arange(0, len(vectors) + 1, width, dtype=np.int32)
                vectors = pa.ListArray.from_arrays(ends, vectors)
            columns = [*zip(*names, strict=True)] or [()] * len(named)
            file.write_table(pa.table([*map(list, columns), vectors], schema=schema))


def export_hdf5(store: VectorStore, path: Path) -> None:
    """Write an HDF5 file: ``vectors``, (n_vectors, [layer,] dim); ``offsets``, (n_texts + 1,); ``ids``."""
    names = [name.replace("\0", "\N{REPLACEMENT CHARACTER}") for name in store.ids]  # HDF5 would end there
    ids = np.array(names, dtype=require_h5py().string_dtype())
    arrays = {"vectors": store.vectors, "offsets": store.offsets, "ids": ids}
    n_bytes = store.vectors.nbytes + store.offsets.nbytes + sum(len(name.encode()) + 64 for name in names)
    write_arrays(path, arrays.items(), n_bytes)


def export_word2vec(store: VectorStore, path: Path) -> None:
    """Write pooled vectors as word2vec text: a line for each text, its id first."""
    with atomic_write(path) as temporary, open(temporary, "w", encoding="utf-8", newline="\n") as file:
        file.write(f"{len(store)} {store.dim}\n")
        for index, (name, row) in enumerate(zip(store.ids, store.vectors, strict=True)):
            if len(name.split()) != 1 or name.strip() != name:
                raise DataError(
                    f"Text {index} has the id {name!r}; in a word2vec file, an id is one word.",
                    remedy="Name another id_column, or export the vectors as hdf5 or parquet.",
                )
            file.write(f"{name} {' '.join(np.asarray(row, np.float32).astype(str))}\n")


WRITERS = {"parquet": export_parquet, "hdf5": export_hdf5, "word2vec": export_word2vec}
"""What writes a store in each of the formats ``EXPORTS``."""


def check_file(path: Path, header: bytes, n_bytes: int) -> None:
    """Refuse a file that does not begin with ``header`` or does not have ``n_bytes`` bytes in all."""
    try:
        with open(path, "rb") as file:
            start, size = file.read(len(header)), file.seek(0, os.SEEK_END)
    except OSError as error:
        raise DataError(f"Cannot read {path}: {error.strerror}.", remedy=_FRESH) from error
    if size != n_bytes:
        raise DataError(f"{path} has {size:,} bytes, but {MANIFEST} expects {n_bytes:,}.", remedy=_FRESH)
    if start != header:
        raise DataError(f"{path} does not match {MANIFEST}.", remedy=_FRESH)


def map_array(path: Path, header: bytes, dtype: str, shape: tuple[int, ...]) -> Any:
    """The array in a file that must have just this header and shape."""
    kind = np.dtype(dtype).newbyteorder("<")
    check_file(path, header, len(header) + kind.itemsize * prod(shape))
    if 0 in shape:  # nothing to map
        return np.empty(shape, dtype=dtype)
    return np.memmap(path, dtype=kind, mode="r", offset=len(header), shape=shape)
