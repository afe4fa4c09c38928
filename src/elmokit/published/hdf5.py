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
from elmokit.core.errors import ModelError, import_extra

FRESH_FILE = "The file is truncated, damaged or not a model's; download it again."
_MAX_RATIO = 8  # of compression; weights look random and compress badly
_ROWS = 4096  # written at a time, of arrays that are in several files
_OVERHEAD = 1 << 20  # bytes of a file besides its arrays


def require_h5py() -> Any:
    """The package ``h5py``, or an error that names the extra."""
    return import_extra("h5py", "official", "Reading and writing HDF5 files")


class ArrayFile:
    """An open ``h5py.File``."""

    def __init__(self, path: Path, file: Any) -> None:
        self.path, self._file = path, file
        self.shapes: dict[str, tuple[int, ...]] = {}  # as declared, by "group/name"; links are left out

        def add(name: str, item: Any) -> None:
            if hasattr(item, "shape"):
                self.shapes[name] = tuple(item.shape or ())

        with self._explain_errors("/"):
            file.visititems(add)

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

    def _dataset(self, name: str) -> Any:
        """The dataset, after checking that the file is as large as it declares."""
        dataset = self._file[name]
        if dataset.external or dataset.is_virtual:
            raise self._error(name, "is in another file, which is not opened")
        n_stored = min(dataset.id.get_storage_size(), self.path.stat().st_size)
        # A chunk is decompressed as a whole, even if the dataset needs only a corner of it.
        n_chunk = math.prod(dataset.chunks or (0,)) * dataset.dtype.itemsize
        if (n_declared := max(dataset.nbytes, n_chunk)) > _MAX_RATIO * n_stored:
            problem = f"declares shape {dataset.shape} and chunks {dataset.chunks}, {n_declared:,} bytes"
            raise self._error(name, f"{problem}, but the file holds {n_stored:,} bytes for it")
        return dataset

    def _error(self, name: str, problem: str) -> ModelError:
        return ModelError(f"{self.path}: {name} {problem}.", remedy=FRESH_FILE)

    @contextlib.contextmanager
    def _explain_errors(self, name: str) -> Iterator[None]:
        try:
            yield
        except (OSError, RuntimeError, TypeError, ValueError, OverflowError, IndexError, KeyError) as error:
            raise self._error(name, f"cannot be read: {error}") from error


@contextlib.contextmanager
def open_arrays(path: Path) -> Iterator[ArrayFile]:
    """Open an HDF5 file."""
    h5py = require_h5py()
    try:
        file = h5py.File(path, "r", locking=False)
    except (OSError, ValueError) as error:
        problem = "is truncated" if "truncated" in str(error) else "is not a readable HDF5 file"
        raise ModelError(f"{path} {problem}: {error}.", remedy=FRESH_FILE) from error
    with file:
        yield ArrayFile(path, file)


def write_arrays(path: Path, arrays: Iterable[tuple[str, Any]], n_bytes: int) -> None:
    """Write arrays by name ("group/name"), ``n_bytes`` in total, into an HDF5 file, atomically."""
    h5py = require_h5py()
    with atomic_write(path) as temporary:
        temporary.touch()
        os.truncate(temporary, n_bytes + _OVERHEAD)
        reserve(temporary)  # the HDF5 library can crash if the disk fills up while it writes
        with h5py.File(temporary, "w") as file:
            for name, values in arrays:
                if isinstance(values, np.ndarray):
                    file.create_dataset(name, data=values)
                    continue
                dataset = file.create_dataset(name, values.shape, values.dtype)  # rows of several files
                for first in range(0, len(values), _ROWS):
                    dataset[first : first + _ROWS] = values[first : first + _ROWS]
