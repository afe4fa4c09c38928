"""The ``run`` folder of a model in the making: whose it is, and that its settings stay the same."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from torch import Tensor

from elmokit.core.atomic import write_text
from elmokit.core.errors import RunError

__all__ = ["alone_in", "check_unchanged", "fingerprint", "open_run"]

_RUN = "run"


def open_run(out: Path, begun: set[str], is_model: bool) -> Path:
    """The run folder inside ``out``, made if ``out`` is new, empty or ours.

    Args:
        out: the model folder to make.
        begun: names that a run folder may hold before its settings are written.
        is_model: ``out`` holds a finished model.
    """
    run = out / _RUN
    if out.exists() and not out.is_dir():
        raise RunError(f"{out} is a file, not a folder.", remedy="Choose another --out.")
    if out.is_dir() and not (_is_run(out, begun) or is_model):
        raise RunError(
            f"{out} exists and is not an elmokit folder; nothing in it was touched.",
            remedy="Choose another --out, or empty the folder yourself.",
        )
    if is_model and not run.is_dir():
        raise RunError(
            f"{out} already holds a finished model without its training run.",
            remedy="Choose another --out; to train it further, say --from with this folder.",
        )
    try:
        run.mkdir(parents=True, exist_ok=True)
        probe = run / ".probe"
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise RunError(
            f"Cannot write into {out}: {error.strerror}.",
            remedy="Make the folder writable or choose another --out.",
        ) from error
    return run


@contextlib.contextmanager
def alone_in(run: Path) -> Iterator[None]:
    """One process at a time works in a run folder; a second one is refused, where the system has locks."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    with open(run / ".lock", "w", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RunError(
                f"Another process is at work in {run.parent}.",
                remedy="Wait for it, or choose another --out.",
            ) from error
        except OSError:
            pass  # a file system without locks
        yield


def _is_run(out: Path, begun: set[str]) -> bool:
    """Whether ``out`` is empty, or holds a run however early it was cut off."""
    run = out / _RUN
    if (run / "settings.json").is_file():
        return True
    return {file.name for file in out.iterdir()} <= {_RUN} and (
        not run.is_dir() or {file.name for file in run.iterdir() if file.name[0] != "."} <= begun
    )


def fingerprint(tensors: Iterable[Tensor]) -> str:
    """Changes when any value does."""
    digest = hashlib.blake2b(digest_size=16)
    for tensor in tensors:
        digest.update(tensor.detach().contiguous().numpy().tobytes())
    return digest.hexdigest()


def check_unchanged(run: Path, settings: dict[str, Any]) -> None:
    """Record the settings of a new run; refuse to go on with other ones."""
    file = run / "settings.json"
    settings = json.loads(json.dumps(settings))
    if not file.exists():
        write_text(file, json.dumps(settings, indent=2) + "\n")
        return
    try:
        before = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(before, dict) or not all(isinstance(part, dict) for part in before.values()):
            raise ValueError("these are no settings")
    except (OSError, ValueError) as error:
        raise RunError(
            f"{file} cannot be read: {error}.", remedy="Choose another --out to start anew."
        ) from error
    changes = [
        f"{name} was {before.get(section, {}).get(name)!r}, is {value!r}"
        for section, values in settings.items()
        for name, value in {**dict.fromkeys(before.get(section, {})), **values}.items()
        if before.get(section, {}).get(name) != value
    ]
    for place, change in enumerate(changes):
        if change.startswith("content_hash"):
            changes[place] = "the text itself is different"
        elif change.startswith("weights"):
            changes[place] = "the model it started from is different"
        elif (name := change.partition(" ")[0]).endswith("_rows"):
            changes[place] = f"the {name.removesuffix('_rows')} rows are different"
    if changes:
        raise RunError(
            f"{run.parent} was started with other settings or text: {'; '.join(changes)}.",
            remedy="Repeat the first command to go on, or choose another --out to start anew.",
        )
