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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Literal

from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeElapsedColumn

import elmokit
from elmokit.comparison.methods import Method, Plan
from elmokit.comparison.steps import Step, StepResult, Workspace, do_step
from elmokit.core.console import Advance, Reporter
from elmokit.core.errors import ElmokitError, RunError

Status = Literal["done", "failed", "interrupted"]
_PRELOAD = (  # imported once, not in every step
    *("elmokit.comparison.steps", "gensim.models", "scipy.stats", "sklearn.feature_extraction.text"),
    *("sklearn.linear_model", "sklearn.metrics", "sklearn.svm", "torch._dynamo"),
)
_POLL, _PATIENCE = 0.5, 60.0  # seconds between looks at the deadline; to save when interrupted


@dataclass(frozen=True)
class RunSummary:
    """How the steps went: reasons by step id."""

    failed: Mapping[str, str] = field(default_factory=dict)
    skipped: Mapping[str, str] = field(default_factory=dict)
    interrupted: bool = False


@dataclass
class _Running:
    """A step that is being done."""

    step: Step
    process: BaseProcess
    connection: Connection
    start: float
    share: float = 0.0
    message: str = ""
    status: Status | None = None
    reason: str = ""


class Runner:
    """Does the steps that are not finished, in an order that their needs allow.

    Args:
        steps: In the order in which they should start.
        deadline: When no further step is started, by ``time.monotonic``.
    """

    def __init__(
        self, space: Workspace, plan: Plan, steps: Sequence[Step], deadline: float | None, reporter: Reporter
    ) -> None:
        self.space, self.plan, self.deadline, self.reporter = space, plan, deadline, reporter
        self._steps = {step.id: step for step in steps}
        self._failed: dict[str, str] = {}
        self._skipped: dict[str, str] = {}
        self._running: list[_Running] = []
        self.finished = {step.id for step in steps if self._is_finished(step)}

    def _is_finished(self, step: Step) -> bool:
        """Whether a step was done before; one with other inputs is refused."""
        result = StepResult.load(self.space.step_folder(step.id))
        if result is None:
            return False
        inputs = self.space.inputs(step, self.plan.method(step.method))
        changes = [
            name for name in sorted({*result.inputs, *inputs}) if result.inputs.get(name) != inputs.get(name)
        ]
        if changes:
            raise RunError(
                f"{self.space.folder.parent} holds the step {step.id}, done with different settings "
                f"({', '.join(changes)}).",
                remedy="Use the same settings, give the method another name ([method.NAME] like = ...), "
                "or choose another --out.",
            )
        return True

    def run(self, n_workers: int) -> RunSummary:
        """Do all steps that are not finished. An interrupt lets running steps save what they have."""
        order = TopologicalSorter({step.id: step.needs for step in self._steps.values()})
        order.prepare()
        places, waiting = list(self._steps), list[str]()
        try:
            with self._progress() as show:
                while order.is_active():
                    waiting = sorted([*waiting, *order.get_ready()], key=places.index)
                    settled = [id for id in waiting if self._is_settled(self._steps[id])]
                    for id in settled:
                        waiting.remove(id)
                        order.done(id)
                    if settled:
                        continue  # which may make others ready
                    while waiting and len(self._running) < n_workers:
                        self._start(self._steps[waiting.pop(0)])
                    for running in self._wait():
                        order.done(running.step.id)
                    show()
        except KeyboardInterrupt:
            self._interrupt()
            return RunSummary(self._failed, self._skipped, interrupted=True)
        finally:
            for running in self._running:
                running.process.kill()
        return RunSummary(self._failed, self._skipped)

    def _is_settled(self, step: Step) -> bool:
        """True for a step that is finished or cannot start any more; its reason is recorded."""
        failed = [self._failed[need] for need in step.needs if need in self._failed]
        is_late = self.deadline is not None and time.monotonic() > self.deadline
        if step.id in self.finished:
            return True
        if failed:
            self._failed[step.id] = failed[0]
        elif is_late or any(need in self._skipped for need in step.needs):
            self._skipped[step.id] = "The deadline had passed before it started."
        return bool(failed) or step.id in self._skipped

    def _start(self, step: Step) -> None:
        max_time = None
        if self.deadline is not None and step.kind == "language-model":
            max_time = max(1.0, (self.deadline - time.monotonic()) / 2)  # the other half is for fitting
        receiver, sender = mp.Pipe(duplex=False)
        context = _context()
        arguments = (sender, self.space, step, self.plan.method(step.method), max_time)
        process = context.Process(target=_do_in_process, args=arguments, daemon=True)
        with _one_thread(), _without_main():
            process.start()
        sender.close()
        self._running.append(_Running(step, process, receiver, time.monotonic()))
        self.reporter.event("step", step=step.id, status="started")

    def _wait(self) -> list[_Running]:
        """Take in messages for a moment; the steps that have ended."""
        ended = []
        ready = wait([running.connection for running in self._running], _POLL)
        for running in [running for running in self._running if running.connection in ready]:
            try:
                message = running.connection.recv()
            except EOFError:  # the process is gone
                self._end(running)
                ended.append(running)
                continue
            if isinstance(message[0], str):
                running.status, running.reason = message
            else:
                running.share, running.message = message
        return ended

    def _end(self, running: _Running) -> None:
        running.process.join()
        self._running.remove(running)
        step, seconds = running.step, time.monotonic() - running.start
        if running.status == "done":
            self.finished.add(step.id)
            self.reporter.event("step", step=step.id, status="done", seconds=round(seconds, 1))
            if self.reporter.mode == "plain":
                self.reporter.say(f"  done {escape(step.id)} [dim]({seconds:,.0f} s)[/]")
            return
        if running.status == "interrupted":
            raise KeyboardInterrupt
        code, log = running.process.exitcode, self.space.step_folder(step.id) / "log.txt"
        reason = running.reason or f"Its process ended with code {code}; see {log}."
        if code == -signal.SIGKILL:
            reason = "Its process was killed, as happens when memory runs out."
        self._failed[step.id] = reason
        self.reporter.event("step", step=step.id, status="failed", reason=reason)
        self.reporter.say(f"[red]{escape(step.id)} failed:[/] {escape(reason)}")

    def _interrupt(self) -> None:
        """Let running steps save what they have."""
        self.reporter.say("Stopping: running steps are saved …")
        for running in self._running:
            with contextlib.suppress(OSError):
                os.kill(running.process.pid or 0, signal.SIGINT)
        until = time.monotonic() + _PATIENCE
        for running in self._running:
            running.process.join(max(0.0, until - time.monotonic()))

    @contextlib.contextmanager
    def _progress(self) -> Iterator[Any]:
        """A function that shows a bar for all steps, and a line for each that is running."""
        if self.reporter.mode != "live":
            yield lambda: None
            return
        columns = [
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            TaskProgressColumn(),
            TextColumn("{task.fields[message]}"),
            TimeElapsedColumn(),
        ]
        with self.reporter.progress(*columns) as progress:
            whole = progress.add_task("all steps", total=len(self._steps), message="")
            lines: dict[str, TaskID] = {}
            yield lambda: self._show(progress, whole, lines)

    def _show(self, progress: Progress, whole: TaskID, lines: dict[str, TaskID]) -> None:
        running = {running.step.id: running for running in self._running}
        for id in [id for id in lines if id not in running]:
            progress.remove_task(lines.pop(id))
        for id, entry in running.items():
            if id not in lines:
                lines[id] = progress.add_task(f"  {id}", total=1.0, message="")
            progress.update(lines[id], completed=entry.share, message=f"[dim]{entry.message}[/]")
        done = len(self.finished) + sum(entry.share for entry in running.values())
        message = f"{len(self.finished)} of {len(self._steps)} steps"
        progress.update(whole, completed=done, message=message)


# -- the process of a step --------------------------------------------------------------------


def _context() -> Any:
    """New processes come from a server that has the libraries loaded and no threads."""
    if "forkserver" not in mp.get_all_start_methods():
        return mp.get_context("spawn")
    context = mp.get_context("forkserver")
    context.set_forkserver_preload(list(_PRELOAD))
    return context


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Let new processes compute with one thread, and find this elmokit, wherever it was imported from."""
    paths = [str(Path(elmokit.__file__).parent.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    values = {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1"}
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _without_main() -> Iterator[None]:
    """Keep new processes from running the caller's script, which may not expect it."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _do_in_process(
    connection: Connection, space: Workspace, step: Step, method: Method, max_time: float | None
) -> None:
    """Do one step, and report on it over a connection."""
    import torch

    if hasattr(os, "setpgid"):
        os.setpgid(0, 0)  # Ctrl-C on the terminal reaches the comparison, which passes it on
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    folder = space.step_folder(step.id)
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "log.txt", "a", encoding="utf-8") as log:
        os.dup2(log.fileno(), 1)  # what libraries print, too
        os.dup2(log.fileno(), 2)
    try:
        do_step(space, step, method, _PipeReporter(connection), max_time)
        ending: tuple[Status, str] = "done", ""
    except KeyboardInterrupt:
        ending = "interrupted", ""
    except ElmokitError as error:
        ending = "failed", f"{error.message} {error.remedy}".strip()
    except Exception as error:
        traceback.print_exc()
        ending = "failed", f"{type(error).__name__}: {error}"
    connection.send(ending)


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
        yield self._bar(description.lower(), total or 0.0, 0.0)

    @contextlib.contextmanager
    def training(self, total: int, done: int) -> Iterator[Advance]:
        """A progress bar elsewhere."""
        yield self._bar("training", total, done)

    def _bar(self, description: str, total: float, done: float) -> Advance:
        fields = {"rate": "", "loss": ""}

        def advance(amount: float, **values: Any) -> None:
            nonlocal total, done
            done += amount
            total = values.get("total", total)
            fields.update(values)
            if time.monotonic() - self._sent < _POLL:
                return
            self._sent = time.monotonic()
            share = min(1.0, done / total) if total else 0.0
            loss = f", loss {fields['loss']}" if fields["loss"] else ""
            self._connection.send((share, f"{description} {share:.0%} {fields['rate']}{loss}".rstrip()))

        return advance
