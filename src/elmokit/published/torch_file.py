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

from elmokit.core.errors import ModelError

__all__ = ["read_state_dict"]

_FRESH = "The file is cut off, damaged or foreign; take a fresh copy of it."
_HEAD = 3  # pickles in front of the old format's own: magic number, version, machine
_ZIP = b"PK\x03\x04"
_WIDER = 4  # times: from one byte a number to four
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
        isinstance(name, str) and isinstance(value, Tensor) and _is_plain(value)
        for name, value in found.items()
    ):
        raise ModelError(f"{path} does not hold a dictionary of plain tensors.", remedy=_FRESH)
    # Tensors may share what is stored; those that must be laid out anew may not grow out of hand.
    n_bytes = sum(4 * tensor.numel() for tensor in found.values() if not _is_ready(tensor))
    if n_bytes > _WIDER * size:
        raise ModelError(
            f"{path} declares tensors of {n_bytes:,} bytes, but the whole file is {size:,} bytes.",
            remedy=_FRESH,
        )
    tensors = {name: tensor.detach().float().contiguous() for name, tensor in found.items()}
    for name, tensor in tensors.items():
        if not torch.isfinite(tensor.sum(dtype=torch.float64)):
            raise ModelError(f"{path}: {name} holds numbers that are not finite.", remedy=_FRESH)
    return tensors


def _is_plain(tensor: Tensor) -> bool:
    """Whether its numbers lie in memory as they are."""
    odd = tensor.is_quantized or tensor.is_nested or tensor.is_complex()
    return tensor.layout == torch.strided and tensor.device.type == "cpu" and not odd


def _is_ready(tensor: Tensor) -> bool:
    return tensor.dtype == torch.float32 and tensor.is_contiguous()


def _declared(stream: IO[bytes], size: int) -> Iterator[int]:
    """Every number that a pickle of tensors declares: lengths, offsets, shapes. Nothing is unpickled."""
    head = stream.read(len(_ZIP))
    stream.seek(0)
    if head == _ZIP:  # what the library itself goes by
        with zipfile.ZipFile(stream) as archive:
            entries = archive.infolist()
            n_bytes = sum(entry.file_size for entry in entries)  # together: entries can share their bytes
            yield n_bytes
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
                raise ValueError("a compressed part")
            for entry in entries:
                if entry.filename.endswith("/data.pkl") and n_bytes <= size:
                    if entry.file_size > _LONGEST:
                        raise ValueError(f"a pickle of {entry.file_size:,} bytes")
                    yield from _numbers(archive.read(entry))
        return
    for place in range(_HEAD + 1):
        numbers = list(_numbers(stream))
        if place == _HEAD:
            yield from numbers


def _numbers(pickled: IO[bytes] | bytes) -> Iterator[int]:
    for opcode, value, _ in pickletools.genops(pickled):
        if isinstance(value, int) and ("INT" in opcode.name or "LONG" in opcode.name):
            yield value
