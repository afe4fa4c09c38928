"""The models' thread: what waits together is done together, and everybody gets their own answer."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit.serve.batching import BusyError, GoneError, Worker


class Gate:
    """Work that waits to be let through, and remembers what it was given."""

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
        if "bad" in items:
            raise ValueError("bad")
        return [f"{item}!" for item in items]


@pytest.fixture
def gate() -> Iterator[Gate]:
    found = Gate()
    yield found
    found.open()


def run(work: Callable[[Worker], Awaitable[None]], **limits: Any) -> Worker:
    """``work`` with a worker, which is closed in the end."""

    async def all_of_it() -> Worker:
        worker = Worker(**limits)
        try:
            await work(worker)
        finally:
            await worker.close()
        return worker

    return asyncio.run(all_of_it())


async def started(gate: Gate) -> None:
    """Until the gate has something to work on."""
    assert await asyncio.to_thread(gate.begun.wait, 60)


async def queued(*jobs: Coroutine[Any, Any, Sequence[Any]]) -> list[asyncio.Task[Sequence[Any]]]:
    """Jobs that are in the queue, one after another."""
    tasks = [asyncio.create_task(job) for job in jobs]
    await asyncio.sleep(0)
    return tasks


def test_who_has_left_is_not_worked_for(gate: Gate) -> None:
    done: list[int] = []

    async def left() -> bool:
        return True

    async def there() -> bool:
        return False

    async def work(worker: Worker) -> None:
        first = asyncio.create_task(worker.do("gate", ["a"], gate))
        await started(gate)
        tasks = await queued(
            *(
                worker.do("key", [number], lambda items: done.extend(items) or items, gone=gone)  # type: ignore[func-returns-value]
                for number, gone in ((1, left), (2, there))
            )
        )
        gate.open()
        await first
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(found[0], GoneError)
        assert found[1] == [2]

    run(work)
    assert done == [2]


def test_what_was_let_in_is_not_turned_away(gate: Gate) -> None:
    async def work(worker: Worker) -> None:
        tasks = [asyncio.create_task(worker.do("gate", ["a"], gate))]
        await started(gate)
        tasks += await queued(worker.do("key", [1], list, cost=5))
        with pytest.raises(BusyError):
            await worker.do("key", [2], list, cost=6)
        tasks += await queued(worker.do("key", [2], list, cost=6, admitted=True))
        gate.open()
        await asyncio.gather(*tasks)

    run(work, max_waiting=10)


def test_what_comes_before_a_batch_is_told_its_cost_in_the_models_thread() -> None:
    seen: list[tuple[int, str]] = []

    async def work() -> None:
        worker = Worker(before=lambda cost: seen.append((cost, threading.current_thread().name)))
        tasks = await queued(*(worker.do("key", [1], list, cost=cost) for cost in (3, 4)))
        await asyncio.gather(*tasks)
        await worker.close()

    asyncio.run(work())
    assert [cost for cost, _ in seen] == [7]
    assert all(name.startswith("elmokit-models") for _, name in seen)


def test_a_lone_job_is_done_at_once_in_the_models_thread() -> None:
    async def work(worker: Worker) -> None:
        assert await worker.do("key", [1, 2, 3], lambda items: [-item for item in items]) == [-1, -2, -3]
        assert await worker.do("key", [], lambda items: items) == []
        assert (await worker.call(lambda: threading.current_thread().name)).startswith("elmokit-models")
        assert threading.current_thread() is threading.main_thread()

    worker = run(work)
    assert (worker.n_batches, worker.n_jobs) == (3, 3)


def test_jobs_gather_while_one_is_computed(gate: Gate) -> None:
    async def work(worker: Worker) -> None:
        first = await queued(worker.do("key", ["first"], gate))
        await started(gate)
        others = await queued(*(worker.do("key", [n, n + 0.5], gate) for n in range(5)))
        gate.open()
        assert await first[0] == ["first!"]
        assert await asyncio.gather(*others) == [[f"{n}!", f"{n + 0.5}!"] for n in range(5)]

    worker = run(work)
    assert gate.batches == [["first"], [0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5]]
    assert (worker.n_batches, worker.n_jobs) == (2, 6)


def test_other_keys_wait_their_turn_and_calls_are_done_by_themselves(gate: Gate) -> None:
    order: list[str] = []

    def noted(items: list[str]) -> list[str]:
        order.append("".join(items))
        return items

    async def work(worker: Worker) -> None:
        first = await queued(worker.do("gate", ["first"], gate))
        await started(gate)
        call = asyncio.create_task(worker.call(lambda: order.append("call")))
        others = await queued(*(worker.do(key.upper(), [key], noted) for key in "abacab"))
        gate.open()
        await asyncio.gather(*first, call, *others)

    run(work)
    assert order == ["call", "aaa", "bb", "c"], "by whoever came first"


def test_a_batch_is_no_larger_than_it_may_be_unless_a_single_job_is(gate: Gate) -> None:
    async def work(worker: Worker) -> None:
        first = await queued(worker.do("key", ["first"], gate))
        await started(gate)
        costs = [4, 5, 3, 50, 2, 1, 8]
        others = await queued(*(worker.do("key", [cost], gate, cost=cost) for cost in costs))
        gate.open()
        assert await asyncio.gather(*first, *others) == [["first!"], *([f"{cost}!"] for cost in costs)]

    run(work, max_batch=10)
    assert gate.batches == [["first"], [4, 5, 1], [3, 2], [50], [8]]


def test_who_fails_fails_alone(gate: Gate) -> None:
    async def work(worker: Worker) -> None:
        first = await queued(worker.do("key", ["first"], gate))
        await started(gate)
        others = await queued(*(worker.do("key", [item], gate) for item in ["a", "bad", "b", "bad"]))
        gate.open()
        assert await first[0] == ["first!"]
        a, bad, b, worse = await asyncio.gather(*others, return_exceptions=True)
        assert (a, b) == (["a!"], ["b!"])
        assert [str(error) for error in (bad, worse)] == ["bad", "bad"]
        assert await worker.do("key", ["later"], gate) == ["later!"], "the worker goes on"

    run(work)


def test_whoever_is_gone_is_not_worked_for(gate: Gate) -> None:
    async def work(worker: Worker) -> None:
        first, others = await queued(worker.do("key", ["first"], gate)), []
        await started(gate)
        others = await queued(*(worker.do("key", [n], gate) for n in range(4)))
        for gone in (first[0], others[0], others[2]):  # one at work, two waiting, one of them at the head
            gone.cancel()
        await asyncio.sleep(0)
        gate.open()
        found = await asyncio.gather(*first, *others, return_exceptions=True)
        assert [isinstance(one, asyncio.CancelledError) for one in found] == [True, True, False, True, False]
        assert [found[2], found[4]] == [["1!"], ["3!"]]
        assert await worker.do("key", ["a"], gate, cost=9) == ["a!"], "nothing is left waiting"

    run(work, max_waiting=9)
    assert gate.batches == [["first"], [1, 3], ["a"]]


def test_a_failure_after_all_have_gone_harms_nobody(gate: Gate) -> None:
    async def work(worker: Worker) -> None:
        jobs = await queued(worker.do("key", ["bad"], gate))
        await started(gate)
        jobs[0].cancel()
        await asyncio.sleep(0)
        gate.open()
        assert await worker.do("key", ["a"], gate) == ["a!"]

    run(work)


def test_more_than_may_wait_is_turned_away(gate: Gate) -> None:
    async def work(worker: Worker) -> None:
        first = await queued(worker.do("key", ["first"], gate, cost=100))  # larger, but alone
        await started(gate)
        others = await queued(worker.do("key", ["a"], gate, cost=6), worker.do("other", ["b"], gate, cost=4))
        with pytest.raises(BusyError):
            await worker.do("key", ["c"], gate, cost=1)
        with pytest.raises(BusyError):
            await worker.call(lambda: None)
        gate.open()
        await asyncio.gather(*first, *others)
        assert await worker.do("key", ["c"], gate, cost=10) == ["c!"], "there is room again"

    run(work, max_waiting=10)


def test_closing_finishes_what_waits(gate: Gate) -> None:
    jobs: list[asyncio.Task[Sequence[Any]]] = []

    async def work(worker: Worker) -> None:
        jobs.extend(await queued(*(worker.do(n % 2, [n], gate) for n in range(6))))
        await started(gate)
        asyncio.get_running_loop().call_later(0.02, gate.open)

    run(work)
    assert [job.result() for job in jobs] == [[f"{n}!"] for n in range(6)]


def test_what_was_closed_can_be_started_anew() -> None:
    async def work(worker: Worker) -> None:
        await worker.close()
        assert await worker.call(lambda: 1) == 1
        await worker.close()

    worker = run(work)
    assert asyncio.run(worker.call(lambda: 2)) == 2, "in another loop, too"
    asyncio.run(worker.close())


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
    """Any number of callers with any keys, sizes, costs and delays, some of whom fail or go away."""
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
        (found,) = await asyncio.gather(job, return_exceptions=True)
        if isinstance(found, BaseException):
            assert isinstance(found, ValueError if fates[number] == "fails" else asyncio.CancelledError)
            assert fates[number] != "fine"
        else:
            assert found == [f"{key}.{number}.{place}" for place in range(n_items)]

    async def work(worker: Worker) -> None:
        await asyncio.gather(*(caller(worker, number) for number in costs))

    run(work, max_batch=most)
    for items in seen:
        assert len({key for key, _, _ in items}) <= 1, "one kind of work at a time"
        numbers = {number for _, number, _ in items}
        assert len(numbers) <= 1 or sum(costs[number] for number in numbers) <= most
