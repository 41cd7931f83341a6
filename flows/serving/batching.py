"""Collects questions while others are computed. Each computation takes all questions that wait, up to a limit."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

MOST = 64
"""Maximum number of questions computed together."""
WAITING = 1024
"""Maximum number of questions that wait; more are refused."""


class Busy(Exception):
    """Raised if too many questions wait."""


class Batches(Generic[Item, Result]):
    """`await batches.answer(item)` returns the item's result, which is computed together with other waiting items.

    `compute` runs in its own thread, one batch of at most `together` items at a time. It returns a result or an
    exception per item. At most `waiting` items wait.
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
        """Raises the item's exception from `compute`, or Busy."""
        if len(self._waiting) >= self._limit:
            raise Busy(f"{self._limit:,} questions are waiting already")
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
            results = await loop.run_in_executor(self._thread, self._results, [item for item, _ in batch])
            for (_, future), result in zip(batch, results, strict=True):
                if future.done():  # the client has disconnected
                    continue
                if isinstance(result, Exception):
                    future.set_exception(result)
                else:
                    future.set_result(result)

    def _results(self, items: Sequence[Item]) -> Sequence[Result | Exception]:
        """If a batch fails, each item is computed alone: one item must not fail the others."""
        try:
            return self._compute(items)
        except Exception as error:  # any error: the client must get an answer
            return [error] if len(items) == 1 else [result for item in items for result in self._results([item])]

    def close(self) -> None:
        self._thread.shutdown()
