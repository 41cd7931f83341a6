"""Questions that arrive together are computed together. None is lost or fails because of another."""

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

from flows.serving.batching import Batches, Busy
from pipeline.errors import InputError


def test_questions_that_arrive_meanwhile_are_computed_together() -> None:
    gate, batches = threading.Event(), []

    def compute(items: Sequence[int]) -> list[int | Exception]:
        batches.append([*items])
        gate.wait(5)
        return [InputError(f"{item}") if item % 5 == 4 else 10 * item for item in items]

    async def ask_all() -> list[Any]:
        gathering: Batches[int, int] = Batches(compute)
        first = asyncio.create_task(gathering.answer(0))
        await asyncio.sleep(0.05)
        rest = [asyncio.create_task(gathering.answer(n)) for n in range(1, 100)]
        await asyncio.sleep(0)
        rest[1].cancel()  # its client has disconnected
        gate.set()
        results = await asyncio.gather(first, *rest, return_exceptions=True)
        gathering.close()
        return results

    results = asyncio.run(ask_all())
    assert [len(batch) for batch in batches] == [1, 64, 35]
    assert [n for batch in batches for n in batch] == [*range(100)]
    assert isinstance(results[2], asyncio.CancelledError)
    assert [str(result) for n, result in enumerate(results) if n != 2] == [
        str(n if n % 5 == 4 else 10 * n) for n in range(100) if n != 2
    ]


def test_with_one_question_per_batch_each_answer_is_returned_at_once() -> None:
    gate = threading.Event()

    async def two() -> tuple[int, bool]:
        gathering: Batches[int, int] = Batches(lambda items: [n for n in items if n == 0 or gate.wait(5)], together=1)
        quick, slow = (asyncio.create_task(gathering.answer(n)) for n in range(2))
        result = await quick, slow.done()
        gate.set()
        await slow
        return result

    assert asyncio.run(two()) == (0, False)


def test_an_item_that_fails_does_not_fail_its_batch() -> None:
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


def test_too_many_waiting_questions_are_refused() -> None:
    async def three() -> list[Any]:
        gathering: Batches[int, int] = Batches(lambda items: [*items], waiting=2)
        return await asyncio.gather(*(gathering.answer(n) for n in range(3)), return_exceptions=True)

    assert [type(one) for one in asyncio.run(three())] == [int, int, Busy]
