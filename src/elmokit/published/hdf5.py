"""Arrays out of an HDF5 file and into one, with a guard: a file cannot make us hold more than it holds.

A tiny file can declare a dataset of any shape. So before anything is read, what is stored is compared
with what is declared and with the size of the file; links, and data in other files, are never followed.
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

from elmokit.core.atomic import reserve, saving
from elmokit.core.errors import MissingExtraError, ModelError

__all__ = ["PICKLED", "ArrayFile", "open_arrays", "require_h5py", "write_arrays"]

PICKLED = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
"""How pickles begin."""
_SAVED = (*PICKLED, b"PK\x03\x04")  # and what torch.save makes
_PACKED = 8  # numbers that look random pack badly; a file that unpacks to more than this is no model
_FRESH = "The file is cut off, damaged or foreign; take a fresh copy of it."
_OWN = "Take a file that holds its own numbers."
_OVERHEAD = 1 << 20  # bytes of names and places in a file that is written, and some more


def require_h5py() -> Any:
    """The package ``h5py``, or an error that names the extra."""
    try:
        import h5py
    except ImportError as error:
        raise MissingExtraError("h5py", "official", "Reading and writing HDF5 files") from error
    return h5py


class ArrayFile:
    """An open HDF5 file.

    Args:
        path: for messages.
        file: the ``h5py.File``.
    """

    def __init__(self, path: Path, file: Any) -> None:
        self.path = path
        self._h5py, self._file = require_h5py(), file
        self._size = path.stat().st_size
        self._n_bytes = 0

    def names(self, group: str = "/") -> list[str]:
        """What stands in a group, datasets and groups; nothing if there is no such group."""
        found = self._found(group)
        return list(found) if isinstance(found, self._h5py.Group) else []

    def shape(self, name: str) -> tuple[int, ...] | None:
        """The shape a dataset declares; None if there is no such dataset."""
        found = self._found(name)
        return tuple(found.shape or ()) if isinstance(found, self._h5py.Dataset) else None

    def read(self, name: str) -> npt.NDArray[np.float32]:
        """A dataset of numbers, as float32."""
        dataset = self._checked(name)
        if dataset.dtype.kind != "f":
            raise ModelError(
                f"{self.path}: {name} holds {dataset.dtype} values, not floating-point numbers.",
                remedy=_FRESH,
            )
        values = np.empty(dataset.shape, dtype=np.float32)
        try:
            if dataset.size:
                dataset.read_direct(values)
        except (OSError, RuntimeError) as error:
            raise ModelError(f"{self.path}: {name} cannot be read: {error}.", remedy=_FRESH) from error
        if not math.isfinite(values.sum(dtype=np.float64)):
            raise ModelError(f"{self.path}: {name} holds numbers that are not finite.", remedy=_FRESH)
        return values

    def read_json(self, name: str) -> Any:
        """What a dataset that holds JSON in one string says."""
        dataset = self._checked(name)
        try:
            value = dataset[()] if dataset.shape == () else dataset[0]
            return json.loads(value)
        except (OSError, RuntimeError, TypeError, ValueError, IndexError) as error:
            raise ModelError(f"{self.path}: {name} is not JSON text: {error}.", remedy=_FRESH) from error

    def _found(self, name: str) -> Any:
        """The object of this name, if it is in this file. Links are not followed: even one within the
        file can lead through another to a second file."""
        place = self._file
        for part in name.strip("/").split("/") if name.strip("/") else []:
            if not isinstance(place, self._h5py.Group):
                return None
            try:
                link = place.get(part, getlink=True)
                if link is None:
                    return None
                if isinstance(link, self._h5py.ExternalLink):
                    raise ModelError(
                        f"{self.path}: {name} lies in another file ({link.filename}), "
                        f"and files are not followed.",
                        remedy=_OWN,
                    )
                if not isinstance(link, self._h5py.HardLink):
                    raise ModelError(
                        f"{self.path}: {name} is a link to another place, and links are not followed.",
                        remedy=_OWN,
                    )
                place = place.get(part)
            except (OSError, RuntimeError, ValueError) as error:
                raise ModelError(f"{self.path}: {name} cannot be read: {error}.", remedy=_FRESH) from error
        return place

    def _checked(self, name: str) -> Any:
        """The dataset, once it is clear that the file holds what it declares."""
        dataset = self._found(name)
        if not isinstance(dataset, self._h5py.Dataset):
            raise ModelError(f"{self.path} lacks the dataset {name}.", remedy=_FRESH)
        if dataset.external or dataset.is_virtual:
            raise ModelError(
                f"{self.path}: {name} lies in another file, and files are not followed.",
                remedy=_OWN,
            )
        n_stored, n_declared = dataset.id.get_storage_size(), int(dataset.nbytes)
        self._n_bytes += n_declared
        packed = dataset.chunks is not None and dataset.id.get_create_plist().get_nfilters() > 0
        most = _PACKED * n_stored if packed else n_stored
        if n_declared > most or n_stored > self._size or self._n_bytes > _PACKED * self._size:
            raise ModelError(
                f"{self.path}: {name} declares shape {tuple(dataset.shape)}, {n_declared:,} bytes, "
                f"but the file holds {min(n_stored, self._size):,} bytes for it.",
                remedy=_FRESH,
            )
        # A chunk is unpacked as a whole, even where the dataset needs a corner of it.
        n_chunk = math.prod(dataset.chunks or ()) * dataset.dtype.itemsize
        if n_chunk > max(_PACKED * self._size, n_declared):
            raise ModelError(
                f"{self.path}: {name} is stored in chunks of shape {tuple(dataset.chunks)}, {n_chunk:,} "
                f"bytes each, but the whole file is {self._size:,} bytes.",
                remedy=_FRESH,
            )
        return dataset


@contextlib.contextmanager
def open_arrays(path: Path) -> Iterator[ArrayFile]:
    """Open an HDF5 file, or say plainly what the file is instead."""
    h5py = require_h5py()
    try:
        with open(path, "rb") as stream:
            head = stream.read(8)
    except OSError as error:
        raise ModelError(
            f"Cannot read {path}: {error.strerror}.", remedy="Check the name and the folder."
        ) from error
    if head.startswith(_SAVED):
        raise ModelError(
            f"{path} is not an HDF5 file but looks like a pickle, which can run any code and is not loaded.",
            remedy="Take the weights in HDF5: weights.hdf5 beside options.json.",
        )
    try:
        file = h5py.File(path, "r", locking=False)
    except (OSError, ValueError) as error:
        cut = "truncated" in str(error)
        raise ModelError(
            f"{path} {'is cut off' if cut else 'is not a readable HDF5 file'}: {error}.", remedy=_FRESH
        ) from error
    with file:
        yield ArrayFile(path, file)


def write_arrays(path: Path, arrays: Iterable[tuple[str, npt.NDArray[np.float32]]], n_bytes: int) -> None:
    """Write arrays by name ("group/name"), ``n_bytes`` together, into an HDF5 file, whole or not at all."""
    h5py = require_h5py()
    with saving(path) as temporary:
        temporary.touch()
        os.truncate(temporary, n_bytes + _OVERHEAD)
        reserve(temporary)  # on a disk that fills up while it writes, the HDF5 library can crash
        with h5py.File(temporary, "w") as file:
            for name, values in arrays:
                file.create_dataset(name, data=np.ascontiguousarray(values, dtype=np.float32))
