"""Questions that come together are computed together, and none is lost or fails for another."""

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

from flows.serving.batching import Batches, Busy
from pipeline.errors import InputError


def test_questions_that_come_meanwhile_are_computed_together() -> None:
    going, batches = threading.Event(), []

    def compute(items: Sequence[int]) -> list[int | Exception]:
        batches.append([*items])
        going.wait(5)
        return [InputError(f"{item}") if item % 5 == 4 else 10 * item for item in items]

    async def ask_all() -> list[Any]:
        gathering: Batches[int, int] = Batches(compute)
        first = asyncio.create_task(gathering.answer(0))
        await asyncio.sleep(0.05)
        rest = [asyncio.create_task(gathering.answer(n)) for n in range(1, 100)]
        await asyncio.sleep(0)
        rest[1].cancel()  # its client has gone
        going.set()
        found = await asyncio.gather(first, *rest, return_exceptions=True)
        gathering.close()
        return found

    found = asyncio.run(ask_all())
    assert [len(batch) for batch in batches] == [1, 64, 35]
    assert [n for batch in batches for n in batch] == [*range(100)]
    assert isinstance(found[2], asyncio.CancelledError)
    assert [str(one) for n, one in enumerate(found) if n != 2] == [
        str(n if n % 5 == 4 else 10 * n) for n in range(100) if n != 2
    ]


def test_one_at_a_time_each_is_returned_once_it_is_found() -> None:
    going = threading.Event()

    async def two() -> tuple[int, bool]:
        gathering: Batches[int, int] = Batches(lambda items: [n for n in items if n == 0 or going.wait(5)], together=1)
        quick, slow = (asyncio.create_task(gathering.answer(n)) for n in range(2))
        found = await quick, slow.done()
        going.set()
        await slow
        return found

    assert asyncio.run(two()) == (0, False)


def test_an_item_that_fails_fails_none_of_its_batch() -> None:
    batches: list[list[int]] = []

    def compute(items: Sequence[int]) -> list[int | Exception]:
        batches.append([*items])
        return [12 // item for item in items]

    async def four() -> list[Any]:
        gathering: Batches[int, int] = Batches(compute)
        return await asyncio.gather(*(gathering.answer(n) for n in (1, 0, 2, 3)), return_exceptions=True)

    first, failed, *others = asyncio.run(four())
    assert isinstance(failed, ZeroDivisionError)
    assert [first, *others] == [12, 6, 4]
    assert max(batches, key=len) == [1, 0, 2, 3]


def test_too_many_are_refused() -> None:
    async def three() -> list[Any]:
        gathering: Batches[int, int] = Batches(lambda items: [*items], waiting=2)
        return await asyncio.gather(*(gathering.answer(n) for n in range(3)), return_exceptions=True)

    assert [type(one) for one in asyncio.run(three())] == [int, int, Busy]
