"""One thread that does the models' work: what waits together is done together."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

__all__ = ["BusyError", "GoneError", "Worker"]

A = TypeVar("A")
B = TypeVar("B")


class BusyError(Exception):
    """More work is waiting than is allowed to."""


class GoneError(Exception):
    """Whoever asked is no longer there."""


@dataclass(eq=False)
class _Job:
    key: Hashable
    items: Sequence[Any]
    cost: int
    work: Callable[[list[Any]], Sequence[Any]]
    gone: Callable[[], Awaitable[bool]] | None
    future: asyncio.Future[Sequence[Any]]


class Worker:
    """Does jobs in one thread, first come, first served; jobs with one key are done in one go.

    While a batch is being computed others gather, so batches grow with the load and a lone request waits
    for nothing. Answers go to whoever asked, in the order of their items.

    Args:
        most: largest cost of a batch, unless a single job is larger.
        waiting: largest cost of all that waits.
        before: called in the thread before a batch, with its cost.
    """

    def __init__(
        self, *, most: int = 8192, waiting: int = 200_000, before: Callable[[int], None] | None = None
    ) -> None:
        self._most, self._limit, self._before = most, waiting, before
        self._jobs: deque[_Job] = deque()
        self._waiting = 0
        self._thread = _new_thread()
        self._task: asyncio.Task[None] | None = None
        self.n_batches = 0
        self.n_jobs = 0

    async def do(
        self,
        key: Hashable,
        items: Sequence[A],
        work: Callable[[list[A]], Sequence[B]],
        *,
        cost: int = 1,
        admitted: bool = False,
        gone: Callable[[], Awaitable[bool]] | None = None,
    ) -> Sequence[B]:
        """``work(items)``, perhaps along with the items of other callers who gave the same key.

        Args:
            key: jobs with equal keys may be done together; their ``work`` must be the same.
            items: what to work on.
            work: as many answers as items, each independent of its companions.
            cost: how much the job weighs beside others.
            admitted: part of a request that was let in before: it is never turned away.
            gone: says whether whoever asked has left; if so when its turn comes, the job is not done.
        """
        if not admitted and self._waiting and self._waiting + cost > self._limit:
            raise BusyError
        job = _Job(key, items, cost, work, gone, asyncio.get_running_loop().create_future())
        self._jobs.append(job)
        self._waiting += cost
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        return await job.future

    async def call(
        self,
        work: Callable[[], B],
        *,
        cost: int = 1,
        admitted: bool = False,
        gone: Callable[[], Awaitable[bool]] | None = None,
    ) -> B:
        """``work()`` in the models' thread, by itself."""
        found = await self.do(object(), [None], lambda _: [work()], cost=cost, admitted=admitted, gone=gone)
        return found[0]

    async def close(self) -> None:
        """Finish what waits, then stop; a new job starts it anew."""
        if self._task is not None and not self._task.done():
            await asyncio.gather(self._task, return_exceptions=True)
        self._thread.shutdown()
        self._thread = _new_thread()

    async def _run(self) -> None:
        while self._jobs:
            for job in list(self._jobs):
                if job.gone is not None and not job.future.done() and await job.gone():
                    job.future.set_exception(GoneError())
            jobs = self._gathered()
            if jobs:
                await self._together(jobs)

    def _gathered(self) -> list[_Job]:
        """The first job and those like it, as far as they fit."""
        first, taken, left = self._jobs[0], list[_Job](), deque[_Job]()
        cost = 0
        for job in self._jobs:
            if job.future.done():  # nobody waits for it any more
                self._waiting -= job.cost
            elif job.key == first.key and (not taken or cost + job.cost <= self._most):
                taken.append(job)
                cost += job.cost
            else:
                left.append(job)
        self._jobs = left
        self._waiting -= cost
        return taken

    async def _together(self, jobs: list[_Job]) -> None:
        items = [item for job in jobs for item in job.items]
        self.n_batches += 1
        self.n_jobs += len(jobs)
        cost = sum(job.cost for job in jobs)

        def work() -> Sequence[Any]:
            if self._before is not None:
                self._before(cost)
            return jobs[0].work(items)

        try:
            answers = await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except Exception as error:
            if len(jobs) == 1:
                if not jobs[0].future.done():
                    jobs[0].future.set_exception(error)
                return
            for job in jobs:  # one of them is to blame: the others shall not suffer
                await self._together([job])
            return
        first = 0
        for job in jobs:
            if not job.future.done():
                job.future.set_result(answers[first : first + len(job.items)])
            first += len(job.items)


def _new_thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="elmokit-models")  # nothing runs until there is a job
