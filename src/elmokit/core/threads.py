"""Jobs shared out among the cores, each job on one of them.

OpenMP's threads meet after every product. When another program takes one core, each meeting waits for it,
thousands of times a second. Jobs that meet only at their end are hardly slowed down, and what they compute
does not depend on the number of threads: within a job there is always one.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")
Part = Callable[[Tensor], Tensor]
"""A part of a computation: from the input that all parts share to the part's own output."""

_local = threading.local()
_lock = threading.Lock()
if hasattr(os, "register_at_fork"):  # a thread that the new process does not have may hold it
    os.register_at_fork(after_in_child=lambda: globals().update(_lock=threading.Lock()))
_blocks = {"open": 0, "threads": 1}  # blocks of one_core_each, and torch's number of threads before the first


@contextlib.contextmanager
def one_core_each() -> Iterator[None]:
    """Inside the block, the calling thread computes on one core, and ``run_all`` on as many as torch used.

    (OpenMP's threads wait by spinning: after a product of the caller they would take cores from jobs.)
    """
    n_threads = torch.get_num_threads()
    with _lock:
        if not _blocks["open"]:
            _blocks["threads"] = n_threads
        elif not hasattr(_local, "n_jobs"):  # torch gave this new thread the 1 that another block has set
            n_threads = _blocks["threads"]
        _blocks["open"] += 1
    before = getattr(_local, "n_jobs", None)
    _local.n_jobs = before or n_threads
    torch.set_num_threads(1)
    try:
        yield
    finally:
        _local.n_jobs = before
        torch.set_num_threads(n_threads)
        with _lock:
            _blocks["open"] -= 1


@contextlib.contextmanager
def all_cores() -> Iterator[None]:
    """Inside the block, within ``one_core_each``, torch shares out each product among the cores again."""
    before = torch.get_num_threads()
    torch.set_num_threads(n_cores())
    try:
        yield
    finally:
        torch.set_num_threads(before)


def n_cores() -> int:
    """How many jobs ``run_all`` runs at once: as many as torch may use threads."""
    return getattr(_local, "n_jobs", None) or torch.get_num_threads()


def run_all(jobs: Sequence[Callable[[], T]]) -> list[T]:
    """What each job returns, in their order; ``n_cores`` at once.

    Called from within a job, they run one after the other.
    """
    n_threads = min(len(jobs), n_cores())
    if n_threads <= 1:
        return [job() for job in jobs]
    results: list[Any] = [None] * len(jobs)
    waiting, lock, failed = iter(range(len(jobs))), threading.Lock(), threading.Event()
    # These are settings of each thread.
    inference, grad = torch.is_inference_mode_enabled(), torch.is_grad_enabled()
    autocast = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
    flush = sys.float_info.min / 2 == 0.0

    def work() -> None:
        torch.set_flush_denormal(flush)
        before = getattr(_local, "n_jobs", None)
        _local.n_jobs = 1
        try:
            with (
                torch.inference_mode(inference),
                torch.set_grad_enabled(grad),
                torch.autocast("cpu", autocast[1], autocast[0]),
            ):
                while not failed.is_set():
                    with lock:
                        number = next(waiting, None)
                    if number is None:
                        return
                    results[number] = jobs[number]()
        except BaseException:
            failed.set()
            raise
        finally:
            _local.n_jobs = before

    running: list[Future[None]] = []
    with one_core_each():
        try:
            with contextlib.suppress(RuntimeError):  # at the end of the program: the caller does all
                for _ in range(n_threads - 1):
                    running.append(_pool(n_threads, os.getpid()).submit(work))
            work()
        finally:
            running = [one for one in running if not one.cancel()]  # not begun: there is nothing left to do
            wait(running)
    for one in running:
        one.result()
    return results


_POOLS: dict[tuple[int, int], ThreadPoolExecutor] = {}


def _pool(n_threads: int, process: int) -> ThreadPoolExecutor:
    """Threads that compute on one core each, beside the caller; a forked process needs its own."""
    barrier = threading.Barrier(n_threads)

    def start() -> None:
        torch.set_num_threads(1)
        barrier.wait()

    with _lock:
        if (n_threads, process) not in _POOLS:
            pool = ThreadPoolExecutor(n_threads - 1, "elmokit", initializer=start)
            try:
                for _ in range(n_threads - 1):
                    pool.submit(int)
            except RuntimeError:  # one cannot start: the others end
                barrier.abort()
                raise
            barrier.wait(timeout=60)  # until all have set their number, which the end of the block resets
            _POOLS[n_threads, process] = pool
        return _POOLS[n_threads, process]


def side_by_side(parts: Sequence[Part], x: Tensor) -> list[Tensor]:
    """What each part makes of ``x``, the parts at the same time, forward and backward."""
    if not torch.is_grad_enabled():
        return run_all([functools.partial(part, x) for part in parts])
    anchor = torch.zeros((), requires_grad=True)  # parts have parameters, even if x needs no gradient
    return list(_SideBySide.apply(anchor, x, parts))  # type: ignore[no-untyped-call]


class _SideBySide(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, anchor: Tensor, x: Tensor, parts: Sequence[Part]) -> tuple[Tensor, ...]:
        def run(part: Part) -> tuple[Tensor, Tensor]:
            own = x.detach().requires_grad_(needs_grad)
            with torch.enable_grad():
                return own, part(own)

        needs_grad = ctx.needs_input_grad[1]
        ctx.graphs = run_all([functools.partial(run, part) for part in parts])
        return tuple(y.detach() for _, y in ctx.graphs)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        def run(own: Tensor, y: Tensor, grad: Tensor) -> Tensor | None:
            if y.requires_grad:
                torch.autograd.backward(y, grad)
            return own.grad

        graphs = zip(ctx.graphs, grads, strict=True)
        jobs = [functools.partial(run, own, y, grad) for (own, y), grad in graphs]
        ctx.graphs = ()
        # Two terms have the same sum in any order, also those of a parameter that two parts share.
        terms = [grad for grad in run_all(jobs) if grad is not None]
        return None, sum(terms[1:], terms[0]) if terms else None, None
