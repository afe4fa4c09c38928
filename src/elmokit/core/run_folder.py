"""The folder that ``--out`` names: the one rule for what it may hold, the lock, the settings of its run."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from elmokit.core.atomic import REPLACED, STAGED, explain_os_errors, lock_file, restore, write_text
from elmokit.core.errors import RunError
from elmokit.core.model_folder import KINDS, kind_of
from elmokit.core.names import read_json

_LOCK, _SETTINGS, _REPORT = ".lock", "settings.json", "report.json"


class _Layout(NamedTuple):
    content: str
    state: str  # subfolder with checkpoints, settings and lock; "" for the folder itself
    marker: str  # a file that only a folder of this kind has


_LAYOUTS = {
    "bilm": _Layout("a pretraining run", "run", f"run/{_SETTINGS}"),
    "classifier": _Layout("a run of elmokit fit", "run", f"run/{_SETTINGS}"),
    "comparison": _Layout("a comparison", "work", f"work/{_SETTINGS}"),
    "word-vectors": _Layout("word vectors", "", "config.json"),
    "linear": _Layout("a linear model", "", "config.json"),
    "stack": _Layout("a classifier", "", "config.json"),
    "converted": _Layout("a converted model", "", "config.json"),
    "official": _Layout("published ELMo files", "", "options.json"),
    "vectors": _Layout("a vector store", "", "manifest.json"),
    "token-cache": _Layout("a token cache", "", "cache.json"),
    "report": _Layout("a report", "", _REPORT),
}
_INPUTS = {"content_hash": "the text", "weights": "the model it started from"}


@dataclass(frozen=True)
class RunFolder:
    """A folder to write results to."""

    out: Path
    run: Path  # checkpoints, settings and the lock: a subfolder of ``out``, or ``out`` itself
    kind: str
    resume: bool = True  # results of the same kind may be there
    overwrite: bool = False  # ... and are replaced

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Make the folder and keep other processes out of it, where the system has file locks.

        A run to overwrite is removed now; a model or report stays until the new one replaces it.
        """
        lock = self.run / _LOCK
        with explain_os_errors(self.out):
            self.run.mkdir(parents=True, exist_ok=True)
            file = open(lock, "a", encoding="utf-8")  # noqa: SIM115
        with file:
            try:
                lock_file(file.fileno(), wait=False)
                if not os.path.samestat(lock.stat(), os.fstat(file.fileno())):
                    raise BlockingIOError  # of the next process
            except (BlockingIOError, FileNotFoundError) as error:  # or one that finished just now
                raise RunError(
                    f"Another process is using {self.out}.",
                    remedy="Wait for it to finish, or choose another --out.",
                ) from error
            try:
                if self.run == self.out:  # another process may have finished since it was checked
                    open_out(self.out, self.kind, resume=self.resume, overwrite=self.overwrite)
                elif self.overwrite:
                    (self.out / "config.json").unlink(missing_ok=True)
                    for path in self.run.iterdir():
                        if path != lock:
                            shutil.rmtree(path) if path.is_dir() else path.unlink()
                file.truncate(0)
                file.write(self.kind)
                file.flush()
                yield
            finally:
                if self.run == self.out:  # nothing stays behind in a model folder
                    with contextlib.suppress(OSError):
                        lock.unlink()
                        self.out.rmdir()  # unless there is something in it

    def require_same(
        self,
        settings: Mapping[str, Any],
        inputs: Mapping[str, str | None],
        may_grow: Collection[str] = (),
        grow: Callable[[], object] = lambda: None,
    ) -> None:
        """Record the settings of a new run; refuse to resume with different ones.

        Args:
            inputs: Fingerprints of what the run reads, by section and name, such as "text.train_rows".
            may_grow: Settings in "training" that may be higher than before, or None (no limit).
            grow: Called before any that is higher is recorded.
        """
        now: dict[str, Any] = json.loads(json.dumps(settings))
        for name, value in inputs.items():
            section, _, key = name.partition(".")
            now.setdefault(section, {})[key] = value
        file = self.run / _SETTINGS
        if not file.exists():
            write_text(file, json.dumps(now, indent=2) + "\n")
            return
        before = read_json(file)
        if not before or not all(isinstance(part, dict) for part in before.values()):
            raise RunError(
                f"{file} cannot be read: it contains no settings.",
                remedy="Choose another --out to start over.",
            )
        old, new = before.get("training", {}), now.get("training", {})
        longer = [name for name in may_grow if old.get(name) and (new[name] is None or new[name] > old[name])]
        if changes := describe_changes({**before, "training": {**old, **{n: new[n] for n in longer}}}, now):
            raise RunError(
                f"{self.out} was started with different settings or data: {'; '.join(changes)}.",
                remedy="Use the same flags and files to resume, or choose another --out.",
            )
        if longer:
            grow()
            write_text(file, json.dumps(now, indent=2) + "\n")


def describe_changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What differs between two sets of settings by section, in words."""
    changes = []
    for section, values in now.items():
        old = before.get(section, {})
        for name in {**old, **values}:
            if old.get(name) == values.get(name):
                continue
            if name in _INPUTS or name.endswith("_rows"):
                changes.append(f"{_INPUTS.get(name) or f'the {name[:-5]} rows'} changed")
            else:
                changes.append(f"{name} was {old.get(name)!r}, now {values.get(name)!r}")
    return changes


def open_out(out: Path, kind: str, *, resume: bool, overwrite: bool = False) -> RunFolder:
    """Check the folder that ``--out`` names, before any work is done.

    It must be new, empty or, with ``resume`` or ``overwrite``, hold results of this kind; otherwise RunError
    is raised and nothing is touched. ``RunFolder.lock``, or whoever writes to it, makes the folder.
    """
    restore(out)
    run = out / _LAYOUTS[kind].state
    problem, is_ours = _problem(out, kind)
    if problem or (is_ours and not resume and not overwrite):
        remedy = "Choose another --out, or empty the folder yourself."
        if not problem:
            problem = f"already holds {_LAYOUTS[kind].content}"
            remedy = "Choose another --out, or replace what is there with --overwrite."
        raise RunError(f"{out} {problem}; nothing in it was touched.", remedy=remedy)
    if kind_of(out) and not run.is_dir() and not overwrite:
        raise RunError(
            f"{out} already holds a finished model without its training run.",
            remedy="Choose another --out; to train it further, use --from with this folder.",
        )
    existing = next(path for path in (run, *run.absolute().parents) if path.exists())
    with explain_os_errors(out), tempfile.TemporaryFile(dir=existing):
        pass  # the folder can be written to
    return RunFolder(out, run, kind, resume, overwrite)


def _problem(out: Path, kind: str) -> tuple[str, bool]:
    """Why results of this kind cannot be written to ``out`` ("" if they can), and whether it has such."""
    content, state, marker = _LAYOUTS[kind]
    model = kind_of(out)
    is_converted = kind == "converted" and model == "bilm" and not (out / "run").is_dir()
    if model not in (None, kind) and not is_converted:
        return f"already holds {KINDS[model].noun if model in KINDS else 'another model'}", False
    if not out.is_dir():
        return "is a file, not a folder" if out.exists() else "", False
    if _is_empty(out, state):
        return "", False
    lock = out / state / _LOCK
    is_ours = bool(model) or _is_ours(out / marker) or bool(state and lock.is_file())
    try:
        other = lock.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        other = ""
    if not is_ours and other != kind:  # a job that was killed leaves its lock
        return f"exists and does not hold {content}", False
    return f"exists and holds {_LAYOUTS[other].content}" if other in {*_LAYOUTS} - {kind} else "", is_ours


def _is_empty(out: Path, state: str) -> bool:
    """Whether ``out`` holds nothing, or only what a program that was killed early left in it."""
    names = {path.name for path in out.iterdir()}
    if state and (out / state).is_dir() and not any((out / state).iterdir()):
        names.remove(state)
    return all(
        name in (STAGED, REPLACED, _LOCK) or (name[0] == "." and name.endswith(".new")) for name in names
    )


def _is_ours(marker: Path) -> bool:
    """Whether a file with the right name was written by elmokit, as far as can be seen."""
    if marker.name == _SETTINGS:
        return marker.is_file()
    if marker.name == _REPORT:
        return "versions" in read_json(marker)
    return str(read_json(marker).get("format")).startswith("elmokit")
