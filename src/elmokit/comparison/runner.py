"""Doing all parts of a comparison: several at once, one core each, in an order that their needs allow."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

import elmokit
from elmokit.comparison.methods import Plan
from elmokit.comparison.steps import Unit, changes_of, result_of
from elmokit.comparison.unit_progress import read_progress
from elmokit.comparison.worker import DONE, FAILED, INTERRUPTED
from elmokit.core.console import Reporter
from elmokit.core.errors import RunError

__all__ = ["Grid", "Outcome"]

_POLL = 0.5
# The first place to look for modules would be where a person happens to be, with a random.py of their own.
_WORKER = "import sys; sys.path.pop(0); from elmokit.comparison.worker import main; main()"
_PATIENCE = 60.0  # seconds that parts have to save what they did


@dataclass(frozen=True)
class RunSummary:
    """How the steps went: reasons by step id."""

    failed: Mapping[str, str] = field(default_factory=dict)
    skipped: Mapping[str, str] = field(default_factory=dict)
    interrupted: bool = False


@dataclass
class Outcome:
    """How the parts went: reasons by unit id."""

    failed: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    interrupted: bool = False


class Grid:
    """All parts of a comparison.

    Args:
        work: the folder that holds their folders.
        units: all of them; what others need comes first.
        plan: whose methods they are of.
        made: what each is made from, by unit id.
        encoder: a biLM folder that was given instead of one to be pretrained.
        mark: its mark.
        costs: estimated seconds by unit id.
        deadline: when no further part is begun, by ``time.monotonic``.
        reporter: who is told.
    """

    def __init__(
        self,
        work: Path,
        units: Sequence[Unit],
        plan: Plan,
        *,
        made: Mapping[str, Mapping[str, Any]],
        encoder: Path | None,
        mark: str,
        costs: Mapping[str, float],
        deadline: float | None,
        reporter: Reporter,
    ) -> None:
        self.work, self.plan, self.encoder, self.mark = work, plan, encoder, mark
        self.costs, self.deadline, self.reporter = dict(costs), deadline, reporter
        self.outcome = Outcome()
        self._units = list(units)
        self._done = {unit.id for unit in units if self._is_done(unit, made[unit.id])}
        self._running: dict[str, float] = {}
        self._changed = threading.Condition()
        self._workers: list[subprocess.Popen[str]] = []

    def _is_done(self, unit: Unit, made: Mapping[str, Any]) -> bool:
        """Whether a part is finished; one that was made from something else is refused."""
        result = result_of(self.work, unit)
        if result is None:
            return False
        if changes := changes_of(result.get("made", {}), made):
            raise RunError(
                f"{self.work.parent} holds the part {unit.id}, made with other settings "
                f"({', '.join(changes)}).",
                remedy="Repeat the settings of before, give the method another name "
                "([method.NAME] like = ...), or choose another --out.",
            )
        return True

    @property
    def n_done(self) -> int:
        """Parts that are finished."""
        return len(self._done)

    def run(self, n_workers: int) -> Outcome:
        """Do what is not done yet."""
        waiting = [unit for unit in self._units if unit.id not in self._done]
        if not waiting:
            return self.outcome
        ended = [threading.Event() for _ in range(max(1, min(n_workers, len(waiting))))]
        with self._shown():
            for event in ended:
                threading.Thread(target=self._serve, args=(event,), daemon=True).start()
            try:
                self._wait(ended, None)
            except KeyboardInterrupt:
                self._interrupt()
                self._wait(ended, _PATIENCE)
        for worker in self._workers:
            with contextlib.suppress(OSError):
                assert worker.stdin is not None
                worker.stdin.close()
        return self.outcome

    def _wait(self, ended: Sequence[threading.Event], seconds: float | None) -> None:
        """Until all workers' threads are over. (Joining them would take an interrupt for their end.)"""
        until = None if seconds is None else time.monotonic() + seconds
        while not all(event.is_set() for event in ended):
            if until is not None and time.monotonic() > until:
                return
            time.sleep(0.05)

    def _interrupt(self) -> None:
        """Have the parts in hand save what they did."""
        with self._changed:
            self.outcome.interrupted = True
            self._changed.notify_all()
        self.reporter.say("Stopping: parts in hand are being saved …")
        for worker in self._workers:
            with contextlib.suppress(OSError):
                if hasattr(os, "killpg"):
                    os.killpg(worker.pid, signal.SIGINT)
                else:
                    worker.terminate()

    # -- one worker ---------------------------------------------------------------------------

    def _serve(self, ended: threading.Event) -> None:
        worker: subprocess.Popen[str] | None = None
        try:
            while (unit := self._next()) is not None:
                try:
                    if worker is None or worker.poll() is not None:
                        worker = self._started()
                    code, why = (INTERRUPTED, "") if self.outcome.interrupted else self._ask(worker, unit)
                except Exception as error:  # whatever it is, the other parts go on
                    code, why = FAILED, f"{type(error).__name__}: {error}"
                self._ended(unit, code, why)
        finally:
            ended.set()

    def _next(self) -> Unit | None:
        """The first part whose needs are met; None when there is nothing left that this worker could do."""
        with self._changed:
            while not self.outcome.interrupted:
                over = self.deadline is not None and time.monotonic() > self.deadline
                for unit in self._waiting():
                    failed = [need for need in unit.needs if need in self.outcome.failed]
                    missing = [need for need in unit.needs if need in self.outcome.left_out]
                    if failed:
                        self.outcome.failed[unit.id] = self.outcome.failed[failed[0]]
                    elif missing or over:
                        self.outcome.left_out[unit.id] = "The time allowed was over before it began."
                    elif set(unit.needs) <= self._done:
                        self._running[unit.id] = time.monotonic()
                        return unit
                if not self._waiting():
                    return None
                self._changed.wait(_POLL)
        return None

    def _waiting(self) -> list[Unit]:
        over = self.outcome.failed.keys() | self.outcome.left_out.keys() | self._running.keys() | self._done
        return [unit for unit in self._units if unit.id not in over]

    def _started(self) -> subprocess.Popen[str]:
        # The package that runs now is the one to run there, wherever it was imported from.
        source = str(Path(elmokit.__file__).parent.parent)
        paths = [source, *filter(None, [os.environ.get("PYTHONPATH")])]
        log = open(self.work / "worker.log", "a", encoding="utf-8")  # noqa: SIM115 (the worker's own)
        with log:
            worker = subprocess.Popen(
                [sys.executable, "-c", _WORKER, str(self.work)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                encoding="utf-8",
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
            )
        self._workers.append(worker)
        assert worker.stdout is not None
        if not worker.stdout.readline():
            raise RuntimeError(f"a worker did not start; see {self.work / 'worker.log'}")
        return worker

    def _ask(self, worker: subprocess.Popen[str], unit: Unit) -> tuple[int, str]:
        method = self.plan.method(unit.method)
        task = {
            "unit": asdict(unit),
            "method": asdict(method),
            "encoder": str(self.encoder) if self.encoder else "",
            "mark": self.mark,
        }
        self.reporter.event("unit", unit=unit.id, status="begun")
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write(json.dumps(task) + "\n")
        worker.stdin.flush()
        answer = worker.stdout.readline()
        if not answer:
            return FAILED, f"Its worker is gone; see {self.work / 'worker.log'}."
        code = int(json.loads(answer)["code"])
        return code, "" if code in (DONE, INTERRUPTED) else _why(self.work / "units" / unit.id, code)

    def _ended(self, unit: Unit, code: int, why: str) -> None:
        is_done = code == DONE and result_of(self.work, unit) is not None
        with self._changed:
            spent = time.monotonic() - self._running.pop(unit.id)
            if is_done:
                self._done.add(unit.id)
            elif code == INTERRUPTED or self.outcome.interrupted:
                self.outcome.interrupted = True
            else:
                self.outcome.failed[unit.id] = why
            self._changed.notify_all()
        with contextlib.suppress(OSError):  # nobody may be there to be told
            if is_done:
                self.reporter.event("unit", unit=unit.id, status="done", seconds=round(spent, 1))
                if self.reporter.mode == "plain":
                    self.reporter.say(f"  done {escape(unit.id)} [dim]({spent:,.0f} s)[/]")
            elif unit.id in self.outcome.failed:
                self.reporter.event("unit", unit=unit.id, status="failed", reason=why)
                self.reporter.say(f"[red]{escape(unit.id)} failed:[/] {escape(why)}")

    # -- showing ------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _shown(self) -> Iterator[None]:
        """A bar for all parts and a line for each that is being worked on."""
        if self.reporter.mode != "live":
            yield
            return
        columns = [
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            TaskProgressColumn(),
            TextColumn("{task.fields[told]}"),
            TimeElapsedColumn(),
        ]
        total = sum(self.costs.get(unit.id, 1.0) for unit in self._units)
        over = threading.Event()
        with self.reporter.progress(*columns) as progress:
            whole = progress.add_task("all parts", total=total, told="")
            watcher = threading.Thread(target=self._watch, args=(progress, whole, over), daemon=True)
            watcher.start()
            try:
                yield
            finally:
                over.set()
                watcher.join()

    def _watch(self, progress: Progress, whole: Any, over: threading.Event) -> None:
        lines: dict[str, Any] = {}
        begun, first = time.monotonic(), sum(self.costs.get(id, 1.0) for id in self._done)
        while not over.wait(_POLL):
            with self._changed:
                running, done = dict(self._running), set(self._done)
            for id in [id for id in lines if id not in running]:
                progress.remove_task(lines.pop(id))
            amount = sum(self.costs.get(id, 1.0) for id in done)
            for id in running:
                if id not in lines:
                    lines[id] = progress.add_task(f"  {id}", total=1.0, told="")
                share, told = read_progress(self.work / "units" / id / "progress.json")
                amount += share * self.costs.get(id, 1.0)
                progress.update(lines[id], completed=share, told=f"[dim]{told}[/]")
            total = progress.tasks[0].total or 1.0
            rate = (amount - first) / max(1e-9, time.monotonic() - begun)
            left = (total - amount) / rate if rate > 0 else 0.0
            told = f"{len(done)} of {len(self._units)} parts" + (
                f", about {_clock(left)} left" if left else ""
            )
            progress.update(whole, completed=amount, told=told)


def _why(folder: Path, code: int) -> str:
    """Why a part failed, in a sentence."""
    try:
        return (folder / "failed.txt").read_text(encoding="utf-8").strip()
    except OSError:
        pass
    if code == -signal.SIGKILL:
        return "Its process was killed, as happens when memory runs out."
    return f"Its process ended with code {code}; see {folder / 'log.txt'}."


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(int(minutes), 60)
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{seconds:02}s"
