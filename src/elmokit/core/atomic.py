"""Files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from safetensors import SafetensorError

from elmokit.core.errors import RunError

STAGED, REPLACED = ".saving", ".replaced"
"""Hold the new files of a folder until all are written, and the old ones until the new ones are in place."""
_JOURNAL = ".new.json"  # in REPLACED: the names of the new files, the last one last


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
        elif isinstance(error, FileNotFoundError):
            remedy = f"Make the folder {path.parent} first, or choose another place."
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
def staging(folder: Path, last: str, *, gone: Iterable[str] = (), is_staged: bool = False) -> Iterator[Path]:
    """A place to write files and folders to; at the end each is moved to its place in ``folder``.

    The file ``last`` is removed first and arrives last, so that a folder that was cut short is never taken
    for a whole one. Old files that match a pattern in ``gone`` are removed. After an error everything is as
    it was before; after a kill, ``restore`` makes it so. With ``is_staged``, the new files are there already,
    and stay if they cannot be moved.
    """
    restore(folder)
    staged, replaced = folder / STAGED, folder / REPLACED
    with explain_os_errors(folder):
        if not is_staged:
            shutil.rmtree(staged, ignore_errors=True)
            staged.mkdir(parents=True)
    is_swapped = False
    try:
        yield staged
        with explain_os_errors(folder):
            shutil.rmtree(replaced, ignore_errors=True)
            replaced.mkdir()
            with locked(replaced):
                _swap(folder, last, gone)
        is_swapped = True
    finally:
        restore(folder)
        if not os.path.lexists(replaced / _JOURNAL):
            if is_swapped or not is_staged:
                shutil.rmtree(staged, ignore_errors=True)
            shutil.rmtree(replaced, ignore_errors=True)


def _swap(folder: Path, last: str, gone: Iterable[str]) -> None:
    staged, replaced = folder / STAGED, folder / REPLACED
    new = [*(path.name for path in staged.iterdir() if path.name != last), last]
    old = {*new, *(path.name for pattern in gone for path in folder.glob(pattern))} - {STAGED, REPLACED}
    write_text(replaced / _JOURNAL, json.dumps(new))
    for name in sorted(old, key=lambda name: name != last):
        if os.path.lexists(folder / name):
            os.replace(folder / name, replaced / name)
    for name in new:
        os.replace(staged / name, folder / name)
    with contextlib.suppress(OSError):
        sync(folder)


def restore(folder: Path) -> None:
    """Put the old files of ``folder`` back if ``staging`` was killed between the first move and the last.

    Waits for another process that is moving files. Without the right to write, nothing is done.
    """
    staged, replaced = folder / STAGED, folder / REPLACED
    if not os.path.lexists(replaced / _JOURNAL):
        return
    with contextlib.suppress(OSError), locked(replaced):
        new = json.loads((replaced / _JOURNAL).read_text(encoding="utf-8"))
        last = new[-1]
        if not os.path.lexists(folder / last):
            for name in new:
                if os.path.lexists(folder / name) and not os.path.lexists(staged / name):
                    os.replace(folder / name, staged / name)
            old = {path.name for path in replaced.iterdir()} - {_JOURNAL}
            for name in sorted(old, key=lambda name: name == last):
                os.replace(replaced / name, folder / name)
        shutil.rmtree(replaced)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Wait until no other process is in such a block for this folder."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # some systems cannot open a folder
            descriptor = os.open(folder, os.O_RDONLY)
            stack.callback(os.close, descriptor)
            lock_file(descriptor)
        yield


def lock_file(descriptor: int, *, wait: bool = True) -> None:
    """Lock an open file or folder, where the system has locks; BlockingIOError if another process has it
    and this one does not ``wait``."""
    with contextlib.suppress(ImportError):
        import fcntl

        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError:
            pass  # a file system without locks


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
