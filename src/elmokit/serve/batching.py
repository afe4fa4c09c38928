"""One thread for the models: requests that wait at the same time are computed together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from elmokit.serve.middleware import RefusedError

A = TypeVar("A")
B = TypeVar("B")
Gone = Callable[[], Awaitable[bool]]


@dataclass(eq=False)
class _Job:
    key: Hashable
    items: Sequence[Any]
    cost: int
    work: Callable[[list[Any]], Sequence[Any]]
    gone: Gone | None
    future: asyncio.Future[Sequence[Any]]


class Worker:
    """Runs jobs in one thread, first come, first served; waiting jobs with the same key form a batch.

    Batches grow with the load, because jobs gather while one is computed. A lone job never waits.

    Args:
        max_batch: Largest cost of a batch; a single job may cost more.
        max_waiting: Largest cost of all waiting jobs.
        before: Called in the thread before a batch, with its cost.
    """

    def __init__(
        self,
        *,
        max_batch: int = 8192,
        max_waiting: int = 200_000,
        before: Callable[[int], None] = lambda cost: None,
    ) -> None:
        self._max_batch, self._max_waiting, self._before = max_batch, max_waiting, before
        self._jobs: list[_Job] = []  # waiting
        self._waiting = 0  # their cost
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="elmokit-models")
        self._task: asyncio.Task[None] | None = None

    async def do(
        self,
        key: Hashable,
        items: Sequence[A],
        work: Callable[[list[A]], Sequence[B]],
        *,
        cost: int = 1,
        admitted: bool = False,
        gone: Gone | None = None,
    ) -> Sequence[B]:
        """``work(items)``, possibly in a batch with the items of other callers.

        Args:
            key: Jobs with equal keys can be batched; their ``work`` must be the same.
            work: Returns one result per item, each independent of the other items.
            admitted: Part of a request that was admitted before, so never refused.
            gone: True if the client has disconnected; then a waiting job is dropped.
        """
        if not admitted and self._waiting and self._waiting + cost > self._max_waiting:
            again = {"Retry-After": "1"}
            raise RefusedError(503, "Too many requests are waiting.", "Try again in a moment.", again)
        job = _Job(key, items, cost, work, gone, asyncio.get_running_loop().create_future())
        self._jobs.append(job)
        self._waiting += cost
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        return await job.future

    async def call(self, work: Callable[[], B], **options: Any) -> B:
        """``work()`` in the thread, never in a batch; ``options`` as in ``do``."""
        return (await self.do(object(), [None], lambda _: [work()], **options))[0]

    async def close(self) -> None:
        """Finish all jobs."""
        if self._task is not None and not self._task.done():
            await self._task

    async def _run(self) -> None:
        while self._jobs:
            for job in list(self._jobs):
                if job.gone is not None and not job.future.done() and await job.gone():
                    job.future.set_exception(RefusedError(400, "The client has disconnected."))
            batch, rest, cost = list[_Job](), list[_Job](), 0
            for job in self._jobs:
                if job.future.done():  # the client is gone, or the request was cancelled
                    continue
                fits = not batch or (job.key == batch[0].key and cost + job.cost <= self._max_batch)
                (batch if fits else rest).append(job)
                cost += job.cost if fits else 0
            self._jobs, self._waiting = rest, sum(job.cost for job in rest)
            if batch:
                await self._compute(batch)

    async def _compute(self, batch: list[_Job]) -> None:
        def work() -> Sequence[Any]:
            self._before(sum(job.cost for job in batch))
            return batch[0].work([item for job in batch for item in job.items])

        try:
            results = iter(await asyncio.get_running_loop().run_in_executor(self._thread, work))
        except Exception as error:
            if len(batch) > 1:  # one of them failed: compute each alone, so that the others do not
                for job in batch:
                    await self._compute([job])
            elif not batch[0].future.done():
                batch[0].future.set_exception(error)
            return
        for job in batch:
            own = [next(results) for _ in job.items]
            if not job.future.done():
                job.future.set_result(own)
