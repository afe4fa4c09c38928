"""Read and write arrays in HDF5 files.

A tiny file can declare a dataset of any shape. So before a dataset is read, its declared size is compared
with what is stored and with the size of the file. Links, and data in other files, are never followed.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from elmokit.core.atomic import atomic_write, reserve
from elmokit.core.errors import MissingExtraError, ModelError

PICKLE_STARTS = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
FRESH_FILE = "The file is truncated, damaged or not a model's; download it again."
_ZIP_START = b"PK\x03\x04"  # what torch.save writes
_MAX_RATIO = 8  # of compression; weights look random and compress badly
_OWN = "Use a file that contains its own numbers."
_OVERHEAD = 1 << 20  # bytes of a file besides its arrays


def require_h5py() -> Any:
    """The package ``h5py``, or an error that names the extra."""
    try:
        import h5py
    except ImportError as error:
        raise MissingExtraError("h5py", "official", "Reading and writing HDF5 files") from error
    return h5py


class ArrayFile:
    """An open ``h5py.File``."""

    def __init__(self, path: Path, file: Any) -> None:
        self.path = path
        self._h5py, self._file = require_h5py(), file
        self._size = path.stat().st_size
        self._n_bytes = 0  # declared by all datasets read so far

    def names(self, group: str = "/") -> list[str]:
        """Datasets and groups in a group; none if there is no such group."""
        item = self._object(group)
        return list(item) if isinstance(item, self._h5py.Group) else []

    def shape(self, name: str) -> tuple[int, ...] | None:
        """The shape that a dataset declares; None if there is no such dataset."""
        item = self._object(name)
        return tuple(item.shape or ()) if isinstance(item, self._h5py.Dataset) else None

    def read(self, name: str) -> npt.NDArray[np.float32]:
        """A dataset of floating-point numbers, as float32."""
        dataset = self._dataset(name)
        if dataset.dtype.kind != "f":
            raise self._error(name, f"holds {dataset.dtype} values, not floating-point numbers")
        values = np.empty(dataset.shape, dtype=np.float32)
        with self._explain_errors(name):
            if dataset.size:
                dataset.read_direct(values)
        if not math.isfinite(values.sum(dtype=np.float64)):
            raise self._error(name, "holds numbers that are not finite")
        return values

    def read_json(self, name: str) -> Any:
        """The value of a dataset that is a JSON string."""
        dataset = self._dataset(name)
        with self._explain_errors(name):
            return json.loads(dataset[()] if dataset.shape == () else dataset[0])

    def _error(self, name: str, problem: str, remedy: str = FRESH_FILE) -> ModelError:
        return ModelError(f"{self.path}: {name} {problem}.", remedy=remedy)

    @contextlib.contextmanager
    def _explain_errors(self, name: str) -> Iterator[None]:
        try:
            yield
        except (OSError, RuntimeError, TypeError, ValueError, IndexError) as error:
            raise self._error(name, f"cannot be read: {error}") from error

    def _object(self, name: str) -> Any:
        """The group or dataset of this name, or None. Links are not followed: even one within the file
        can lead through another to a second file."""
        item = self._file
        for part in filter(None, name.split("/")):
            if not isinstance(item, self._h5py.Group):
                return None
            with self._explain_errors(name):
                link = item.get(part, getlink=True)
                item = item.get(part) if isinstance(link, self._h5py.HardLink) else None
            if isinstance(link, self._h5py.ExternalLink):
                raise self._error(name, f"is in another file ({link.filename}), which is not opened", _OWN)
            if isinstance(link, self._h5py.SoftLink):
                raise self._error(name, "is a link to another place, and links are not followed", _OWN)
        return item

    def _dataset(self, name: str) -> Any:
        """The dataset, after checking that the file is as large as it declares."""
        dataset = self._object(name)
        if not isinstance(dataset, self._h5py.Dataset):
            raise self._error(name, "is missing")
        if dataset.external or dataset.is_virtual:
            raise self._error(name, "is in another file, which is not opened", _OWN)
        n_stored, n_declared = dataset.id.get_storage_size(), int(dataset.nbytes)
        self._n_bytes += n_declared
        is_compressed = dataset.chunks is not None and dataset.id.get_create_plist().get_nfilters() > 0
        most = _MAX_RATIO * n_stored if is_compressed else n_stored
        if n_declared > most or n_stored > self._size or self._n_bytes > _MAX_RATIO * self._size:
            problem = f"declares shape {tuple(dataset.shape)}, {n_declared:,} bytes, but the file holds "
            raise self._error(name, f"{problem}{min(n_stored, self._size):,} bytes for it")
        # A chunk is decompressed as a whole, even if the dataset needs only a corner of it.
        n_chunk = math.prod(dataset.chunks or ()) * dataset.dtype.itemsize
        if n_chunk > max(_MAX_RATIO * self._size, n_declared):
            problem = f"is stored in chunks of shape {tuple(dataset.chunks)}, {n_chunk:,} bytes each, "
            raise self._error(name, f"{problem}but the whole file is {self._size:,} bytes")
        return dataset


@contextlib.contextmanager
def open_arrays(path: Path) -> Iterator[ArrayFile]:
    """Open an HDF5 file, or raise an error that says what the file is instead."""
    h5py = require_h5py()
    try:
        with open(path, "rb") as stream:
            head = stream.read(8)
    except OSError as error:
        raise ModelError(f"Cannot read {path}: {error.strerror}.", remedy="Check the path.") from error
    if head.startswith((*PICKLE_STARTS, _ZIP_START)):
        raise ModelError(
            f"{path} is not an HDF5 file but looks like a pickle, which can run any code and is not loaded.",
            remedy="Use weights in HDF5: weights.hdf5 beside options.json.",
        )
    try:
        file = h5py.File(path, "r", locking=False)
    except (OSError, ValueError) as error:
        problem = "is truncated" if "truncated" in str(error) else "is not a readable HDF5 file"
        raise ModelError(f"{path} {problem}: {error}.", remedy=FRESH_FILE) from error
    with file:
        yield ArrayFile(path, file)


def write_arrays(path: Path, arrays: Iterable[tuple[str, npt.NDArray[np.float32]]], n_bytes: int) -> None:
    """Write arrays by name ("group/name"), ``n_bytes`` in total, into an HDF5 file, atomically."""
    h5py = require_h5py()
    with atomic_write(path) as temporary:
        temporary.touch()
        os.truncate(temporary, n_bytes + _OVERHEAD)
        reserve(temporary)  # the HDF5 library can crash if the disk fills up while it writes
        with h5py.File(temporary, "w") as file:
            for name, values in arrays:
                file.create_dataset(name, data=np.ascontiguousarray(values, dtype=np.float32))
