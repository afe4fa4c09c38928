"""Tensors on disk: safetensors files in and out, a strict check of names and shapes, one fingerprint."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from elmokit.core.atomic import atomic_write
from elmokit.core.errors import FRESH, ModelError


def save_tensors(path: Path, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
    """Write tensors and a JSON record in one safetensors file, atomically."""
    flat = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    with atomic_write(path) as temporary:
        save_file(flat, temporary, metadata={"meta": json.dumps(meta)})


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what ``save_tensors`` wrote."""
    try:
        plain = not re.search("[\ud800-\udfff]", str(path))  # safetensors takes no other names
        with open(path, "rb") as raw, safe_open(path if plain else f"/dev/fd/{raw.fileno()}", "pt") as file:
            record = json.loads((file.metadata() or {}).get("meta", "{}"))
            return {name: file.get_tensor(name) for name in file.keys()}, record  # noqa: SIM118
    except (OSError, SafetensorError, ValueError, UnicodeDecodeError) as error:
        raise ModelError(
            f"{path} cannot be read as a safetensors file: {error}.",
            remedy="The file is truncated, damaged or of another kind; take a fresh copy of the folder.",
        ) from error


def load_weights(file: Path, expected: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The finite numbers of a file, which must have the names and shapes of ``expected``, as float32."""
    tensors, _ = load_tensors(file)
    check_tensors(file, expected, tensors)
    return {name: check_numbers(file, name, tensor) for name, tensor in tensors.items()}


def check_numbers(file: Path, name: str, tensor: Tensor) -> Tensor:
    """The tensor in single precision; ModelError unless it holds finite floating-point numbers."""
    numbers = tensor.float()
    if not tensor.is_floating_point():
        problem = f"{name} has the type {tensor.dtype}, which weights cannot have"
    elif not numbers.isfinite().all():
        problem = f"{name} holds numbers that are not finite"
    else:
        return numbers
    raise ModelError(f"{file}: {problem}.", remedy=FRESH)


def check_tensors(file: Path, expected: Mapping[str, Tensor], actual: Mapping[str, Tensor]) -> None:
    """Raise ModelError unless ``actual`` has exactly the names and shapes of ``expected``."""
    for name in expected:
        if name not in actual:
            raise ModelError(f"{file} lacks the tensor {name}.", remedy=FRESH)
    for name, tensor in actual.items():
        if name not in expected:
            raise ModelError(f"{file} has an unexpected tensor {name}.", remedy=FRESH)
        if tensor.shape != expected[name].shape:
            raise ModelError(
                f"{file}: {name} has shape {tuple(tensor.shape)}, "
                f"but config.json requires {tuple(expected[name].shape)}.",
                remedy=FRESH,
            )


def fingerprint(*parts: Tensor | npt.NDArray[Any] | str | bytes | Mapping[str, Any]) -> str:
    """A hash of 32 hex digits that changes when any part does.

    Parts are hashed one after the other without separators: numbers as they are in memory, strings as UTF-8,
    mappings as JSON with sorted keys. Pass names and lengths as parts of their own where borders matter.
    """
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        if isinstance(part, Mapping):
            part = json.dumps(part, sort_keys=True)
        if isinstance(part, Tensor):
            part = part.detach().contiguous().numpy()
        if isinstance(part, str):
            digest.update(part.encode("utf-8", "replace"))
        elif isinstance(part, np.ndarray):
            digest.update(np.ascontiguousarray(part).data)
        else:
            digest.update(part)
    return digest.hexdigest()
