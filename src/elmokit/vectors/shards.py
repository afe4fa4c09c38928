"""The engine "ray": each input file is a shard, and a pool of Ray actors works on one shard each at a time.

An actor loads the model once and does with a shard what the local engine would. It writes the result to the
output folder itself: only names and counts travel through Ray. The same call resumes after a kill.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import torch

from elmokit.core.atomic import explain_os_errors, write_text
from elmokit.core.console import Reporter
from elmokit.core.errors import (
    ConfigError,
    DataError,
    ElmokitError,
    MissingExtraError,
    RunError,
    import_extra,
    nearest,
)
from elmokit.core.formatting import join_names
from elmokit.core.model_folder import FORMAT, FORMAT_VERSION
from elmokit.core.names import MODELS, read_json, record_checksum, resolve_name
from elmokit.core.run_folder import describe_changes
from elmokit.core.threads import n_cores
from elmokit.text.readers import FORMATS, find_files, suffix_of

Engine = Literal["local", "ray"]
Record = dict[str, Any]
"""JSON: of a shard, its ``file`` (what to keep about it in the manifest), ``counts`` and ``notes``."""
_Input = tuple[str, str]
"""A path, here or in the file system that a URI names; and the URI or ""."""
Work = Callable[[Any, int, Path, Sequence[Any]], Record]
"""From the model, the number of a shard, its file and what the manifest has about it to its record."""
_ANSWER_SECONDS = 10
_LOCK_SECONDS = 60  # in which the workers of a program that was killed have ended
_MOST_TRIES = 3  # of a shard whose worker dies
_STORE_BYTES = 100 << 20  # shared memory of a Ray of our own


def is_ray(engine: str, address: str) -> bool:
    """Whether the engine is "ray"; an error if there is no such engine, or an address for another."""
    if engine not in get_args(Engine):
        raise ConfigError(f"There is no engine {engine!r}.", remedy=nearest(engine, get_args(Engine)))
    if address and engine != "ray":
        raise ConfigError("--address is for the engine 'ray'.", remedy="Add --engine ray.")
    return engine == "ray"


def _find_inputs(sources: str | Path | Sequence[str | Path], exclude: Path) -> list[_Input]:
    """The files that names, folders, patterns and URIs refer to, each once, in a stable order."""
    inputs: dict[_Input, None] = {}
    for source in map(str, [sources] if isinstance(sources, str | Path) else sources):
        if source == "-":
            raise ConfigError("The engine 'ray' cannot read standard input.", remedy="Give files.")
        if "://" not in source:
            files = find_files([source], exclude)
            inputs.update(dict.fromkeys((str(file.absolute()), "") for file in files))
            continue
        with _open_filesystem(source) as (system, path):
            names = system.glob(path) if "*" in path else [path] if system.isfile(path) else system.find(path)
        known = [one for one in sorted(names) if one == path or suffix_of(Path(one)) in FORMATS]
        if not known:
            raise DataError(f"There are no text files at {source}.", remedy=f"Known: {', '.join(FORMATS)}.")
        inputs.update(dict.fromkeys((name, source) for name in known))
    if not inputs:
        raise DataError("No text was given.", remedy="Name a file or a folder.")
    return list(inputs)


@contextlib.contextmanager
def _open_filesystem(uri: str) -> Iterator[tuple[Any, str]]:
    """The file system that a URI names, by pyarrow or, if it does not know it, fsspec; and the path in it."""
    import pyarrow as pa
    from pyarrow.fs import FileSystem

    core = import_extra("fsspec.core", "ray", uri)
    try:
        try:
            system, path = FileSystem.from_uri(uri)
            system = import_extra("fsspec.implementations.arrow", "ray", uri).ArrowFSWrapper(system)
        except pa.ArrowInvalid:
            system, path = core.url_to_fs(uri)
        yield system, path
    except (ImportError, OSError, ValueError, pa.ArrowException) as error:
        remedy = "Check it and your access; if a package is missing, install it on each machine."
        raise DataError(f"{uri} cannot be read: {error}.", remedy=remedy) from error


def run_shards(  # many parameters because two verbs share it
    job: Mapping[str, Any],
    sources: str | Path | Sequence[str | Path],
    out: Path,
    model: object,
    open_model: Callable[[str | Path], Any],
    work: Work,
    address: str,
    reporter: Reporter,
    *,
    overwrite: bool = False,
) -> Record:
    """Do the work for each file; returns the counts of all.

    ``manifest.json`` in ``out`` says what is done. What fails is named in an error at the end.

    Args:
        job: What the manifest says besides: its "kind", "model", "settings", "reading" and counts to fill in.
        model: Its folder or name.
        overwrite: Start over if ``out`` holds a part of another job.
    """
    if not isinstance(model, str | Path):
        raise ConfigError("The engine 'ray' cannot send a model in memory.", remedy="Give its folder.")
    folder = resolve_name(model)  # the models that come with elmokit may be elsewhere on another machine
    opener = functools.partial(open_model, folder.name if folder.parent == MODELS else folder.absolute())
    inputs = _find_inputs(sources, out)
    manifest = {"format": FORMAT, "format_version": FORMAT_VERSION, **json.loads(json.dumps(job))}
    files = [[Path(path).name, ""] for path, _ in inputs]
    manifest |= {"done": False, "shards": len(inputs), "files": files}
    if before := read_json(out / "manifest.json"):
        changes = describe_changes(_identity(before), _identity(manifest))
        if changes and not overwrite:
            raise RunError(
                f"{out} was written with different settings: {'; '.join(changes)}. Nothing was touched.",
                remedy="Use the same model, files and flags, choose another --out, or add --overwrite.",
            )
        manifest = manifest if changes else before
        for path in map(out.joinpath, shard_names(before) if changes else ()):
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    _write(out, manifest)
    for tries in out.glob(".tries-*"):
        tries.unlink()
    counts, notes = dict[str, int](), dict[str, str]()
    failed = dict.fromkeys(range(len(inputs)), ("its worker was lost", ""))
    with reporter.counting("Working", len(inputs), unit="files") as advance:
        for number, record in _compute(inputs, manifest["files"], opener, work, out, address):
            advance(1)
            if "error" in record:
                failed[number] = record["error"], record["remedy"]
                continue
            del failed[number]
            counts = {name: value + counts.get(name, 0) for name, value in record["counts"].items()}
            for note in record["notes"]:
                notes.setdefault(note.partition(": ")[2], note)  # not again for each file
            manifest["files"][number][1:] = record["file"]
            _write(out, manifest)
    for note in notes.values():
        reporter.note(note)
    if failed:
        names = {number: manifest["files"][number][0] for number in sorted(failed)}
        problem, remedy = failed[first := min(failed)]
        raise ElmokitError(
            f"{names[first]}: {problem.rstrip('.')}. {len(inputs) - len(failed)} of {len(inputs)} files are "
            f"done, but not {join_names(names.values(), at_most=5)}.",
            remedy=f"{remedy} Run the same command again: what is done is kept.".strip(),
        )
    known = {name: value for name, value in counts.items() if name in manifest}
    _write(out, manifest | known | {"done": True})
    return counts


def shard_names(manifest: Mapping[str, Any]) -> list[str]:
    """What the shards of a job are called in its folder."""
    if manifest["kind"] == "vectors":
        return ["shards"]
    return [f"part-{number:05d}.{manifest['settings']['format']}" for number in range(manifest["shards"])]


def _identity(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """What cannot change when a job is resumed."""
    parts = {name: manifest.get(name, {}) for name in ("settings", "reading")}
    engine, names = "ray" if manifest.get("shards") else "local", [file[0] for file in manifest["files"]]
    inputs = {"engine": engine, "model": manifest["model"]["fingerprint"], "files": names}
    return {**parts, "inputs": inputs}


def _write(out: Path, manifest: Mapping[str, Any]) -> None:
    manifest = {**manifest, "checksum": record_checksum(manifest)}
    write_text(out / "manifest.json", json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")


def _compute(
    inputs: Sequence[_Input], known: Any, opener: Callable[[], Any], work: Work, out: Path, address: str
) -> Iterator[tuple[int, Record]]:
    """The number and the record of each shard, as they are done."""
    jobs = [{"job": json.dumps([number, *one, known[number]])} for number, one in enumerate(inputs)]
    with _connect(address) as ray:
        n_cpus = max(1, int(ray.cluster_resources().get("CPU", 1)))
        results = ray.data.from_items(jobs, override_num_blocks=len(jobs)).map_batches(
            _Worker,
            fn_constructor_args=(opener, work, out.absolute()),
            batch_size=1,
            # An actor for each core. Together they ask for one less, so that Ray's own tasks never wait.
            num_cpus=1 - 1 / n_cpus,
            compute=ray.data.ActorPoolStrategy(size=min(n_cpus, len(jobs)), max_tasks_in_flight_per_actor=1),
        )
        for batch in results.iter_batches(batch_size=None, prefetch_batches=0):
            yield from map(json.loads, batch["result"])


class _Worker:
    """An actor: a model on one core, and what it does with each shard."""

    def __init__(self, opener: Callable[[], Any], work: Work, out: Path) -> None:
        torch.set_num_threads(1)
        self.opener, self.work, self.out, self.model = opener, work, out, None

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        number, path, root, known = json.loads(batch["job"][0])
        tries = self.out / f".tries-{number:05d}"  # Ray itself would try a shard for ever
        try:
            if not self.out.is_dir():
                remedy = "Choose an --out on a disk that all machines share."
                raise RunError(f"{self.out} is not there for a worker on another machine.", remedy=remedy)
            with explain_os_errors(tries), open(tries, "ab") as stream:
                stream.write(b".")
            if tries.stat().st_size > _MOST_TRIES:
                raise RunError(f"{_MOST_TRIES} workers died of it.", remedy="Give them more memory.")
            self.model = self.model or self.opener()
            with tempfile.TemporaryDirectory(prefix="elmokit-") as folder:
                file = Path(folder, Path(path).name) if root else Path(path)
                if root:
                    with _open_filesystem(root) as (system, _):
                        system.get_file(path, str(file))
                record = self._run(number, file, known)
        except ElmokitError as error:
            record = {"error": error.message, "remedy": error.remedy}
        except Exception as error:  # of whatever kind: the other shards go on
            record = {"error": repr(error), "remedy": ""}
        tries.unlink(missing_ok=True)
        return {"result": [json.dumps([number, record])]}

    def _run(self, number: int, file: Path, known: Sequence[Any]) -> Record:
        """Do the work; a worker of a program that was killed may hold the shard for a moment."""
        deadline = time.monotonic() + _LOCK_SECONDS
        while True:
            try:
                return self.work(self.model, number, file, known)
            except RunError as error:
                if not isinstance(error.__cause__, BlockingIOError) or time.monotonic() > deadline:
                    raise
                time.sleep(0.5)


@contextlib.contextmanager
def _connect(address: str) -> Iterator[Any]:
    """Ray: what this process is connected to, the cluster at ``address``, or one for this process alone."""
    try:
        ray = import_extra("ray", "ray", "The engine 'ray'")
        context = import_extra("ray.data", "ray", "The engine 'ray'").DataContext.get_current().copy()
    except ImportError as error:  # ray alone
        raise MissingExtraError("ray[data]", "ray", "The engine 'ray'") from error
    context.enable_progress_bars, context.max_errored_blocks = False, -1
    is_new = not ray.is_initialized()
    if is_new:
        os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        address = address or os.environ.get("RAY_ADDRESS", "")
        options: Any = {"logging_level": "ERROR", "log_to_driver": False}
        if address:
            _check_answer(address)
        else:
            options |= {
                "num_cpus": n_cores(),
                "object_store_memory": _STORE_BYTES,
                "include_dashboard": False,
            }
        ray.init(address or "local", **options)
    try:
        with ray.data.DataContext.current(context):
            yield ray
    except ray.exceptions.RayError as error:
        problem = f"Ray failed: {str(error).strip().partition(chr(10))[0]}"
        raise RunError(problem, remedy="Run the same command again: what is done is kept.") from error
    finally:
        if is_new:
            ray.shutdown()


def _check_answer(address: str) -> None:
    """Raise RunError unless a Ray cluster answers in time; ``ray.init`` would try for minutes."""
    command = [sys.executable, "-m", "ray.scripts.scripts", "status", "--address", address]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_ANSWER_SECONDS, check=False)
        problem = done.stderr.strip().rpartition("\n")[2] if done.returncode else ""
    except subprocess.TimeoutExpired:
        problem = f"no answer within {_ANSWER_SECONDS} seconds"
    if problem:
        remedy = "Check the address (HOST:6379), or leave it out to compute on this machine."
        raise RunError(f"There is no Ray cluster at {address}: {problem}.", remedy=remedy)
