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
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeElapsedColumn

import elmokit
from elmokit.comparison.methods import Method, Plan
from elmokit.comparison.steps import Step, StepResult, Workspace, do_step
from elmokit.core.console import Advance, Reporter
from elmokit.core.errors import ElmokitError, RunError

_PRELOAD = (  # imported once, not in every step
    *("elmokit.comparison.steps", "gensim.models", "scipy.stats", "sklearn.feature_extraction.text"),
    *("sklearn.linear_model", "sklearn.metrics", "sklearn.svm", "torch._dynamo"),
)
_POLL, _PATIENCE = 0.5, 60.0  # seconds between reports of a step; that it has to save when interrupted


@dataclass(frozen=True)
class RunSummary:
    """How the steps went: reasons by step id."""

    failed: Mapping[str, str] = field(default_factory=dict)
    skipped: Mapping[str, str] = field(default_factory=dict)
    interrupted: bool = False


@dataclass
class _Running:
    """A step that is being done; ``ending`` is its status and reason once it has told them."""

    step: Step
    process: BaseProcess
    bar: TaskID
    start: float
    ending: tuple[str, str] = ("", "")


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
        self._running: dict[Any, _Running] = {}  # by connection
        self.finished = {step.id for step in steps if self._is_finished(step)}

    def _is_finished(self, step: Step) -> bool:
        """Whether a step was done before; one with other inputs is refused."""
        result = StepResult.load(self.space.step_folder(step.id))
        if result is None:
            return False
        before, now = result.inputs, self.space.inputs(step, self.plan.method(step.method))
        if changes := sorted(name for name in {*before, *now} if before.get(name) != now.get(name)):
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
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=30), TaskProgressColumn())
        more = (TextColumn("{task.fields[message]}"), TimeElapsedColumn())
        try:
            with self.reporter.progress(*columns, *more) as bars:
                total = bars.add_task(
                    "all steps", total=len(places), completed=len(self.finished), message=""
                )
                while order.is_active():
                    waiting = sorted([*waiting, *order.get_ready()], key=places.index)
                    settled = [id for id in waiting if self._is_settled(self._steps[id])]
                    waiting = [id for id in waiting if id not in settled]
                    while waiting and not settled and len(self._running) < n_workers:
                        self._start(self._steps[waiting.pop(0)], bars)
                    order.done(*settled, *([] if settled else self._wait(bars)))
                    bars.update(total, completed=len(self.finished))
        except KeyboardInterrupt:
            self._interrupt()
            return RunSummary(self._failed, self._skipped, interrupted=True)
        finally:
            for running in self._running.values():
                running.process.kill()
        return RunSummary(self._failed, self._skipped)

    def _is_settled(self, step: Step) -> bool:
        """True for a step that is finished or cannot start any more; the reason is recorded."""
        is_late = self.deadline is not None and time.monotonic() > self.deadline
        if step.id in self.finished:
            return True
        if failed := [self._failed[need] for need in step.needs if need in self._failed]:
            self._failed[step.id] = failed[0]
        elif is_late or any(need in self._skipped for need in step.needs):
            self._skipped[step.id] = "The deadline had passed before it started."
        return step.id in self._failed or step.id in self._skipped

    def _start(self, step: Step, bars: Progress) -> None:
        max_time = None
        if self.deadline is not None and step.kind == "language-model":
            max_time = max(1.0, (self.deadline - time.monotonic()) / 2)  # the other half is for fitting
        receiver, sender = mp.Pipe(duplex=False)
        arguments = (sender, self.space, step, self.plan.method(step.method), max_time)
        process = _start_process(arguments)
        sender.close()
        bar = bars.add_task(f"  {step.id}", total=1.0, message="")
        self._running[receiver] = _Running(step, process, bar, time.monotonic())
        self.reporter.event("step", step=step.id, status="started")

    def _wait(self, bars: Progress) -> list[str]:
        """Take in messages for a moment; the ids of the steps that have ended."""
        ended = []
        ready: list[Any] = wait(list(self._running), _POLL)
        for connection in ready:
            running = self._running[connection]
            try:
                message = connection.recv()
            except EOFError:  # the process is gone
                self._running.pop(connection).process.join()
                bars.remove_task(running.bar)
                self._end(running)
                ended.append(running.step.id)
                continue
            if isinstance(message[0], str):
                running.ending = message
            else:
                bars.update(running.bar, completed=message[0], message=f"[dim]{message[1]}[/]")
        return ended

    def _end(self, running: _Running) -> None:
        (status, reason), id, code = running.ending, running.step.id, running.process.exitcode
        seconds = time.monotonic() - running.start
        if status == "interrupted":
            raise KeyboardInterrupt
        if status == "done":
            self.finished.add(id)
            self.reporter.event("step", step=id, status=status, seconds=round(seconds, 1))
            if self.reporter.mode == "plain":
                self.reporter.say(f"  done {escape(id)} [dim]({seconds:,.0f} s)[/]")
            return
        if code == -signal.SIGKILL:
            reason = "Its process was killed, as happens when memory runs out."
        reason = reason or f"Its process ended with code {code}; see {self.space.step_folder(id)}.log."
        self._failed[id] = reason
        self.reporter.event("step", step=id, status="failed", reason=reason)
        self.reporter.say(f"[red]{escape(id)} failed:[/] {escape(reason)}")

    def _interrupt(self) -> None:
        """Let running steps save what they have."""
        self.reporter.say("Stopping: running steps are saved …")
        for running in self._running.values():
            with contextlib.suppress(OSError):
                os.kill(running.process.pid or 0, signal.SIGINT)
        until = time.monotonic() + _PATIENCE
        for running in self._running.values():
            running.process.join(max(0.0, until - time.monotonic()))


# -- the process of a step --------------------------------------------------------------------


def _start_process(arguments: tuple[Any, ...]) -> BaseProcess:
    """Start a process from a server that has the libraries loaded and computes with one thread."""
    method = "forkserver" if "forkserver" in mp.get_all_start_methods() else "spawn"
    context: Any = mp.get_context(method)
    context.set_forkserver_preload(list(_PRELOAD))
    process: BaseProcess = context.Process(target=_do_in_process, args=arguments, daemon=True)
    # The same elmokit, and no modules from the folder where a person happens to be.
    paths = [str(Path(elmokit.__file__).parent.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    values = {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1"}
    main = {"__main__": types.ModuleType("__main__")}  # or the caller's script would run again
    with _replaced(os.environ, values), _replaced(sys.modules, main):
        process.start()
    return process


@contextlib.contextmanager
def _replaced(mapping: MutableMapping[str, Any], values: Mapping[str, Any]) -> Iterator[None]:
    """Replace entries of a mapping for a while."""
    before = {name: mapping[name] for name in values if name in mapping}
    mapping.update(values)
    try:
        yield
    finally:
        for name in values:
            del mapping[name]
        mapping.update(before)


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
    with open(f"{folder}.log", "a", encoding="utf-8") as log:
        os.dup2(log.fileno(), 1)  # what libraries print, too
        os.dup2(log.fileno(), 2)
    try:
        do_step(space, step, method, _PipeReporter(connection), max_time)
        ending = "done", ""
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
        done, goal, fields = 0.0, total or 0.0, {"rate": "", "loss": ""}

        def advance(amount: float, **values: Any) -> None:
            nonlocal done, goal
            done, goal = done + amount, values.get("total", goal)
            fields.update(values)
            if time.monotonic() - self._sent > _POLL:
                self._sent = time.monotonic()
                share = min(1.0, done / goal) if goal else 0.0
                loss = f", loss {fields['loss']}" if fields["loss"] else ""
                message = f"{description.lower()} {share:.0%} {fields['rate']}{loss}".rstrip()
                self._connection.send((share, message))

        yield advance

    @contextlib.contextmanager
    def training(self, total: int, done: int) -> Iterator[Advance]:
        """A progress bar elsewhere."""
        with self.counting("training", total) as advance:
            advance(done)
            yield advance
