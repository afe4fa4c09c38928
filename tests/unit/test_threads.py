"""Jobs for each core: their order, gradients through them, and the same bits with any number of threads."""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from elmokit.bilm.folder import load_bilm
from elmokit.bilm.pretrain import pretrain
from elmokit.core import threads as core_threads
from elmokit.core.tensors import load_tensors
from elmokit.core.threads import one_core_each, run_all, side_by_side
from elmokit.vectors.elmo import Elmo


@contextlib.contextmanager
def threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("n_threads", [1, 2, 3])
def test_jobs_run_at_once_on_one_core_each_and_answer_in_order(n_threads: int) -> None:
    meeting = threading.Barrier(n_threads, timeout=20)

    def job(number: int) -> tuple[int, int, bool]:
        meeting.wait()
        inner = run_all([threading.get_ident] * 2)  # within a job, one after the other
        assert inner == [threading.get_ident()] * 2
        return number, torch.get_num_threads(), torch.is_grad_enabled()

    with threads(n_threads), torch.no_grad():
        jobs = [lambda number=number: job(number) for number in range(2 * n_threads)]
        assert run_all(jobs) == [(number, 1, False) for number in range(2 * n_threads)]
        assert torch.get_num_threads() == n_threads
        with one_core_each():
            assert torch.get_num_threads() == 1
            assert [answer[0] for answer in run_all(jobs)] == [*range(2 * n_threads)]


def test_an_error_in_a_job_ends_all_and_is_raised() -> None:
    def fail() -> None:
        raise ValueError("no")

    with threads(2):
        for place in range(3):
            jobs: list[Callable[[], object]] = [int, int, int]
            jobs[place] = fail
            with pytest.raises(ValueError, match="no"):
                run_all(jobs)
        assert run_all([int, int]) == [0, 0]
        assert torch.get_num_threads() == 2


def test_gradients_through_parts_are_those_of_plain_autograd() -> None:
    torch.manual_seed(0)
    shared, own = nn.Linear(4, 3), [nn.Linear(3, 2), nn.Linear(3, 2)]

    def part(number: int, x: Tensor) -> Tensor:
        y: Tensor = own[number](torch.tanh(shared(x)))
        return y.pow(2)

    def gradients(together: bool, leaf: bool) -> list[Tensor | None]:
        x = torch.linspace(-1, 1, 20).view(5, 4).requires_grad_(leaf)
        parts = [functools.partial(part, number) for number in range(2)]
        outputs = side_by_side(parts, x) if together else [one(x) for one in parts]
        for module in (shared, *own):
            module.zero_grad()
        (outputs[0].sum() + 2 * outputs[1].sum()).backward()
        return [x.grad, *(p.grad for module in (shared, *own) for p in module.parameters())]

    with threads(2):
        for leaf in (True, False):
            for mine, plain in zip(gradients(True, leaf), gradients(False, leaf), strict=True):
                assert (mine is None) == (plain is None)
                assert mine is None or plain is None or torch.allclose(mine, plain, atol=1e-6)


class Refusing:
    """A method that is refused the second time, as a system without further threads does."""

    def __init__(self, real: Callable[..., Any]) -> None:
        self.real, self.n_calls = real, 0

    def __call__(self, *args: Any) -> Any:
        self.n_calls += 1
        if self.n_calls == 2:
            raise RuntimeError("can't start new thread")
        return self.real(*args)


def test_a_job_that_began_is_waited_for_when_the_next_thread_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def job(number: int) -> int:
        time.sleep(0.0 if threading.current_thread() is threading.main_thread() else 0.2)
        return number

    with threads(3):
        run_all([int] * 3)
        pool = core_threads._pool(3, os.getpid())
        monkeypatch.setattr(pool, "submit", Refusing(pool.submit))
        assert run_all([functools.partial(job, number) for number in range(3)]) == [0, 1, 2]


def test_without_threads_the_caller_does_all_and_none_is_left_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[threading.Thread] = []
    real = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        started.append(thread)
        real(thread)

    refusing = Refusing(start)
    monkeypatch.setattr(core_threads, "_POOLS", {})
    monkeypatch.setattr(threading.Thread, "start", lambda thread: refusing(thread))
    with threads(3):
        assert run_all([threading.get_ident] * 3) == [threading.get_ident()] * 3
    assert len(started) == 1
    started[0].join(20)
    assert not started[0].is_alive()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_process_has_a_lock_of_its_own() -> None:
    program = (
        "import os, torch; from elmokit.core import threads\n"
        "torch.set_num_threads(2); threads._lock.acquire()\n"
        "if child := os.fork(): raise SystemExit(os.waitpid(child, 0)[1])\n"
        "os._exit(threads.run_all([int, int]) != [0, 0])"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_jobs_compute_with_the_precision_of_the_caller() -> None:
    one = torch.ones(2, 2)
    with threads(2), torch.autocast("cpu", torch.bfloat16):
        meeting = threading.Barrier(2, timeout=20)
        jobs = [lambda: (meeting.wait(), one @ one)[1].dtype] * 2
        assert run_all(jobs) == [torch.bfloat16] * 2


TEXT = "the cat sat on the mat .\na dog saw the cat and ran .\nthe mat was red .\n" * 40


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"input": "word", "objective": "sampled"},
        {"tie": True, "input": "word"},
        {"accumulate": 3, "precision": "bfloat16"},
    ],
)
def test_a_model_is_the_same_bits_with_any_number_of_threads(tmp_path: Path, changes: dict[str, Any]) -> None:
    file = tmp_path / "text.txt"
    file.write_text(TEXT, encoding="utf-8")
    weights, vectors = [], []
    for number in (1, 2, 3):
        with threads(number):
            out = tmp_path / str(number)
            pretrain(file, out, "tiny", max_steps=6, held_out=0.1, dropout_weight=0.2, **changes)
            weights.append(load_bilm(out).model.state_dict())
            vectors.append(Elmo.load(out).embed(["the cat ran", "a red dog sat on it ."]).mixed())
    for other_weights, other_vectors in zip(weights[1:], vectors[1:], strict=True):
        assert all(torch.equal(other_weights[name], tensor) for name, tensor in weights[0].items())
        for one, two in zip(other_vectors, vectors[0], strict=True):
            assert (one == two).all()


def test_products_in_bfloat16_change_little_and_all_that_is_kept_is_float32(tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    file.write_text(TEXT, encoding="utf-8")
    measured = []
    for precision in ("float32", "bfloat16"):
        out = tmp_path / precision
        figures = pretrain(file, out, "tiny", max_steps=6, held_out=0.1, precision=precision).held_out
        assert figures is not None
        measured.append(figures["perplexity"])
        tensors, _ = load_tensors(out / "run" / "checkpoint.safetensors")
        assert {tensor.dtype for tensor in tensors.values()} == {torch.float32, torch.int64, torch.uint8}
    assert measured[0] != measured[1]
    assert measured[0] == pytest.approx(measured[1], rel=0.01)


def test_threads_that_start_within_a_block_of_another_keep_the_number_of_cores() -> None:
    found: list[int] = []

    def first_use() -> None:
        with one_core_each():
            run_all([int, int])
        found.append(torch.get_num_threads())

    with threads(2):
        with one_core_each():
            several = [threading.Thread(target=first_use) for _ in range(6)]
            for one in several:
                one.start()
            for one in several:
                one.join()
        assert found == [2] * 6
        assert torch.get_num_threads() == 2
