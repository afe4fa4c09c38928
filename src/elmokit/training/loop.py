"""The one training loop: steps, evaluation, checkpoints, exact resume, recovery from divergence, metrics.

A run is a folder. ``checkpoint.safetensors`` holds all that decides the future: weights, moving average,
optimizer, random generator, carried state and position. Killed at any moment and started again, a run ends
with the same bits as one that was left alone, unless a time limit lets its speed decide on the steps.
"""

from __future__ import annotations

import contextlib
import json
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from elmokit.core.atomic import explain_os_errors, write_text
from elmokit.core.config import RunConfig
from elmokit.core.console import Advance, Reporter
from elmokit.core.errors import RunError
from elmokit.core.tensors import load_tensors, save_tensors
from elmokit.training.machine import tuned_process
from elmokit.training.optimizer import Optimizer, learning_rate
from elmokit.training.processes import Processes, stop_signals

Carry = dict[str, Tensor]
"""State that one step passes to the next (the LSTM state of the streams), by name."""

_CHECKPOINT = "checkpoint.safetensors"
_MAX_STEPS_BACK = 5
_PLAN_AFTER = 20  # steps measured before a time limit is turned into a number of steps
_LONG_WRITE = 1.2  # seconds for a checkpoint: a fiftieth of the default time between two
_PLAN_SHARE = 0.93  # of the remaining time is for steps, the rest for evaluation and saving


@dataclass(frozen=True)
class StepResult:
    """Of one step: the mean loss to minimize, the number of words, and the state after it."""

    loss: Tensor
    n_words: int
    carry: Carry


class Trainable(Protocol):
    """What the loop can train."""

    def parameters(self) -> Mapping[str, nn.Parameter]:
        """All trained parameters by name."""

    def lr_scales(self) -> Mapping[str, float]:
        """Factors for the learning rates of parameters; 1 for those not named."""

    def steps_per_epoch(self) -> int:
        """Steps in a pass over the data."""

    def start_epoch(self, epoch: int) -> Carry:
        """Put the data in the order of this epoch; return the state before its first step."""

    def step(self, index: int, carry: Carry, rng: torch.Generator) -> StepResult:
        """The loss of step ``index`` of the epoch that was started last, with a graph or with its gradients
        already in the parameters; of several processes, this one's term of it."""

    def evaluate(self) -> dict[str, float]:
        """Held-out figures, ``score`` among them (lower is better); empty if nothing is held out."""


Stopped = Literal["done", "early", "time", "interrupted"]
"""All steps done, no more gain, time limit reached, or stopped by a signal."""


@dataclass
class Position:
    """How far a run is; saved in every checkpoint."""

    step: int = 0
    n_steps: int | None = None
    seconds: float = 0.0
    n_words: int = 0
    lr_scale: float = 1.0
    n_steps_back: int = 0
    best_score: float | None = None
    best_step: int = 0
    n_evals_without_gain: int = 0
    history: list[dict[str, float]] = field(default_factory=list)
    stopped: Stopped | None = None


@dataclass(frozen=True)
class TrainingResult:
    """How a run ended, with the best weights by held-out score, or the last ones."""

    stopped: Stopped
    position: Position
    weights: dict[str, Tensor]
    was_done: bool = False  # there was nothing left to do


def train(
    task: Trainable,
    config: RunConfig,
    folder: Path,
    *,
    reporter: Reporter,
    checkpoint_every: float = 60.0,
    processes: Processes | None = None,
) -> TrainingResult:
    """Train ``task`` to the end, resuming the run in ``folder`` if there is one.

    Of several ``processes``, each calls this with its own share of the task; the first one writes.
    """
    with tuned_process():
        return _Run(task, config, folder, reporter, checkpoint_every, processes or Processes()).go()


def reopen(folder: Path) -> None:
    """Let the finished run in ``folder`` go on when it is trained with a higher limit.

    The learning rate goes on at its place in the longer schedule.
    """
    tensors, position = load_tensors(folder / _CHECKPOINT)
    save_tensors(folder / _CHECKPOINT, tensors, {**position, "n_steps": None, "stopped": None})


class _Run:
    def __init__(
        self,
        task: Trainable,
        config: RunConfig,
        folder: Path,
        reporter: Reporter,
        checkpoint_every: float,
        processes: Processes,
    ) -> None:
        self.task, self.config, self.folder, self.reporter = task, config, folder, reporter
        self.checkpoint_every, self.processes = checkpoint_every, processes
        self.parameters = dict(task.parameters())
        self.optimizer = Optimizer(
            self.parameters,
            kind=config.optimizer,
            weight_decay=config.weight_decay,
            lr_scales=task.lr_scales(),
        )
        self.rng = torch.Generator().manual_seed(config.seed)
        self.position = Position()
        self.carry: Carry = {}
        self.per_epoch = task.steps_per_epoch()
        self.file, self.best_file = folder / _CHECKPOINT, folder / "best.safetensors"
        self.is_first = processes.rank == 0
        self.is_new = processes.highest([float(self.is_first and not self.file.exists())]) == [1.0]
        if self.is_new:
            weights, _ = processes.from_first({name: p.detach() for name, p in self.parameters.items()}, {})
            _copy_into(self.parameters, weights)
        self.average = {name: p.detach().clone() for name, p in self.parameters.items()} if config.ema else {}
        if not self.is_new:
            self.load()
        self.log = MetricsLog(folder / "metrics.jsonl" if self.is_first else None, upto=self.position.step)
        n_steps = config.epochs * self.per_epoch
        self.limit = min(n_steps, config.max_steps) if config.max_steps else n_steps
        self.max_time = config.max_time or math.inf
        if config.max_time is None:
            self.position.n_steps = self.limit

    # -- saving -------------------------------------------------------------------------------

    def save(self) -> None:
        carry = self.processes.join_streams(self.carry)
        if not self.is_first:
            return
        parts: dict[str, Mapping[str, Tensor]] = {
            "weights": self.parameters,
            "average": self.average,
            "optimiser": self.optimizer.tensors(),  # as checkpoints of 0.1 spell it
            "carry": carry,
        }
        tensors = {
            f"{part}.{name}": value for part, values in parts.items() for name, value in values.items()
        }
        save_tensors(self.file, {**tensors, "rng": self.rng.get_state()}, asdict(self.position))

    def load(self) -> None:
        tensors, meta = load_tensors(self.file) if self.is_first else ({}, {})
        tensors, meta = self.processes.from_first(tensors, meta)

        def part(prefix: str) -> dict[str, Tensor]:
            names = [name for name in tensors if name.startswith(prefix)]
            return {name.removeprefix(prefix): tensors[name] for name in names}

        _copy_into(self.parameters, part("weights."))
        average = part("average.")  # in the order of the file, not of the parameters
        self.average = {name: average[name].clone() for name in self.parameters} if self.config.ema else {}
        self.optimizer.load_tensors(part("optimiser."))
        carry = part("carry.")
        n_streams = max((len(tensor) for tensor in carry.values()), default=0)
        own = self.processes.part(n_streams, n_streams)
        self.carry = {name: tensor[own].clone() for name, tensor in carry.items()}
        self.rng.set_state(tensors["rng"])
        self.position = Position(**meta)

    # -- running ------------------------------------------------------------------------------

    def go(self) -> TrainingResult:
        place = self.position
        if place.stopped is not None:
            return self.result(place.stopped, was_done=True)
        if self.is_new:
            self.save()
        elif place.step:
            self.reporter.say(f"Resuming from step {place.step:,}.")
        if place.step % self.per_epoch:
            self.task.start_epoch(place.step // self.per_epoch)
        total = place.n_steps or self.limit
        progress = self.reporter.training(total, place.step)
        with _stop_signal(self.reporter.say) as self.stop, progress as advance:
            stopped = self.loop(advance)
        if stopped != "interrupted":
            self.position.stopped = stopped
        self.save()
        return self.result(stopped)

    def loop(self, advance: Advance) -> Stopped:
        self.saved = self.counted = time.monotonic()
        self.pause = self.checkpoint_every
        planned = self.position.seconds
        planned_step, log_every = self.position.step, max(1, self.per_epoch // 50)
        n_evals = min(self.config.evals_per_epoch, self.per_epoch)
        while self.position.step < (self.position.n_steps or self.limit):
            place = self.position
            epoch, index = divmod(place.step, self.per_epoch)
            if index == 0:
                self.carry = self.task.start_epoch(epoch)
            # Before a time limit is turned into a number of steps, warm up as if every epoch would be run.
            lr = learning_rate(place.step, place.n_steps or self.limit, self.config) * place.lr_scale
            loss, norm, n_words, stopping, saving = self.step(index, lr)
            if not math.isfinite(loss + norm):
                self.step_back(loss, norm)
                continue
            place.step += 1
            place.n_words += n_words
            speed = place.n_words / max(place.seconds, 0.001)
            advance(1, rate=f"{speed:,.0f} words/s", loss=f"{loss:.3f}")
            if place.step % log_every == 0:
                figures = {"loss": loss, "lr": lr, "gradient_norm": norm, "n_words": place.n_words}
                self.log.add("train", place.step, **figures, seconds=round(place.seconds, 3))
                self.reporter.event("train", step=place.step, epoch=epoch, **figures)
            n_since = place.step - planned_step
            # Again each time as much time has passed as before: the first steps may be slow or fast.
            since = place.seconds - planned
            is_due = n_since >= _PLAN_AFTER and since > max(2.0, place.seconds / 2)
            if is_due and self.max_time < math.inf:
                self.plan(since / n_since, advance)
                planned, planned_step = place.seconds, place.step
            out_of_time = place.seconds >= self.max_time
            is_last = out_of_time or place.step >= (place.n_steps or self.limit)
            if is_last or (index + 1) * n_evals // self.per_epoch > index * n_evals // self.per_epoch:
                gained = self.evaluate(epoch, advance)
                if not gained and not is_last and 0 < self.config.patience <= place.n_evals_without_gain:
                    return "early"
            if out_of_time:
                return "time"
            if stopping:
                return "interrupted"
            if saving:
                before = time.monotonic()
                self.save()
                self.saved = time.monotonic()
                # What takes long to write is written less often: benchmarks/simulate_cluster.py.
                self.pause = self.checkpoint_every * max(1.0, (self.saved - before) / _LONG_WRITE)
        return "done" if self.position.step >= self.limit else "time"

    def step(self, index: int, lr: float) -> tuple[float, float, int, bool, bool]:
        """One update: the loss, the norm of the gradient, words, whether to stop, and whether to save.

        Weights and carried state change only if loss and gradient are finite.
        """
        self.optimizer.zero_grad()
        result = self.task.step(index, self.carry, self.rng)
        if result.loss.requires_grad:
            result.loss.backward()
        now = time.monotonic()
        spent, self.counted = now - self.counted, now  # saving and evaluating included
        is_due = now - self.saved >= self.pause
        own = [float(result.loss.detach()), float(self.stop.is_set())]
        own += [spent, float(is_due)] if self.is_first else [0.0, 0.0]
        # All decide alike what depends on time.
        loss, stop, spent, save = self.processes.add_gradients(self.parameters, own)
        self.position.seconds += spent
        if not math.isfinite(loss):
            return loss, 0.0, 0, False, False
        norm = self.optimizer.clip(self.config.clip_norm)
        if math.isfinite(norm):
            self.optimizer.step(lr)
            self.carry = result.carry
            if self.average:
                # The decay grows with the steps, so that short runs have an average, too.
                decay = min(self.config.ema, (1 + self.position.step) / (10 + self.position.step))
                weights = [p.detach() for p in self.parameters.values()]
                torch._foreach_lerp_(list(self.average.values()), weights, 1 - decay)
        return loss, norm, result.n_words, stop > 0, save > 0

    def plan(self, seconds_per_step: float, advance: Advance) -> None:
        """Turn a time limit into a number of steps, so that the schedule ends in time."""
        place = self.position
        left = max(0.0, self.max_time - place.seconds) * _PLAN_SHARE
        place.n_steps = max(place.step + 1, min(self.limit, place.step + int(left / seconds_per_step)))
        self.save()
        advance(0, total=place.n_steps)

    def step_back(self, loss: float, norm: float) -> None:
        """Return to the last checkpoint with half the learning rate, a few times at most."""
        before, at = self.position, self.position.step + 1
        what = f"loss {loss}" if not math.isfinite(loss) else f"gradient norm {norm}"
        if before.n_steps_back == _MAX_STEPS_BACK:
            raise RunError(
                f"Training diverged at step {at} ({what}), for the sixth time in this run.",
                remedy="Lower lr or clip_norm (--set lr=...) and start over in a new folder.",
            )
        self.load()
        place = self.position
        place.n_steps_back, place.lr_scale = before.n_steps_back + 1, before.lr_scale / 2
        place.seconds = before.seconds
        if place.step % self.per_epoch:
            self.task.start_epoch(place.step // self.per_epoch)
        self.save()
        where = f"back to step {place.step}, learning rate halved"
        self.reporter.say(f"[yellow]Step {at} diverged ({what}): {where}.[/]")
        self.log.add("step_back", at, back_to=place.step, lr_scale=place.lr_scale)

    # -- evaluating ---------------------------------------------------------------------------

    def evaluate(self, epoch: int, advance: Advance) -> bool:
        """Measure the (averaged) weights on held-out data; keep them if they are the best so far."""
        place = self.position
        advance(0, held_out="evaluating")
        with self.averaged():
            figures = self.task.evaluate()
            if not figures:
                return True
            gained = figures["score"] < (math.inf if place.best_score is None else place.best_score)
            place.n_evals_without_gain = 0 if gained else place.n_evals_without_gain + 1
            if gained:
                place.best_score, place.best_step = figures["score"], place.step
                if self.is_first:
                    save_tensors(self.best_file, self.parameters, {"step": place.step})
        measured = {name: value for name, value in figures.items() if name != "score"}
        place.history.append({"step": place.step, "epoch": epoch + 1, **measured})
        self.log.add("valid", place.step, epoch=epoch + 1, **measured)
        self.reporter.event("valid", step=place.step, epoch=epoch + 1, **measured)
        texts = [f"{name.replace('_', ' ')} {value:,.4g}" for name, value in measured.items()]
        self.reporter.say(
            f"[dim]step {place.step:>7,}  epoch {epoch + 1:>3}[/]  held out: {'  '.join(texts)}"
        )
        advance(0, held_out=f"held-out {''.join(texts[:1])}")
        if gained:
            self.save()  # so that a step back never goes to before the weights in best_file
        return gained

    @contextlib.contextmanager
    def averaged(self) -> Iterator[None]:
        """Inside the block, the parameters are the moving average."""
        own = {name: p.detach().clone() for name, p in self.parameters.items() if self.average}
        _copy_into(self.parameters, self.average)
        try:
            yield
        finally:
            _copy_into(self.parameters, own)

    def result(self, stopped: Stopped, *, was_done: bool = False) -> TrainingResult:
        source = self.average or self.parameters
        weights = {name: tensor.detach().clone() for name, tensor in source.items()}
        if self.is_first and self.position.best_score is not None and self.best_file.exists():
            best, meta = load_tensors(self.best_file)
            weights = best if meta["step"] == self.position.best_step else weights
        weights, _ = self.processes.from_first(weights, {})
        return TrainingResult(stopped, self.position, weights, was_done)


@torch.no_grad()
def _copy_into(parameters: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    for name, value in values.items():
        parameters[name].copy_(value)


@contextlib.contextmanager
def _stop_signal(say: Callable[[str], None]) -> Iterator[threading.Event]:
    """An event that the first Ctrl-C, SIGTERM or SIGHUP sets; a second one ends the program at once."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        say("[yellow]Stopping after this step. Press Ctrl-C again to quit now.[/]")

    before = {number: signal.signal(number, handle) for number in stop_signals()}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class MetricsLog:
    """``metrics.jsonl``: one JSON object a line. On resuming, lines past the checkpoint are removed.

    Without a path, nothing is written.
    """

    def __init__(self, path: Path | None, *, upto: int) -> None:
        self._path = path
        if path is not None and path.exists():
            lines = path.read_bytes().decode("utf-8", "replace").splitlines(keepends=True)
            write_text(path, "".join(line for line in lines if _step_of(line) <= upto))

    def add(self, kind: str, step: int, **values: Any) -> None:
        """Append one record."""
        if self._path is None:
            return
        with explain_os_errors(self._path), open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"event": kind, "step": step, **values}) + "\n")

    @staticmethod
    def losses(path: Path) -> list[tuple[int, float]]:
        """The steps that were logged in training, and their losses; none without a file."""
        records = map(json.loads, path.read_text(encoding="utf-8").splitlines() if path.exists() else ())
        return [(one["step"], one["loss"]) for one in records if one["event"] == "train"]


def _step_of(line: str) -> float:
    """The step of a record; infinite for one that is truncated or damaged, so that it is removed."""
    try:
        return float(json.loads(line)["step"]) if line.endswith("\n") else math.inf
    except (ValueError, KeyError, TypeError):
        return math.inf
