"""What ``--out`` names: the one rule for what it may hold, the lock, "same job as before?"."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from rich.markup import escape

from elmokit.core.atomic import (
    REPLACED,
    STAGED,
    atomic_write,
    explain_os_errors,
    lock_file,
    restore,
    write_text,
)
from elmokit.core.errors import RunError
from elmokit.core.model_folder import FITTED, KINDS, OUTDATED, kind_of
from elmokit.core.names import checksum, read_json, record_checksum

_LOCK, _SETTINGS, _REPORT = ".lock", "settings.json", "report.json"


class _Layout(NamedTuple):
    content: str
    state: str  # subfolder with checkpoints, settings and lock; "" for the folder itself
    marker: str  # a file that only a folder of this kind has
    resumes: bool = False  # False for a job that is done in one go


_LAYOUTS = {
    "bilm": _Layout("a pretraining run", "run", f"run/{_SETTINGS}", resumes=True),
    "classifier": _Layout("a run of elmokit fit", "run", f"run/{_SETTINGS}", resumes=True),
    "comparison": _Layout("a comparison", "work", f"work/{_SETTINGS}", resumes=True),
    "vectors": _Layout("a vector store", "", "manifest.json", resumes=True),
    "predictions": _Layout("predictions", "", "manifest.json", resumes=True),
    "word-vectors": _Layout("word vectors", "", "config.json"),
    "linear": _Layout("a linear model", "", "config.json"),
    "stack": _Layout("a classifier", "", "config.json"),
    "converted": _Layout("a converted model", "", "config.json"),
    "official": _Layout("published ELMo files", "", "options.json"),
    "token-cache": _Layout("a token cache", "", "cache.json"),
    "report": _Layout("a report", "", _REPORT),
}
_INPUTS = {
    "content_hash": "the text",
    "files": "the input files",
    "model": "the model",
    "weights": "the model it started from",
}
Inputs = Mapping[str, str | None]
"""Fingerprints of what a job reads, by section and name, such as "text.train_rows"."""


@dataclass
class RunFolder:
    """A folder to write results to."""

    out: Path
    run: Path  # checkpoints, settings and the lock: a subfolder of ``out``, or ``out`` itself
    kind: str
    overwrite: bool = False  # results of the same kind may be there, and are replaced
    _job: dict[str, Any] = field(default_factory=dict, init=False)  # to record at its end

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Make the folder and keep other processes out of it, where the system has file locks."""
        lock = self.run / _LOCK
        with explain_os_errors(self.out):
            self.run.mkdir(parents=True, exist_ok=True)
        with _exclusive(lock, self.out):
            try:
                if self.run == self.out:  # another process may have finished since it was checked
                    open_out(self.out, self.kind, overwrite=self.overwrite)
                if _read_lock(lock)[0] != self.kind:
                    lock.write_text(self.kind, encoding="utf-8")
                yield
                if self._job:
                    result = {"checksum": checksum(self.out / _LAYOUTS[self.kind].marker)}
                    with contextlib.suppress(RunError):  # on a full disk; the result is whole without it
                        _write_settings(self.out / _SETTINGS, {**self._job, "result": result})
            finally:
                if self.run == self.out:  # nothing stays behind in a model folder
                    with contextlib.suppress(OSError):
                        lock.unlink()
                        self.out.rmdir()  # unless there is something in it

    def is_done(
        self, settings: Mapping[str, Any], inputs: Inputs, say: Callable[[str], None] = lambda line: None
    ) -> bool:
        """Whether a job that is done in one go was done here before; if so, ``say`` gets a line.

        Results of another job are an error unless they may be overwritten. The end of ``lock`` records the
        job; until then the lock names it, so that it can be repeated if it is killed.
        """
        marker, record = self.out / _LAYOUTS[self.kind].marker, _read_settings(self.out / _SETTINGS)
        job, lock = _join(settings, inputs), self.run / _LOCK
        name = record_checksum(job)
        if marker.exists() and not self.overwrite and _read_lock(lock) != (self.kind, name):
            problem = f"already holds {_LAYOUTS[self.kind].content}"
            if record.get("result") != {"checksum": checksum(marker)}:
                raise _refusal(self.out, problem)
            if changes := describe_changes(record, job):
                raise _refusal(self.out, f"{problem}, made with other settings or data: {'; '.join(changes)}")
            say(say_done(self.out))
            return True
        lock.write_text(f"{self.kind}\n{name}", encoding="utf-8")
        self._job = job
        return False

    def require_same(
        self,
        settings: Mapping[str, Any],
        inputs: Inputs,
        may_grow: Collection[str] = (),
        grow: Callable[[], object] = lambda: None,
        *,
        is_interrupted: bool = False,
    ) -> None:
        """Record the settings of a new run, which removes an old one but for its model, or refuse to resume.

        Args:
            may_grow: Settings in "training" that may be higher than before, or None (no limit).
            grow: Called before any that is higher is recorded.
            is_interrupted: The run has made a model, but is to go on, also where it may be overwritten.
        """
        file = self.run / _SETTINGS
        before, now = _read_settings(file), _join(settings, inputs)
        is_other = (self.has_result() and not is_interrupted) or describe_changes(before, now)
        if self.overwrite and is_other:
            before = {}
        if file.exists() and not before and not self.overwrite:
            raise RunError(
                f"{file} cannot be read: it contains no settings.",
                remedy="Choose another --out to start over.",
            )
        old, new = before.get("training", {}), now.get("training", {})
        longer = [name for name in may_grow if old.get(name) and (new[name] is None or new[name] > old[name])]
        same = {**before, "training": {**old, **{name: new[name] for name in longer}}}
        if before and (changes := describe_changes(same, now)):
            raise RunError(
                f"{self.out} was started with different settings or data: {'; '.join(changes)}.",
                remedy="Use the same flags and files to resume, choose another --out, or add --overwrite.",
            )
        if longer:
            grow()
        elif not before:
            with explain_os_errors(self.out):
                if kind_of(self.out):
                    (self.out / OUTDATED).touch()
                for path in self.run.iterdir():  # the settings last: they belong to the rest
                    if path.name not in (_LOCK, _SETTINGS, "corpus"):
                        shutil.rmtree(path) if path.is_dir() else path.unlink()
        if longer or not before:
            _write_settings(file, now)

    def has_result(self) -> bool:
        """Whether the run has made its model; the one there may be of an earlier run."""
        return kind_of(self.out) is not None and not (self.out / OUTDATED).exists()


def _read_settings(file: Path) -> dict[str, Any]:
    """Recorded settings by section; empty if there are none."""
    record = read_json(file)
    return record if all(isinstance(part, dict) for part in record.values()) else {}


def _write_settings(file: Path, settings: Mapping[str, Any]) -> None:
    write_text(file, json.dumps(settings, indent=2) + "\n")


def _join(settings: Mapping[str, Any], inputs: Inputs) -> dict[str, Any]:
    """Settings and inputs by section, as JSON."""
    joined: dict[str, Any] = json.loads(json.dumps(settings))
    for name, value in inputs.items():
        section, _, key = name.partition(".")
        joined.setdefault(section, {})[key] = value
    return joined


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


def open_out(out: Path, kind: str, *, overwrite: bool = False) -> RunFolder:
    """Check the folder that ``--out`` names, before any work is done.

    It must be new, empty or hold results of this kind. Those of a run are resumed; others must be of the
    same job, which ``RunFolder.is_done`` tells, or may be overwritten. Otherwise RunError is raised and
    nothing is touched. ``RunFolder.lock``, or whoever writes to it, makes the folder.
    """
    restore(out)
    layout = _LAYOUTS[kind]
    run = out / layout.state
    if problem := _problem(out, kind, overwrite):
        empty = ", or empty the folder yourself" if out.is_dir() else ""
        remedy = "" if {kind, kind_of(out)} <= FITTED else f"Choose another --out{empty}."
        raise _refusal(out, problem, remedy)
    is_known = layout.resumes or (out / _SETTINGS).exists() or _read_lock(out / _LOCK)[1]
    if (out / layout.marker).exists() and not is_known and not overwrite:
        raise _refusal(out, f"already holds {layout.content}")
    if kind_of(out) and not run.is_dir() and not overwrite:
        raise RunError(
            f"{out} already holds a finished model without its training run.",
            remedy="Choose another --out; to train it further, use --from with this folder.",
        )
    existing = next(path for path in (run, *run.absolute().parents) if path.exists())
    with explain_os_errors(out), tempfile.TemporaryFile(dir=existing):
        pass  # the folder can be written to
    return RunFolder(out, run, kind, overwrite)


@contextlib.contextmanager
def _exclusive(lock: Path, out: Path) -> Iterator[None]:
    """Keep other processes out of ``out`` by the file ``lock``."""
    with explain_os_errors(out):
        file = open(lock, "a", encoding="utf-8")  # noqa: SIM115
    with file:
        try:
            lock_file(file.fileno(), wait=False)
            if not os.path.samestat(lock.stat(), os.fstat(file.fileno())):
                raise BlockingIOError  # of the next process
        except (BlockingIOError, FileNotFoundError) as error:  # or one that finished just now
            raise RunError(
                f"Another process is using {out}.",
                remedy="Wait for it to finish, or choose another --out.",
            ) from error
        yield


@contextlib.contextmanager
def open_file(
    out: Path, *, overwrite: bool = False, say: Callable[[str], None] = lambda line: None
) -> Iterator[Any]:
    """A binary stream to the file that ``--out`` names, which is written whole or not at all.

    If it has content, only the same content is accepted, and ``say`` gets a line at the end, unless it may be
    overwritten.
    """
    if out.exists() and not out.is_file():  # a pipe or device cannot be replaced
        with explain_os_errors(out), open(out, "wb") as stream:
            yield stream
        return
    target = out.resolve()  # a link stays a link
    lock = target.with_name(f".{target.name}.lock")
    with explain_os_errors(out), _exclusive(lock, out), contextlib.ExitStack() as stack:
        stack.callback(lock.unlink, missing_ok=True)
        if overwrite or not target.is_file() or not target.stat().st_size:
            path = stack.enter_context(atomic_write(target))
            yield stack.enter_context(open(path, "wb"))
            return
        old = stack.enter_context(open(target, "rb"))

        def compare(content: bytes, n_bytes: int | None = None) -> None:
            if old.read(n_bytes or len(content)) != content:
                raise _refusal(out, "exists and holds something else")

        yield SimpleNamespace(write=compare)
        compare(b"", 1)  # the end
    say(say_done(out))


def say_done(out: Path) -> str:
    """What a job says that was done before."""
    return escape(f"Already done: {out} holds the result of the same command.")


def _refusal(out: Path, problem: str, remedy: str = "") -> RunError:
    remedy = remedy or "Choose another --out, or replace what is there with --overwrite."
    return RunError(f"{out} {problem}; nothing in it was touched.", remedy=remedy)


def _problem(out: Path, kind: str, overwrite: bool) -> str:
    """Why results of this kind cannot be written to ``out``; "" if they can."""
    content, state, marker, _ = _LAYOUTS[kind]
    model = kind_of(out)
    is_converted = kind == "converted" and model == "bilm" and not (out / "run").is_dir()
    lock = out / state / _LOCK
    other, _ = _read_lock(lock)
    is_replaced = {model, kind} <= FITTED and (overwrite or other == kind)  # now, or by a job that was killed
    if model not in (None, kind) and not is_converted and not is_replaced:
        return f"already holds {KINDS[model].noun if model in KINDS else 'another model'}"
    if not out.is_dir():
        return "is a file, not a folder" if out.exists() else ""
    if _is_empty(out, state):
        return ""
    is_ours = model or _is_ours(out / marker, kind) or (state and lock.is_file())
    if (
        not (is_ours or "result" in _read_settings(out / _SETTINGS)) and other != kind
    ):  # a job that was killed leaves its lock
        return f"exists and does not hold {content}"
    return f"exists and holds {_LAYOUTS[other].content}" if other in {*_LAYOUTS} - {kind} else ""


def _read_lock(lock: Path) -> tuple[str, str]:
    """The kind of the results that the process with this lock writes, and its job."""
    try:
        kind, _, job = lock.read_text(encoding="utf-8").partition("\n")
    except (OSError, UnicodeDecodeError):
        return "", ""
    return kind, job


def _is_empty(out: Path, state: str) -> bool:
    """Whether ``out`` holds nothing, or only what a program that was killed early left in it."""
    names = {path.name for path in out.iterdir()}
    if state and (out / state).is_dir() and not any((out / state).iterdir()):
        names.remove(state)
    return all(
        name in (STAGED, REPLACED, _LOCK) or (name[0] == "." and name.endswith(".new")) for name in names
    )


def _is_ours(marker: Path, kind: str) -> bool:
    """Whether a file with the right name was written by elmokit, as far as can be seen."""
    if marker.name == _SETTINGS:
        return marker.is_file()
    if marker.name == _REPORT:
        return "versions" in read_json(marker)
    record = read_json(marker)
    is_other = marker.name == "manifest.json" and record.get("kind") != kind
    return str(record.get("format")).startswith("elmokit") and not is_other
