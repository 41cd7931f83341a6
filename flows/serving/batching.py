"""Questions gathered while others are computed, so that each computation takes as many as have come."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

MOST = 64
"""Questions computed together."""
WAITING = 1024
"""Questions that may wait; more are refused."""


class Busy(Exception):
    """Too many questions wait."""


class Batches(Generic[Item, Result]):
    """`await batches.answer(item)`: its result, computed with those that came at the same time.

    `compute` runs in a thread of its own, one batch of at most `together` after the other, and gives a result or an
    exception for each item. At most `waiting` wait.
    """

    def __init__(
        self,
        compute: Callable[[Sequence[Item]], Sequence[Result | Exception]],
        waiting: int = WAITING,
        together: int = MOST,
    ) -> None:
        self._compute = compute
        self._limit = waiting
        self._together = together
        self._thread = ThreadPoolExecutor(1)
        self._waiting: list[tuple[Item, asyncio.Future[Result]]] = []
        self._running: asyncio.Task[None] | None = None

    async def answer(self, item: Item) -> Result:
        """Raises the exception that `compute` gave for the item, and Busy."""
        if len(self._waiting) >= self._limit:
            raise Busy(f"{self._limit:,} questions wait already")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        self._waiting.append((item, future))
        if self._running is None or self._running.done():
            self._running = loop.create_task(self._run())
        return await future

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            batch, self._waiting = self._waiting[: self._together], self._waiting[self._together :]
            found = await loop.run_in_executor(self._thread, self._results, [item for item, _ in batch])
            for (_, future), one in zip(batch, found, strict=True):
                if future.done():  # its client has gone
                    continue
                if isinstance(one, Exception):
                    future.set_exception(one)
                else:
                    future.set_result(one)

    def _results(self, items: Sequence[Item]) -> Sequence[Result | Exception]:
        """Where a computation fails, that of each item alone: one must not fail those that came with it."""
        try:
            return self._compute(items)
        except Exception as error:  # whatever it is, who asked must hear of it
            return [error] if len(items) == 1 else [one for item in items for one in self._results([item])]

    def close(self) -> None:
        self._thread.shutdown()
