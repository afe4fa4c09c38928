"""``VectorStore``: a folder that ``elmokit embed`` has made, read where it lies on disk."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar, cast, overload

import numpy as np
import numpy.typing as npt

from elmokit.core.errors import ConfigError, DataError
from elmokit.vectors.settings import StoreConfig
from elmokit.vectors.store_files import MANIFEST, OFFSETS, TEXTS, header, read_manifest, row_bytes

__all__ = ["StoredText", "VectorStore"]

T = TypeVar("T")
Reals = npt.NDArray[np.floating[Any]]
_FRESH = "Files are damaged or do not belong together; take a fresh copy, or embed the texts again."


@dataclass(frozen=True)
class StoredText:
    """A text of an embedded folder.

    Attributes:
        id: from the id column, or its number from 0.
        text: as it was read.
        words: as the model saw them.
    """

    id: str
    text: str
    words: list[str]


class VectorStore:
    """The vectors of many texts, memory-mapped: opening takes no time and no memory.

    >>> store = VectorStore.open("news-vectors")        # doctest: +SKIP
    >>> store[5], store.texts[5], store.ids[5]          # doctest: +SKIP

    ``len(store)`` is the number of texts. ``store[i]`` is the vectors of one text, (n_words, dim), or,
    if texts were pooled, its one vector, (dim,); with all layers (..., layer, dim).

    Attributes:
        folder: where it lies.
        manifest: what it is made of: model, settings, counts.
        config: which vectors were kept.
        vectors: all of them, one after the other, read-only; (n_vectors, dim) or (n_vectors, layer, dim).
        offsets: text i is ``vectors[offsets[i]:offsets[i + 1]]``, (n_texts + 1,).
    """

    def __init__(
        self,
        folder: Path,
        manifest: dict[str, Any],
        config: StoreConfig,
        vectors: Reals,
        offsets: npt.NDArray[np.int64],
    ) -> None:
        self.folder, self.manifest, self.config = folder, manifest, config
        self.vectors, self.offsets = vectors, offsets

    @classmethod
    def open(cls, folder: str | Path) -> VectorStore:
        """Open a finished folder. Anything missing, damaged, cut short or foreign is an error that
        says which file; nothing is allocated on a damaged file's word."""
        folder = Path(folder)
        manifest = read_manifest(folder)
        if manifest is None:
            raise DataError(
                f"{folder} holds no vectors: it has no {MANIFEST}."
                if folder.exists()
                else f"There is no folder {folder}.",
                remedy="Give a folder that elmokit embed has made.",
            )
        if manifest.get("done") is not True:
            raise DataError(
                f"The vectors in {folder} are not finished.",
                remedy="Run the same elmokit embed command again: it goes on where it was.",
            )
        try:
            config = StoreConfig.from_dict(manifest["settings"])
            counts = [manifest[name] for name in ("n_texts", "n_vectors", "layers", "dim", "texts_bytes")]
            if not all(type(count) is int and 0 <= count < 1 << 48 for count in counts):
                raise ValueError("a count is not a number")
            if not isinstance(manifest["model"]["fingerprint"], str):
                raise ValueError("the model has no fingerprint")
        except (KeyError, TypeError, ValueError, ConfigError) as error:
            raise DataError(f"{folder / MANIFEST} is damaged: {error!r}.", remedy=_FRESH) from error
        n_texts, n_vectors, n_layers, dim, texts_bytes = counts
        shape = (n_vectors, n_layers, dim) if config.all_layers else (n_vectors, dim)
        vectors = _mapped(folder / f"vectors.{config.format}", config.format, config.dtype, shape)
        offsets = _mapped(folder / OFFSETS, "npy", "int64", (n_texts + 1,))
        if offsets[0] != 0 or offsets[-1] != n_vectors or bool((offsets[1:] < offsets[:-1]).any()):
            raise DataError(
                f"{folder / OFFSETS} does not lead from 0 to {n_vectors}, always upwards.", remedy=_FRESH
            )
        if config.pool != "none" and n_vectors != n_texts:
            raise DataError(f"{folder / MANIFEST} is damaged: not one vector per text.", remedy=_FRESH)
        _check_size(folder / TEXTS, texts_bytes)
        return cls(folder, manifest, config, vectors, offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> Reals:
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        index %= len(self)
        if self.config.pool != "none":
            return cast(Reals, self.vectors[index])
        return self.vectors[int(self.offsets[index]) : int(self.offsets[index + 1])]

    @property
    def dim(self) -> int:
        """Width of a vector."""
        return int(self.vectors.shape[-1])

    @property
    def fingerprint(self) -> str:
        """The mark of the model that made the vectors."""
        return str(self.manifest["model"]["fingerprint"])

    @cached_property
    def ids(self) -> list[str]:
        """The id of each text."""
        return [record.id for record in self.records()]

    @cached_property
    def texts(self) -> Sequence[str]:
        """The texts as they were read, each fetched from disk when it is asked for."""
        return _Column(self, lambda record: record.text)

    @cached_property
    def words(self) -> Sequence[list[str]]:
        """The words of each text, fetched from disk when they are asked for."""
        return _Column(self, lambda record: record.words)

    def record(self, index: int) -> StoredText:
        """Id, text and words of one text."""
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        index %= len(self)
        with open(self.folder / TEXTS, "rb") as file:
            file.seek(self._line_starts[index])
            return self._parsed(file.readline(), index)

    def records(self, first: int = 0) -> Iterator[StoredText]:
        """Id, text and words of all texts from ``first`` on, in order, streaming."""
        index = -1
        with open(self.folder / TEXTS, "rb") as file:
            for index, line in enumerate(file):
                if index >= first:
                    yield self._parsed(line, index)
        if index + 1 != len(self):
            raise self._damaged(index + 1)

    def groups(self, n_vectors: int) -> Iterator[tuple[int, list[StoredText], Reals]]:
        """All texts in order, about ``n_vectors`` vectors at a time: the number of the first text of a
        group, its texts, and their vectors one after the other."""

        def group(first: int, records: list[StoredText]) -> tuple[int, list[StoredText], Reals]:
            last = first + len(records)
            return first, records, self.vectors[int(self.offsets[first]) : int(self.offsets[last])]

        first, records = 0, list[StoredText]()
        for index, record in enumerate(self.records()):
            if records and self.offsets[index + 1] - self.offsets[first] > n_vectors:
                yield group(first, records)
                first, records = index, []
            records.append(record)
        if records:
            yield group(first, records)

    @cached_property
    def _line_starts(self) -> array[int]:
        starts = array("q")
        place = 0
        with open(self.folder / TEXTS, "rb") as file:
            for line in file:
                starts.append(place)
                place += len(line)
        if len(starts) != len(self):
            raise self._damaged(len(starts))
        return starts

    def _parsed(self, line: bytes, index: int) -> StoredText:
        try:
            record = json.loads(line)
            words = [str(word) for word in record["words"]]
            if self.config.pool == "none" and len(words) != self.offsets[index + 1] - self.offsets[index]:
                raise ValueError("another number of words than vectors")
            return StoredText(str(record["id"]), str(record["text"]), words)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise DataError(
                f"{self.folder / TEXTS}, line {index + 1}: damaged ({error}).", remedy=_FRESH
            ) from error

    def _damaged(self, n_lines: int) -> DataError:
        return DataError(
            f"{self.folder / TEXTS} has {n_lines} lines, {MANIFEST} says {len(self)}.", remedy=_FRESH
        )


class _Column(Sequence[T], Generic[T]):
    """One field of all texts, fetched when asked for."""

    def __init__(self, store: VectorStore, field: Any) -> None:
        self._store, self._field = store, field

    def __len__(self) -> int:
        return len(self._store)

    def __iter__(self) -> Iterator[T]:
        return map(self._field, self._store.records())

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> list[T]: ...

    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        return cast(T, self._field(self._store.record(index)))


def _mapped(path: Path, format: Any, dtype: str, shape: tuple[int, ...]) -> Any:
    """The array in a file that must begin with just the right header and have just the right size."""
    head = header(format, dtype, shape)
    _check_size(path, len(head) + shape[0] * row_bytes(dtype, shape))
    try:
        with open(path, "rb") as file:
            found = file.read(len(head))
    except OSError as error:
        raise DataError(f"Cannot read {path}: {error.strerror}.") from error
    if found != head:
        raise DataError(f"{path} is not the array of shape {shape} that {MANIFEST} promises.", remedy=_FRESH)
    if 0 in shape:  # nothing to map
        return np.empty(shape, dtype=dtype)
    return np.memmap(path, dtype=np.dtype(dtype).newbyteorder("<"), mode="r", offset=len(head), shape=shape)


def _check_size(path: Path, wanted: int) -> None:
    try:
        size = path.stat().st_size
    except OSError as error:
        raise DataError(f"{path} is missing.", remedy=_FRESH) from error
    if size != wanted:
        raise DataError(f"{path} has {size:,} bytes where {MANIFEST} asks for {wanted:,}.", remedy=_FRESH)
