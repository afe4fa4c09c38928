"""Run the steps of a comparison: several at once, each in a process and on a core of its own."""

from __future__ import annotations

import contextlib
import multiprocessing as mp
import os
import signal
import sys
import threading
import time
import traceback
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Literal

from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeElapsedColumn

import elmokit
from elmokit.comparison.steps import Step, StepResult, Workspace, do_step
from elmokit.core.console import Advance, Reporter
from elmokit.core.errors import ElmokitError

_PRELOAD = (  # imported once, not in every step
    *("elmokit.comparison.steps", "gensim.models", "scipy.stats", "sklearn.feature_extraction.text"),
    *("sklearn.linear_model", "sklearn.metrics", "sklearn.svm", "torch._dynamo"),
)
_POLL, _PATIENCE = 0.5, 60.0  # seconds between reports of a step; that it has to save when interrupted


@dataclass
class _Running:
    """A running step, and the last message of its process."""

    step: Step
    process: BaseProcess
    bar: TaskID
    start: float
    status: Literal["running", "failed", "interrupted"] = "running"
    message: str = ""


class Runner:
    """Does the steps that are not finished, in order, each when all that it needs is.

    After ``deadline``, by ``time.monotonic``, no further step is started. ``results`` holds those of the
    finished steps by id.
    """

    def __init__(
        self, space: Workspace, steps: Sequence[Step], deadline: float | None, reporter: Reporter
    ) -> None:
        self.space, self.deadline, self.reporter = space, deadline, reporter
        self.steps, self.failed = steps, dict[str, str]()
        self._running: dict[Any, _Running] = {}  # by connection
        loaded = {step.id: StepResult.load(space.step_folder(step.folder)) for step in steps}
        self.results = {id: result for id, result in loaded.items() if result is not None}

    def run(self, n_workers: int) -> dict[str, str]:
        """Do all unfinished steps; return why some failed. When interrupted, steps save what they have."""
        waiting = [step for step in self.steps if step.id not in self.results]
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=30), TaskProgressColumn())
        more = (TextColumn("[dim]{task.fields[message]}[/]"), TimeElapsedColumn())
        try:
            with self.reporter.progress(*columns, *more) as bars:
                total = bars.add_task("all steps", total=len(self.steps), message="")
                while True:
                    bars.update(total, completed=len(self.results))
                    ready = [step for step in waiting if self.results.keys() >= {*step.needs}]
                    for step in ready[: n_workers - len(self._running)]:
                        if self.deadline is None or time.monotonic() < self.deadline:
                            waiting.remove(step)
                            self._start(step, bars)
                    if not self._running:
                        break
                    self._receive(bars)
        except KeyboardInterrupt:
            self.reporter.say("Stopping: saving the running steps …")
            for running in self._running.values():
                with contextlib.suppress(OSError):
                    os.kill(running.process.pid or 0, signal.SIGINT)
            until = time.monotonic() + _PATIENCE
            for running in self._running.values():
                running.process.join(max(0.0, until - time.monotonic()))
            raise
        finally:
            for running in self._running.values():
                running.process.kill()
        causes = {step.id: self.failed[id] for step in waiting for id in step.needs if id in self.failed}
        return {**self.failed, **causes}

    def _start(self, step: Step, bars: Progress) -> None:
        max_time = None
        if self.deadline is not None:
            max_time = max(1.0, (self.deadline - time.monotonic()) / 2)  # the other half is for fitting
        receiver, sender = mp.Pipe(duplex=False)
        process = _start_process(sender, self.space, step, max_time)
        sender.close()
        bar = bars.add_task(f"  {step.id}", total=1.0, message="")
        self._running[receiver] = _Running(step, process, bar, time.monotonic())
        self.reporter.event("step", step=step.id, status="started")

    def _receive(self, bars: Progress) -> None:
        """Take in what the processes tell, for a moment."""
        ready: list[Any] = wait(list(self._running), _POLL)
        for connection in ready:
            running = self._running[connection]
            try:
                running.status, running.message, share = connection.recv()
                bars.update(running.bar, completed=share, message=escape(running.message))
            except EOFError:  # the process is gone
                self._running.pop(connection).process.join()
                bars.remove_task(running.bar)
                self._end(running)

    def _end(self, running: _Running) -> None:
        id, reason, code = running.step.id, running.message, running.process.exitcode
        if running.status == "interrupted":
            raise KeyboardInterrupt
        if result := StepResult.load(self.space.step_folder(running.step.folder)):
            self.results[id] = result
            seconds = time.monotonic() - running.start
            self.reporter.event("step", step=id, status="done", seconds=round(seconds, 1))
            if self.reporter.mode == "plain":
                self.reporter.say(f"  done {escape(id)} [dim]({seconds:,.0f} s)[/]")
            return
        if running.status != "failed":
            reason = f"Its process ended with code {code}; see its log in {self.space.folder / 'steps'}."
            if code == -signal.SIGKILL:
                reason = "Its process was killed, as happens when memory runs out."
        self.failed[id] = reason
        self.reporter.event("step", step=id, status="failed", reason=reason)
        self.reporter.say(f"[red]{escape(id)} failed:[/] {escape(reason)}")


# -- the process of a step --------------------------------------------------------------------


def _start_process(*arguments: Any) -> BaseProcess:
    """Start a process from a server that has the libraries loaded and computes with one thread."""
    method = "forkserver" if "forkserver" in mp.get_all_start_methods() else "spawn"
    context: Any = mp.get_context(method)
    context.set_forkserver_preload(list(_PRELOAD))
    process: BaseProcess = context.Process(target=_do_in_process, args=arguments, daemon=True)
    # The same elmokit, and no modules from the folder where a person happens to be.
    paths = [str(Path(elmokit.__file__).parent.parent), os.environ.get("PYTHONPATH", "")]
    values = {
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "PYTHONSAFEPATH": "1",
    }
    before = {name: os.environ[name] for name in values if name in os.environ}
    main = sys.modules["__main__"]
    os.environ.update(values)
    sys.modules["__main__"] = types.ModuleType("__main__")  # or the caller's script would run again
    try:
        process.start()
    finally:
        sys.modules["__main__"] = main
        for name in values:
            del os.environ[name]
        os.environ.update(before)
    return process


def _do_in_process(connection: Connection, space: Workspace, step: Step, max_time: float | None) -> None:
    """Do one step, and report over a connection how it goes on or fails; its result is in its folder."""
    import torch

    if hasattr(os, "setpgid"):
        os.setpgid(0, 0)  # Ctrl-C on the terminal reaches the comparison, which passes it on
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    folder = space.step_folder(step.folder)
    folder.mkdir(parents=True, exist_ok=True)
    with open(f"{folder}.log", "a", encoding="utf-8") as log:
        os.dup2(log.fileno(), 1)  # what libraries print, too
        os.dup2(log.fileno(), 2)
    try:
        do_step(space, step, _PipeReporter(connection), max_time)
    except KeyboardInterrupt:
        connection.send(("interrupted", "", 0.0))
    except ElmokitError as error:
        connection.send(("failed", f"{error.message} {error.remedy}".strip(), 0.0))
    except Exception as error:
        traceback.print_exc()
        connection.send(("failed", f"{type(error).__name__}: {error}", 0.0))


def _end_with_parent() -> None:
    parent = mp.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


class _PipeReporter(Reporter):
    """Sends progress over a connection; messages go to the step's log."""

    def __init__(self, connection: Connection) -> None:
        super().__init__("plain")
        self._connection, self._sent = connection, 0.0

    @contextlib.contextmanager
    def counting(self, description: str, total: float | None = None, unit: str = "") -> Iterator[Advance]:
        """A progress bar elsewhere."""
        done = 0.0

        def advance(amount: float, **fields: Any) -> None:
            nonlocal done, total
            done, total = done + amount, fields.get("total", total)
            if time.monotonic() - self._sent > _POLL:
                self._sent = time.monotonic()
                share = min(1.0, done / total) if total else 0.0
                self._connection.send(("running", description.lower(), share))

        yield advance

    @contextlib.contextmanager
    def training(self, total: int, done: int) -> Iterator[Advance]:
        """A progress bar elsewhere."""
        with self.counting("training", total) as advance:
            advance(done)
            yield advance
