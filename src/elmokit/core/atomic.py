"""Files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from safetensors import SafetensorError

from elmokit.core.errors import RunError

STAGED, REPLACED = ".saving", ".replaced"
"""Hold the new files of a folder until all are written, and the old ones until the new ones are in place."""


@contextlib.contextmanager
def explain_os_errors(path: Path) -> Iterator[None]:
    """Turn a system error while writing ``path`` into a RunError with a remedy."""
    try:
        yield
    except BrokenPipeError:  # the reader has seen enough
        raise
    except (OSError, SafetensorError) as error:
        full = any(sign in str(error) for sign in ("No space left", "File too large", "quota"))
        reason = "the disk is full" if full else getattr(error, "strerror", None) or str(error)
        remedy = (
            f"{'Free some space' if full else 'Make the folder writable'} and run the same command again."
        )
        if isinstance(error, IsADirectoryError):
            remedy = "Give the name of a file, not of a folder."
        raise RunError(f"Cannot write {path}: {reason}.", remedy=remedy) from error


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """A temporary path to write to; at the end the file is synced and renamed to ``path``.

    On any error ``path`` keeps what it had. It gets the permissions of any new file; safetensors alone would
    write for its owner only.
    """
    temporary = path.with_name(f".{path.name}.new")
    try:
        with explain_os_errors(path):
            temporary.touch()
            mode = temporary.stat().st_mode
            yield temporary
            temporary.chmod(mode)
            sync(temporary)
            os.replace(temporary, path)
        with contextlib.suppress(OSError):  # some systems cannot sync a folder
            sync(path.parent)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def staging(folder: Path, last: str, *, gone: Iterable[str] = ()) -> Iterator[Path]:
    """A place to write files and folders to; at the end each is moved to its place in ``folder``.

    The file ``last`` is removed first and arrives last, so that a folder that was cut short is never taken
    for a whole one. Old files that match a pattern in ``gone`` are removed. After an error everything is as
    it was before.
    """
    staged, replaced = folder / STAGED, folder / REPLACED
    with explain_os_errors(folder):
        shutil.rmtree(staged, ignore_errors=True)
        staged.mkdir(parents=True)
    moves: list[tuple[Path, Path]] = []
    try:
        yield staged
        with explain_os_errors(folder):
            shutil.rmtree(replaced, ignore_errors=True)
            replaced.mkdir()
            names = [*(new.name for new in staged.iterdir() if new.name != last), last]
            old = {*names, *(path.name for pattern in gone for path in folder.glob(pattern))} - {
                STAGED,
                REPLACED,
            }
            for name in sorted(old, key=lambda name: name != last):
                if os.path.lexists(folder / name):
                    _move(folder / name, replaced / name, moves)
            for name in names:
                _move(staged / name, folder / name, moves)
        moves.clear()
        with contextlib.suppress(OSError):
            sync(folder)
    finally:
        for source, target in reversed(moves):
            with contextlib.suppress(OSError):
                os.replace(target, source)
        shutil.rmtree(staged, ignore_errors=True)
        shutil.rmtree(replaced, ignore_errors=True)


def _move(source: Path, target: Path, moves: list[tuple[Path, Path]]) -> None:
    os.replace(source, target)
    moves.append((source, target))


def sync(path: Path) -> None:
    """Flush a file or folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def reserve(path: Path) -> None:
    """Allocate the disk space of a whole file, so that a full disk is an error now and not halfway."""
    if hasattr(os, "posix_fallocate"):
        with open(path, "r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
