"""Training examples of a bi-encoder, a pure function of (seed, epoch, index).

An example is a question, one of its judged passages and n negatives. Negatives are a window over a seeded shuffle of
the question's pool; the window moves with every epoch (coCondenser's authors' code). Questions are row numbers of
queries.parquet, passages are row numbers of passages.parquet.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from pipeline.data.barred import FREE, Barred, barred_pairs, reasons
from pipeline.errors import InputError
from pipeline.finetune.pools import Pools

ORDER, POSITIVE, WINDOW, FILL = 0, 2, 3, 4  # first number of a seed, so that no two draws share a stream


@dataclass(frozen=True)
class Draw:
    """How the passages of a question are drawn."""

    negatives: int
    """n, of each question."""
    positives_considered: int | None
    """Number of first judged passages from which the positive is drawn. None: all."""
    seed: int


@dataclass(frozen=True)
class ExampleBatch:
    """Q examples of n negatives each."""

    queries_Q: np.ndarray
    passages_QN: np.ndarray
    """[Q, 1 + n]: the positive, then the negatives."""
    excluded_QP: np.ndarray
    """[Q, Q * (1 + n)] bool: passages of the flattened batch that are not negatives of the question: judged for it, a
    copy of a judged one, or the question itself. False for its own positive."""


def epoch_size(pools: Pools) -> int:
    """Returns the number of examples per epoch: every question once with each kind of negatives."""
    return len(pools.queries) * len(pools.negatives)


def filled(pools: Pools, negatives_per_query: int) -> int:
    """Returns the negatives per epoch that are drawn from the full collection because a pool is too small."""
    return int(sum(np.maximum(0, negatives_per_query - lists.lengths).sum() for lists in pools.negatives))


@lru_cache(maxsize=1)
def epoch_order(seed: int, epoch: int, size: int) -> np.ndarray:
    """Returns the examples of an epoch in training order, a permutation of range(size)."""
    return np.random.default_rng([ORDER, seed, epoch]).permutation(size)


def window(pool: np.ndarray, number: int, epoch: int, seed: int, example: int) -> np.ndarray:
    """Returns the `number` negatives of `epoch`: a cyclic window over the shuffled pool; all of a smaller pool."""
    shuffled = np.random.default_rng([WINDOW, seed, example]).permutation(pool)
    return np.roll(shuffled, -epoch * number)[:number] if number < len(pool) else shuffled


def fill(
    taken: np.ndarray, barred: Barred, question: int, number: int, passages: int, rng: np.random.Generator
) -> np.ndarray:
    """Returns `taken` and passages drawn from the full collection, `number` together, without duplicates.

    Draws no passage that is barred for the question with number `question`.
    """
    chosen = [int(passage) for passage in taken]
    drawn = {*chosen}
    while len(chosen) < number:
        passage = int(rng.integers(passages))
        if passage not in drawn:
            drawn.add(passage)
            if reasons(barred, np.array([question]), np.array([passage]))[0] == FREE:
                chosen.append(passage)
    return np.array(chosen, dtype=np.int64)


def room(barred_n: np.ndarray, passages: int) -> int:
    """Returns the smallest number of passages that may be negatives of a question.

    `barred_n`: barred passages of each question.
    """
    return passages - int(barred_n.max(initial=0))


def check_enough(field: str, number: int, barred_n: np.ndarray, passages: int, positives: int = 0) -> None:
    """Raises InputError if a question has fewer than `number` passages that are not barred: `fill` would never end.

    `positives`: passages that the field counts in addition.
    """
    if number > (left := room(barred_n, passages)):
        raise InputError(
            f"{field}: {number + positives} is too many: for one question only {left} of the {passages} passages can "
            "be negatives; the others are its positives, copies of these, or the question itself"
        )


def example(pools: Pools, epoch: int, index: int, draw: Draw) -> tuple[int, np.ndarray]:
    """Returns (place of the question in the pools, passages [1 + n]) of example `index` of range(epoch_size)."""
    kind, place = divmod(index, len(pools.queries))
    taken = window(pools.negatives[kind][place], draw.negatives, epoch, draw.seed, index)
    rng = np.random.default_rng([FILL, draw.seed, epoch, index])
    negatives = fill(taken, pools.barred, place, draw.negatives, pools.passages, rng)
    return place, np.append(positive(pools, epoch, index, draw), negatives)


def positive(pools: Pools, epoch: int, index: int, draw: Draw) -> int:
    """Returns the judged passage of an example in an epoch."""
    considered = pools.judged[index % len(pools.queries)][: draw.positives_considered]
    return int(np.random.default_rng([POSITIVE, draw.seed, epoch, index]).choice(considered))


def draw_batch(pools: Pools, epoch: int, indices: np.ndarray, draw: Draw) -> ExampleBatch:
    """Returns the batch of the examples `indices` of an epoch."""
    drawn = [example(pools, epoch, int(index), draw) for index in indices]
    places = np.array([place for place, _ in drawn])
    passages_QN = np.stack([passages for _, passages in drawn])
    return ExampleBatch(pools.queries[places], passages_QN, _excluded(pools.barred, places, passages_QN))


def _excluded(barred: Barred, places: np.ndarray, passages_QN: np.ndarray) -> np.ndarray:
    excluded_QP = np.zeros((len(places), passages_QN.size), dtype=bool)
    excluded_QP[barred_pairs(barred, places, passages_QN.ravel())] = True
    excluded_QP[np.arange(len(places)), np.arange(len(places)) * passages_QN.shape[1]] = False
    return excluded_QP


def batches(size: int, most: int) -> np.ndarray:
    """Returns the edges of an epoch's batches: at most `most` of `size` examples each, sizes differ by at most one."""
    number = -(-size // most)
    return np.arange(number + 1) * size // number


def mean_batch(pools: Pools, most: int) -> float:
    """Returns the mean number of examples in an epoch's `batches`."""
    size = epoch_size(pools)
    return size / (len(batches(size, most)) - 1)
