"""Files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from elmokit.core.errors import ModelError, RunError

__all__ = [
    "STAGED",
    "explaining",
    "load_tensors",
    "reserve",
    "save_tensors",
    "saving",
    "staging",
    "sync",
    "write_text",
]

STAGED = ".saving"
"""Where the files of a folder lie until all are written."""


@contextlib.contextmanager
def explaining(path: Path) -> Iterator[None]:
    """Turn whatever the system says about writing ``path`` into an error that helps."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        text = getattr(error, "strerror", None) or str(error)
        full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) or any(
            sign in str(error) for sign in ("No space left", "File too large", "quota")
        )
        raise RunError(
            f"Cannot write {path}: {'the disk is full' if full else text}.",
            remedy="What was saved before is untouched. "
            + ("Free some space" if full else "Make the folder writable")
            + " and run the same command again: it goes on from there.",
        ) from error


@contextlib.contextmanager
def saving(path: Path) -> Iterator[Path]:
    """A temporary name to write to; what was written is synced and renamed to ``path`` at the end.

    Whatever goes wrong, ``path`` keeps what it had, and the error says what to do.
    """
    temporary = path.with_name(f".{path.name}.new")
    try:
        with explaining(path):
            yield temporary
            sync(temporary)
            os.replace(temporary, path)
        with contextlib.suppress(OSError):  # some systems cannot sync a folder
            sync(path.parent)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def staging(folder: Path, last: str, *, gone: Iterable[str] = ()) -> Iterator[Path]:
    """A place to write the files of a model folder to; at the end each goes to its place in ``folder``.

    The file ``last`` goes first and comes last, so a folder that was cut short is never taken for a model;
    files named in ``gone`` do not outlive it.
    """
    staged = folder / STAGED
    with explaining(folder):
        shutil.rmtree(staged, ignore_errors=True)
        staged.mkdir(parents=True)
    try:
        yield staged
        with explaining(folder):
            for name in (last, *gone):
                (folder / name).unlink(missing_ok=True)
            for name in (*(file.name for file in staged.iterdir() if file.name != last), last):
                os.replace(staged / name, folder / name)
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def sync(path: Path) -> None:
    """Have a file or folder written through to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def reserve(path: Path) -> None:
    """Take the disk space of a whole file now: a disk that is full says so here, not halfway."""
    if hasattr(os, "posix_fallocate"):
        with open(path, "r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with saving(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def save_tensors(path: Path, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
    """Write tensors and a JSON record in one safetensors file, atomically."""
    flat = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    with saving(path) as temporary:
        save_file(flat, temporary, metadata={"meta": json.dumps(meta)})


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what ``save_tensors`` wrote."""
    try:
        with safe_open(path, framework="pt") as file:
            record = json.loads((file.metadata() or {}).get("meta", "{}"))
            return {name: file.get_tensor(name) for name in file.keys()}, record  # noqa: SIM118
    except (OSError, SafetensorError, ValueError, UnicodeDecodeError) as error:
        raise ModelError(
            f"{path} cannot be read as a safetensors file: {error}.",
            remedy="The file is cut off, damaged or foreign; take a fresh copy of the folder.",
        ) from error
