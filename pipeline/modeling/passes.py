"""Forward passes without gradients over many rows of unequal length.

On CUDA neither side waits for the other: a thread packs the next chunk, and a chunk's results are read when the chunk
after it is at work.

Shapes: N rows, B rows of a chunk.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from pipeline.modeling.inputs import Packed
from pipeline.modeling.packing import cut_chunks

Item = TypeVar("Item")
Result = TypeVar("Result")


def fill(
    results_N: np.ndarray,
    length_N: np.ndarray,
    budget: int,
    pack: Callable[[np.ndarray], Packed],
    compute: Callable[[Packed], Tensor],
    device: str,
    done: Callable[[int], None] | None = None,
) -> None:
    """Writes compute(pack(row_B)), [B, ...], to results_N[row_B] for every row; `length_N`: their tokens.

    Rows of similar length share a pass of about `budget` tokens; `done(n)` is called after each pass of n rows.
    """
    chunks = [row_B for row_B in cut_chunks(length_N, None, budget) if len(row_B)]
    behind = 1 if device == "cuda" else 0
    computed: deque[tuple[np.ndarray, Callable[[], np.ndarray]]] = deque()
    with torch.inference_mode(), one_ahead(pack, chunks, device) as packed_chunks:
        for place in range(len(chunks) + behind):
            if place < len(chunks):
                computed.append((chunks[place], to_host(compute(next(packed_chunks)))))
            if place >= behind:
                row_B, read = computed.popleft()
                results_N[row_B] = read()
                if done is not None:
                    done(len(row_B))


@contextmanager
def one_ahead(function: Callable[[Item], Result], items: Iterable[Item], device: str) -> Iterator[Iterator[Result]]:
    """Yields function(item) of each item; on CUDA a thread computes the next one while the caller uses one."""
    if device != "cuda":
        yield map(function, items)
        return
    # A new thread would use the first GPU.
    with ThreadPoolExecutor(1, initializer=torch.cuda.set_device, initargs=(torch.cuda.current_device(),)) as thread:
        yield _submitted(thread, function, items)


def _submitted(
    thread: ThreadPoolExecutor, function: Callable[[Item], Result], items: Iterable[Item]
) -> Iterator[Result]:
    left = iter(items)
    following = deque(thread.submit(function, item) for item in islice(left, 2))
    while following:
        yield following.popleft().result()
        following.extend(thread.submit(function, item) for item in islice(left, 1))


def to_host(result: Tensor) -> Callable[[], np.ndarray]:
    """Starts to copy a result to the host. Returns a function that waits for the copy and returns it."""
    if not result.is_cuda:
        return result.cpu().numpy
    copied = torch.empty(result.shape, dtype=result.dtype).pin_memory()
    copied.copy_(result, non_blocking=True)
    arrived = torch.cuda.Event()
    arrived.record()

    def read() -> np.ndarray:
        arrived.synchronize()
        return copied.numpy()

    return read
