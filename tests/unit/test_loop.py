"""The training loop on a toy: convergence, stopping, averages, break-downs, and exact resuming."""

from __future__ import annotations

import json
import math
import signal
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmokit.bilm.settings import TrainingConfig
from elmokit.core.console import Reporter
from elmokit.core.errors import RunError
from elmokit.core.tensors import load_tensors, save_tensors
from elmokit.training import loop
from elmokit.training.loop import Carry, MetricsLog, StepResult, TrainingResult, train

PER_EPOCH = 10


@pytest.fixture(autouse=True)
def _arithmetic() -> Iterator[None]:
    """Denormal numbers are numbers again after each test, whatever the loop did to them."""
    yield
    torch.set_flush_denormal(False)


class CrashError(Exception):
    """What a toy run dies of."""


class Clock:
    """Replaces the ``time`` module: only the test moves it."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(loop, "time", clock)
    return clock


class Toy:
    """Learns to undo a fixed map, from a stream that is shuffled anew in each epoch.

    All that a real task has is here: rows with sparse gradients, noise from the loop's generator,
    and state that is carried from step to step.

    Args:
        before: called with (step of the epoch, number of calls so far) before every step.
        spoil: called with (number of calls so far, loss); gives the loss that is reported.
        scores: what the evaluations give, one after the other; None measures for real.
        held_out: whether there is anything to evaluate on.
    """

    def __init__(
        self,
        *,
        before: Callable[[int, int], None] = lambda index, call: None,
        spoil: Callable[[int, Tensor], Tensor] = lambda call, loss: loss,
        scores: list[float] | None = None,
        held_out: bool = True,
        per_epoch: int = PER_EPOCH,
    ) -> None:
        rng = torch.Generator().manual_seed(3)
        self.own = {
            "matrix": nn.Parameter(torch.randn(4, 4, generator=rng)),
            "bias": nn.Parameter(torch.zeros(4)),
            "table": nn.Parameter(torch.randn(12, 4, generator=rng)),
        }
        self.goal = torch.randn(12, 4, generator=rng)
        self.before, self.spoil, self.scores, self.held_out = before, spoil, scores, held_out
        self.per_epoch = per_epoch
        self.n_calls = 0
        self.epochs_started: list[int] = []
        self.evaluated: list[dict[str, Tensor]] = []
        self.seen: list[dict[str, Tensor]] = []
        self.order = np.arange(12)

    def parameters(self) -> Mapping[str, nn.Parameter]:
        return self.own

    def lr_scales(self) -> Mapping[str, float]:
        return {}

    def steps_per_epoch(self) -> int:
        return self.per_epoch

    def start_epoch(self, epoch: int) -> Carry:
        self.epochs_started.append(epoch)
        self.order = np.random.default_rng(epoch).permutation(12)
        return {"trace": torch.zeros(4)}

    def predict(self, ids: Tensor) -> Tensor:
        return F.embedding(ids, self.own["table"], sparse=True) @ self.own["matrix"] + self.own["bias"]

    def step(self, index: int, carry: Carry, rng: torch.Generator) -> StepResult:
        self.seen.append(self.snapshot())
        self.before(index, self.n_calls)
        ids = torch.from_numpy(self.order[[index % 12, (index + 5) % 12, (index + 7) % 12]])
        output = self.predict(ids) + 0.05 * torch.randn(3, 4, generator=rng) + 0.1 * carry["trace"]
        loss = self.spoil(self.n_calls, (output - self.goal[ids]).square().mean())
        self.n_calls += 1
        return StepResult(loss, 3, {"trace": (0.5 * carry["trace"] + 0.1 * output.mean(dim=0)).detach()})

    def evaluate(self) -> dict[str, float]:
        if not self.held_out:
            return {}
        self.evaluated.append(self.snapshot())
        if self.scores is not None:
            return {"score": self.scores[len(self.evaluated) - 1], "n": float(len(self.evaluated))}
        with torch.no_grad():
            loss = float((self.predict(torch.arange(12)) - self.goal).square().mean())
        return {"score": loss, "loss": loss}

    def snapshot(self) -> dict[str, Tensor]:
        return {name: parameter.detach().clone() for name, parameter in self.own.items()}


def settings(**changes: Any) -> TrainingConfig:
    return TrainingConfig.from_dict({"epochs": 3, "lr": 0.05, "seed": 5, **changes})


def run(task: Toy, folder: Path, config: TrainingConfig, every: float = math.inf) -> TrainingResult:
    folder.mkdir(exist_ok=True)
    return train(task, config, folder, reporter=Reporter("silent"), checkpoint_every=every)


def records(folder: Path, event: str) -> list[dict[str, Any]]:
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [record for record in map(json.loads, lines) if record["event"] == event]


def assert_same(one: Mapping[str, Tensor], two: Mapping[str, Tensor]) -> None:
    assert one.keys() == two.keys()
    for name in one:
        assert torch.equal(one[name], two[name]), name


def assert_same_run(one: Path, two: Path) -> None:
    """Everything that decides the future is the same, to the bit."""
    tensors, meta = load_tensors(one / "checkpoint.safetensors")
    others, other_meta = load_tensors(two / "checkpoint.safetensors")
    assert_same(tensors, others)
    for record in (meta, other_meta):
        record.pop("seconds")
    assert meta == other_meta


def crash_at(*calls: int) -> Callable[[int, int], None]:
    """Dies at these calls of ``step``."""

    def before(index: int, call: int) -> None:
        if call in calls:
            raise CrashError

    return before


# -- running to an end ----------------------------------------------------------------------------


def test_training_converges_and_keeps_the_best_weights(tmp_path: Path) -> None:
    task = Toy()
    start = task.evaluate()["score"]
    result = run(task, tmp_path, settings(epochs=30))
    assert result.stopped == "done"
    assert result.position.stopped
    assert result.position.step == 30 * PER_EPOCH
    assert result.position.n_words == 3 * 30 * PER_EPOCH
    assert result.position.best_score is not None
    assert result.position.best_score < 0.05 * start
    history = result.position.history
    assert len(history) == 30
    assert result.position.best_score == min(entry["loss"] for entry in history)
    assert_same(result.weights, task.evaluated[result.position.best_step // PER_EPOCH])


@pytest.mark.parametrize(("max_steps", "steps"), [(17, [10, 17]), (500, [10, 20])])
def test_max_steps_ends_the_run_unless_the_epochs_end_first(
    tmp_path: Path, max_steps: int, steps: list[int]
) -> None:
    result = run(Toy(), tmp_path, settings(epochs=2, max_steps=max_steps))
    assert (result.stopped, result.position.step) == ("done", steps[-1])
    assert [entry["step"] for entry in result.position.history] == steps


@pytest.mark.parametrize(
    ("often", "steps"),
    [(3, [4, 7, 10, 14, 17, 20]), (99, list(range(1, 21)))],
)
def test_evaluations_are_spread_over_the_epoch_and_end_with_it(
    tmp_path: Path, often: int, steps: list[int]
) -> None:
    result = run(Toy(), tmp_path, settings(epochs=2, evals_per_epoch=often))
    assert [entry["step"] for entry in result.position.history] == steps
    assert [record["step"] for record in records(tmp_path, "valid")] == steps


def test_without_held_out_figures_the_last_weights_are_kept(tmp_path: Path) -> None:
    task = Toy(held_out=False)
    result = run(task, tmp_path, settings(patience=1))
    assert result.stopped == "done"
    assert result.position.history == []
    assert_same(result.weights, task.snapshot())


def test_patience_ends_the_run_early_with_the_best_weights(tmp_path: Path) -> None:
    task = Toy(scores=[5.0, 4.0, 4.5, 4.0, 3.0, 2.0])
    result = run(task, tmp_path, settings(epochs=6, patience=2))
    assert result.stopped == "early"
    assert result.position.step == 4 * PER_EPOCH
    assert (result.position.best_score, result.position.best_step) == (4.0, 2 * PER_EPOCH)
    assert_same(result.weights, task.evaluated[1])


@pytest.mark.parametrize("ending", ["done", "early"])
def test_a_finished_run_called_again_does_no_step_and_gives_the_same_answer(
    tmp_path: Path, ending: str
) -> None:
    config = settings(epochs=4, patience=1)
    scores = [4.0, 5.0, 3.0, 2.0] if ending == "early" else [4.0, 3.0, 2.0, 1.0]
    first = run(Toy(scores=scores), tmp_path, config)
    assert first.stopped == ending
    task = Toy(scores=scores)
    second = run(task, tmp_path, config)
    assert task.n_calls == 0
    assert_same(first.weights, second.weights)
    assert first.position == second.position
    assert second.stopped == first.stopped


def test_the_loop_works_outside_the_main_thread_with_the_same_result(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(run, Toy(), tmp_path / "thread", settings()).result()
    assert_same(result.weights, run(Toy(), tmp_path / "main", settings()).weights)


# -- time -----------------------------------------------------------------------------------------


def ticking(clock: Clock, seconds: float, *crashes: int) -> Callable[[int, int], None]:
    """Every step takes so long; those in ``crashes`` die."""

    def before(index: int, call: int) -> None:
        clock.now += seconds
        if call in crashes:
            raise CrashError

    return before


def test_max_time_is_turned_into_steps_so_that_the_learning_rate_falls_to_its_end(
    tmp_path: Path, clock: Clock
) -> None:
    config = settings(epochs=1000, max_time=20, warmup=0.0, lr=0.01)
    result = run(Toy(before=ticking(clock, 0.1)), tmp_path, config)
    assert result.stopped == "time"
    assert result.position.n_steps is not None
    assert 150 < result.position.step == result.position.n_steps <= 200
    assert result.position.seconds <= 20
    rates = [record["lr"] for record in records(tmp_path, "train")]
    assert rates[-1] < 0.02 * rates[0]


@pytest.mark.parametrize(("first", "then"), [(0.3, 0.1), (0.1, 0.15)])
def test_plan_follows_the_speed_so_that_the_time_is_used(
    tmp_path: Path, clock: Clock, first: float, then: float
) -> None:
    def before(index: int, call: int) -> None:
        clock.now += first if call < 30 else then

    config = settings(epochs=10_000, max_time=100, warmup=0.0, lr=0.01)
    result = run(Toy(before=before), tmp_path, config)
    assert (result.stopped, result.position.step) == ("time", result.position.n_steps)
    assert 90 < result.position.seconds <= 100


def test_checkpoints_that_take_long_are_written_less_often(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[int] = []

    def save_slowly(*content: Any) -> None:
        clock.now += 12
        steps.append(task.n_calls)
        save_tensors(*content)

    def work(index: int, call: int) -> None:
        clock.now += 10

    monkeypatch.setattr(loop, "save_tensors", save_slowly)
    task = Toy(before=work, held_out=False, per_epoch=100)
    run(task, tmp_path / "run", settings(epochs=2), every=60.0)
    assert steps == [0, 6, 66, 126, 186, 200]  # after a minute; then every ten, so that a fiftieth is writing


def test_time_is_counted_over_crashes(tmp_path: Path, clock: Clock) -> None:
    config = settings(epochs=100, max_time=4)
    with pytest.raises(CrashError):
        run(Toy(before=ticking(clock, 0.25, 6)), tmp_path, config, every=0.0)
    result = run(Toy(before=ticking(clock, 0.25)), tmp_path, config, every=0.0)
    assert (result.stopped, result.position.step) == ("time", 16)


# -- moving average -------------------------------------------------------------------------------


def by_hand(weights: list[dict[str, Tensor]], decay: float) -> dict[str, Tensor]:
    """The moving average of the weights before the first step and after every step."""
    average = {name: tensor.double() for name, tensor in weights[0].items()}
    for step, current in enumerate(weights[1:]):
        rate = min(decay, (1 + step) / (10 + step))
        average = {name: rate * average[name] + (1 - rate) * current[name].double() for name in average}
    return average


def test_moving_average_equals_a_hand_computation(tmp_path: Path) -> None:
    task = Toy(held_out=False)
    result = run(task, tmp_path, settings(ema=0.3))
    expected = by_hand([*task.seen, task.snapshot()], 0.3)
    for name, tensor in result.weights.items():
        torch.testing.assert_close(tensor.double(), expected[name], rtol=1e-5, atol=1e-6)
    assert not torch.equal(result.weights["matrix"], task.own["matrix"])


def test_evaluation_sees_the_average_and_training_continues_from_the_weights(tmp_path: Path) -> None:
    task, plain = Toy(), Toy()
    run(task, tmp_path / "ema", settings(ema=0.9))
    run(plain, tmp_path / "plain", settings())
    for one, two in zip(task.seen, plain.seen, strict=True):
        assert_same(one, two)
    expected = by_hand([*task.seen, task.snapshot()][: PER_EPOCH + 1], 0.9)
    for name, tensor in task.evaluated[0].items():
        torch.testing.assert_close(tensor.double(), expected[name], rtol=1e-5, atol=1e-6)


# -- break-downs ----------------------------------------------------------------------------------


def nan_at(*calls: int) -> Callable[[int, Tensor], Tensor]:
    return lambda call, loss: loss * math.nan if call in calls else loss


class Overflow(torch.autograd.Function):
    """A finite loss with gradients that are not."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0] * math.inf


def bad_gradient_at(*calls: int) -> Callable[[int, Tensor], Tensor]:
    def spoil(call: int, loss: Tensor) -> Tensor:
        if call not in calls:
            return loss
        spoilt: Tensor = Overflow.apply(loss)  # type: ignore[no-untyped-call]
        return spoilt

    return spoil


@pytest.mark.parametrize("spoil", [nan_at(13), bad_gradient_at(13)], ids=["loss", "gradient"])
def test_one_break_down_steps_back_halves_the_learning_rate_and_finishes(
    tmp_path: Path, spoil: Callable[[int, Tensor], Tensor]
) -> None:
    task, config = Toy(spoil=spoil), settings(schedule="constant", warmup=0.0)
    result = run(task, tmp_path, config, every=0.0)  # a checkpoint after every step
    assert result.stopped == "done"
    assert (result.position.n_steps_back, result.position.lr_scale) == (1, 0.5)
    assert task.n_calls == 3 * PER_EPOCH + 1
    assert all(torch.isfinite(tensor).all() for tensor in result.weights.values())
    (back,) = records(tmp_path, "step_back")
    assert (back["step"], back["back_to"], back["lr_scale"]) == (14, 13, 0.5)
    rates = {record["step"]: record["lr"] for record in records(tmp_path, "train")}
    assert (rates[10], rates[20]) == (pytest.approx(config.lr), pytest.approx(config.lr / 2))


def test_a_break_down_goes_back_to_the_last_checkpoint_and_repeats_from_there(tmp_path: Path) -> None:
    task = Toy(spoil=nan_at(13), held_out=False)
    result = run(task, tmp_path, settings())  # no checkpoint but the first
    assert result.position.step == 3 * PER_EPOCH
    assert task.n_calls == 14 + 3 * PER_EPOCH
    assert_same(task.seen[14], task.seen[0])
    assert result.position.n_words == 3 * 3 * PER_EPOCH
    assert task.epochs_started == [0, 1, 0, 1, 2]


@pytest.mark.parametrize("spoil", [nan_at(*range(99)), bad_gradient_at(*range(99))], ids=["loss", "gradient"])
def test_a_run_that_always_diverges_is_a_run_error_with_a_remedy(
    tmp_path: Path, spoil: Callable[[int, Tensor], Tensor]
) -> None:
    task = Toy(spoil=spoil)
    with pytest.raises(RunError, match="diverged at step 1 ") as caught:
        run(task, tmp_path, settings())
    assert "lr=" in caught.value.remedy
    assert task.n_calls == 6
    for seen in task.seen:  # a bad step changes nothing
        assert_same(seen, task.seen[0])


def test_the_weights_kept_after_a_break_down_are_those_of_the_best_score_on_record(
    tmp_path: Path, clock: Clock
) -> None:
    """The run may go back to before its best evaluation, but then that one's weights must go too."""

    def before(index: int, call: int) -> None:
        clock.now += 100.0 if call == 11 else 0.0  # a checkpoint after step 12, and no other

    scores = [3.0, 1.0, 4.0, 5.0]
    task = Toy(before=before, spoil=nan_at(25), scores=scores)
    result = run(task, tmp_path, settings(), every=60.0)
    assert result.position.n_steps_back == 1
    assert [entry["step"] for entry in result.position.history] == [10, 20, 30]
    assert result.position.best_score is not None
    assert_same(result.weights, task.evaluated[scores.index(result.position.best_score)])


# -- resuming -------------------------------------------------------------------------------------


@pytest.mark.parametrize("ema", [0.0, 0.8])
@pytest.mark.parametrize("calls", [[10], [4, 5, 0, 8]], ids=str)
@pytest.mark.parametrize("every", [3.5, math.inf], ids=["some steps", "no step"])
def test_a_crashed_run_ends_in_the_same_bits_as_one_left_alone(
    tmp_path: Path, clock: Clock, calls: list[int], every: float, ema: float
) -> None:
    config = settings(ema=ema, evals_per_epoch=2)
    plain = run(Toy(before=ticking(clock, 1.0)), tmp_path / "plain", config)
    for call in calls:
        with pytest.raises(CrashError):
            run(Toy(before=ticking(clock, 1.0, call)), tmp_path / "crashed", config, every)
    result = run(Toy(before=ticking(clock, 1.0)), tmp_path / "crashed", config, every)
    assert result.stopped == plain.stopped == "done"
    assert_same(result.weights, plain.weights)
    assert_same_run(tmp_path / "crashed", tmp_path / "plain")
    assert records(tmp_path / "crashed", "valid") == records(tmp_path / "plain", "valid")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("n_times", [1, 2])
def test_a_signal_saves_and_resuming_gives_the_same_bits(
    tmp_path: Path, number: signal.Signals, n_times: int
) -> None:
    def before(index: int, call: int) -> None:
        if call == 12:
            for _ in range(n_times):
                signal.raise_signal(number)

    handler = signal.getsignal(number)
    plain = run(Toy(), tmp_path / "plain", settings(ema=0.9))
    if n_times == 1:
        first = run(Toy(before=before), tmp_path / "stopped", settings(ema=0.9))
        assert (first.stopped, first.position.step, first.position.stopped) == ("interrupted", 13, None)
    else:  # ends at once
        with pytest.raises(KeyboardInterrupt):
            run(Toy(before=before), tmp_path / "stopped", settings(ema=0.9), every=0.0)
    assert signal.getsignal(number) is handler
    second = run(Toy(), tmp_path / "stopped", settings(ema=0.9))
    assert second.stopped == "done"
    assert_same(second.weights, plain.weights)
    assert_same_run(tmp_path / "stopped", tmp_path / "plain")


def test_damaged_and_later_records_go_on_resuming(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    good = [json.dumps({"event": "train", "step": step, "loss": 0.25}) for step in (1, 2, 3)]
    file.write_bytes("\n".join(good).encode() + b'\n\0\0\0\0\n[1]\n{"step": 2')
    log = MetricsLog(file, upto=2)
    assert [record["step"] for record in records(tmp_path, "train")] == [1, 2]
    log.add("train", 3, loss=0.5)
    assert records(tmp_path, "train")[-1] == {"event": "train", "step": 3, "loss": 0.5}
    log.add("eval", 3, score=0.5)
    assert MetricsLog.losses(file) == [(1, 0.25), (2, 0.25), (3, 0.5)]
    assert MetricsLog.losses(tmp_path / "none.jsonl") == []
