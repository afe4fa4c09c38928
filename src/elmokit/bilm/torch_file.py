"""Tensors out of a file that ``torch.save`` wrote, without running what a pickle can hold.

Such a file is a pickle with the tensors' numbers behind it. ``torch.load(weights_only=True)`` reads it with
an unpickler that knows tensors and dictionaries and calls nothing else. Before that, the sizes it declares
are compared with the size of the file.
"""

from __future__ import annotations

import pickle
import pickletools
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

import torch
from torch import Tensor

from elmokit.errors import ModelError

__all__ = ["read_state_dict"]

_FRESH = "The file is cut off, damaged or foreign; take a fresh copy of it."
_HEAD = 3  # pickles in front of the old format's own: magic number, version, machine
_LONGEST = 1 << 26  # bytes of a pickle that only names tensors


def read_state_dict(path: Path) -> dict[str, Tensor]:
    """The tensors of a state dictionary, by name, as float32."""
    try:
        size = path.stat().st_size
        with open(path, "rb") as stream:
            largest = max(_declared(stream, size), default=0)
        if largest > size:
            raise ModelError(
                f"{path} declares a size of {largest:,}, but the whole file is {size:,} bytes.", remedy=_FRESH
            )
        found = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise ModelError(
            f"Cannot read {path}: {error.strerror or error}.", remedy="Check the name and the folder."
        ) from error
    except ModelError:
        raise
    except pickle.UnpicklingError as error:
        raise ModelError(
            f"{path} is a pickle that holds more than tensors, which could run any code; it was not loaded.",
            remedy="Only plain state dictionaries are read. If you trust the file, save its tensors anew.",
        ) from error
    except Exception as error:  # a damaged file makes the library raise whatever its place gives
        raise ModelError(f"{path} cannot be read as saved tensors: {error!r}.", remedy=_FRESH) from error
    if not isinstance(found, Mapping) or not all(
        isinstance(name, str) and isinstance(value, Tensor) for name, value in found.items()
    ):
        raise ModelError(f"{path} does not hold a dictionary of tensors.", remedy=_FRESH)
    n_bytes = sum(tensor.numel() * tensor.element_size() for tensor in found.values())
    if n_bytes > size:
        raise ModelError(
            f"{path} declares tensors of {n_bytes:,} bytes, but the whole file is {size:,} bytes.",
            remedy=_FRESH,
        )
    tensors = {name: tensor.detach().float().contiguous() for name, tensor in found.items()}
    for name, tensor in tensors.items():
        if not torch.isfinite(tensor.double().sum()):
            raise ModelError(f"{path}: {name} holds numbers that are not finite.", remedy=_FRESH)
    return tensors


def _declared(stream: IO[bytes], size: int) -> Iterator[int]:
    """Every number that a pickle of tensors declares: lengths, offsets, shapes. Nothing is unpickled."""
    if zipfile.is_zipfile(stream):
        with zipfile.ZipFile(stream) as archive:
            for entry in archive.infolist():
                yield entry.file_size
                if entry.compress_type != zipfile.ZIP_STORED:
                    raise ValueError("a compressed part")
            for entry in archive.infolist():
                if entry.filename.endswith("/data.pkl") and entry.file_size <= min(_LONGEST, size):
                    yield from _numbers(archive.read(entry))
        return
    stream.seek(0)
    for place in range(_HEAD + 1):
        numbers = list(_numbers(stream))
        if place == _HEAD:
            yield from numbers


def _numbers(pickled: IO[bytes] | bytes) -> Iterator[int]:
    for opcode, value, _ in pickletools.genops(pickled):
        if isinstance(value, int) and ("INT" in opcode.name or "LONG" in opcode.name):
            yield value
