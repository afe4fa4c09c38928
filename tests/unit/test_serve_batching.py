"""One thread for the models: waiting jobs are batched, and every caller gets its own results."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit.serve.batching import Worker
from elmokit.serve.middleware import RefusedError

Job = Callable[[Worker], Coroutine[Any, Any, Any]]


class Gate:
    """Work that blocks until it is opened, and records its batches."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self.begun = threading.Event()
        self.batches: list[list[Any]] = []

    def open(self) -> None:
        self._open.set()

    def __call__(self, items: list[Any]) -> list[Any]:
        self.batches.append(items)
        self.begun.set()
        assert self._open.wait(60)
        return [f"{item}!" for item in items]


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open()


def job(gate: Gate, *items: Any, key: Any = "key", **options: Any) -> Job:
    """A job that goes through the gate."""
    return lambda worker: worker.do(key, items, gate, **options)


def run(
    gate: Gate,
    *jobs: Job,
    first: Job | None = None,
    meanwhile: Callable[[Worker, list[asyncio.Task[Any]]], Coroutine[Any, Any, None]] | None = None,
    after: Job | None = None,
    **limits: Any,
) -> tuple[list[Any], Worker]:
    """Queue ``jobs`` while the job "first" is at the gate, then open it.

    Args:
        meanwhile: Called with the tasks, "first" among them, before the gate is opened.
        after: Called when all is done.

    Returns:
        The results of ``jobs``, exceptions included; and the worker, closed.
    """

    async def work() -> tuple[list[Any], Worker]:
        worker = Worker(**limits)
        tasks = [asyncio.create_task((first or job(gate, "first"))(worker))]
        assert await asyncio.to_thread(gate.begun.wait, 60)
        tasks += [asyncio.create_task(one(worker)) for one in jobs]
        await asyncio.sleep(0)
        if meanwhile is not None:
            await meanwhile(worker, tasks)
            await asyncio.sleep(0)
        gate.open()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        if after is not None:
            await after(worker)
        await worker.close()
        return results[1:], worker

    return asyncio.run(work())


def test_a_lone_job_runs_at_once_in_the_models_thread() -> None:
    seen: list[int] = []

    async def work() -> None:
        worker = Worker(before=seen.append)
        assert await worker.do("key", [1, 2, 3], lambda items: [-item for item in items]) == [-1, -2, -3]
        assert await worker.do("key", [], lambda items: items, cost=5) == []
        assert (await worker.call(lambda: threading.current_thread().name)).startswith("elmokit-models")
        await worker.close()

    asyncio.run(work())
    assert seen == [1, 5, 1]


def test_batches_have_one_key_and_calls_are_alone(gate: Gate) -> None:
    jobs = [job(gate, key, key=key.upper()) for key in "abacab"]
    run(gate, lambda worker: worker.call(lambda: gate.batches.append(["call"])), *jobs)
    assert gate.batches[1:] == [["call"], ["a", "a", "a"], ["b", "b"], ["c"]], "in order of arrival"


def test_a_batch_has_a_largest_cost_unless_a_single_job_costs_more(gate: Gate) -> None:
    costs, seen = [4, 5, 3, 50, 2, 1, 8], list[int]()
    jobs = [job(gate, cost, cost=cost) for cost in costs]
    results, _ = run(gate, *jobs, max_batch=10, before=seen.append)
    assert results == [[f"{cost}!"] for cost in costs]
    assert gate.batches == [["first"], [4, 5, 1], [3, 2], [50], [8]]
    assert seen == [1, 10, 5, 50, 8]


def test_jobs_of_disconnected_clients_are_dropped(gate: Gate) -> None:
    def gone(answer: bool) -> Callable[[], Coroutine[Any, Any, bool]]:
        return lambda: asyncio.sleep(0, answer)

    (left, there), _ = run(gate, job(gate, 1, gone=gone(True)), job(gate, 2, gone=gone(False)))
    assert isinstance(left, RefusedError)
    assert "disconnected" in left.detail
    assert there == ["2!"]
    assert gate.batches == [["first"], [2]]


def test_cancelled_jobs_are_dropped(gate: Gate) -> None:
    async def cancel(worker: Worker, tasks: list[asyncio.Task[Any]]) -> None:
        for number in (0, 1, 3):  # one that runs, two that wait, one of them first in the queue
            tasks[number].cancel()

    async def after(worker: Worker) -> None:
        assert await worker.do("key", ["a"], gate, cost=9) == ["a!"], "nothing is left waiting"

    results, _ = run(gate, *(job(gate, n) for n in range(4)), meanwhile=cancel, after=after, max_waiting=9)
    assert [isinstance(one, asyncio.CancelledError) for one in results] == [True, False, True, False]
    assert [results[1], results[3]] == [["1!"], ["3!"]]
    assert gate.batches == [["first"], [1, 3], ["a"]]


def test_too_much_work_is_refused_unless_admitted_before(gate: Gate) -> None:
    async def refuse(worker: Worker, tasks: list[asyncio.Task[Any]]) -> None:
        for one in (worker.do("key", ["c"], gate), worker.call(lambda: None)):
            with pytest.raises(RefusedError, match="waiting"):
                await one
        tasks.append(asyncio.create_task(worker.do("key", ["d"], gate, cost=6, admitted=True)))

    async def after(worker: Worker) -> None:
        assert await worker.do("key", ["e"], gate, cost=10) == ["e!"], "there is room again"

    jobs = [job(gate, "a", cost=6), job(gate, "b", key="other", cost=4)]
    large = job(gate, "first", cost=100)  # more than allowed, but alone
    results, _ = run(gate, *jobs, first=large, meanwhile=refuse, after=after, max_waiting=10)
    assert results == [["a!"], ["b!"], ["d!"]]


_CALLERS = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 6), st.integers(1, 9), st.integers(0, 3)),
    min_size=1,
    max_size=40,
)


@given(_CALLERS, st.integers(1, 20), st.randoms(use_true_random=False))
@settings(max_examples=60)
def test_answers_are_never_mixed(
    callers: list[tuple[str, int, int, int]], most: int, rng: random.Random
) -> None:
    """Callers with any keys, sizes, costs and delays, some of which fail or are cancelled."""
    costs = {number: cost for number, (_, _, cost, _) in enumerate(callers)}
    fates = {number: rng.choice(["fine", "fine", "fine", "fails", "goes"]) for number in costs}
    seen: list[list[tuple[str, int, int]]] = []

    def answers(items: list[tuple[str, int, int]]) -> list[str]:
        seen.append(items)
        if any(fates[number] == "fails" for _, number, _ in items):
            raise ValueError
        return [f"{key}.{number}.{place}" for key, number, place in items]

    async def caller(worker: Worker, number: int) -> None:
        key, n_items, cost, delay = callers[number]
        for _ in range(delay):
            await asyncio.sleep(0)
        items = [(key, number, place) for place in range(n_items)]
        job = asyncio.create_task(worker.do(key, items, answers, cost=cost))
        if fates[number] == "goes":
            await asyncio.sleep(0)
            job.cancel()
        (result,) = await asyncio.gather(job, return_exceptions=True)
        if isinstance(result, BaseException):
            assert isinstance(result, ValueError if fates[number] == "fails" else asyncio.CancelledError)
            assert fates[number] != "fine"
        else:
            assert result == [f"{key}.{number}.{place}" for place in range(n_items)]

    async def work() -> None:
        worker = Worker(max_batch=most)
        await asyncio.gather(*(caller(worker, number) for number in costs))
        await worker.close()

    asyncio.run(work())
    for items in seen:
        assert len({key for key, _, _ in items}) <= 1, "one kind of work at a time"
        numbers = {number for _, number, _ in items}
        assert len(numbers) <= 1 or sum(costs[number] for number in numbers) <= most
