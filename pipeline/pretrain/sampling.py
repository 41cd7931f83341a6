"""The items of an update, a pure function of (seed, step). Imports nothing heavy.

Shapes: N items.
"""

from collections.abc import Callable

import numpy as np

from pipeline.errors import InputError


def batches_in(size_N: np.ndarray, batch_size: int, name: str) -> int:
    """Returns the batches per epoch. Raises InputError, which names the field `name`, if there is no full batch."""
    if not len(size_N):
        raise InputError(f"{name.split('.')[0]}: the collection has no text to train on")
    batches = int(size_N.sum()) // batch_size
    if batches == 0:
        raise InputError(f"{name}: {batch_size:,} is more than the whole collection holds ({int(size_N.sum()):,})")
    return batches


def sampler(size_N: np.ndarray, batch_size: int, seed: int, name: str) -> tuple[int, Callable[[int], np.ndarray]]:
    """Cuts items of sizes `size_N` into batches of total size about `batch_size` (all sizes 1: exactly as many).

    Each epoch is a new permutation cut into batches, without its last items if they fill no batch; so no item occurs
    twice in a batch. Returns the batches per epoch, and rows(step), a pure function of (seed, step).
    Raises InputError as `batches_in` does.
    """
    batches = batches_in(size_N, batch_size, name)
    kept: tuple[int, np.ndarray, np.ndarray] | None = None

    def rows(step: int) -> np.ndarray:
        nonlocal kept
        epoch, number = divmod(step, batches)
        if kept is None or kept[0] != epoch:
            order_N = np.random.default_rng([seed, epoch]).permutation(len(size_N))
            before_N = np.cumsum(size_N[order_N]) - size_N[order_N]
            kept = epoch, order_N, np.searchsorted(before_N, batch_size * np.arange(batches + 1))
        _, order_N, edges = kept
        return order_N[edges[number] : edges[number + 1]]

    return batches, rows
