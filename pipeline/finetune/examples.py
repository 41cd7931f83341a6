"""Training examples of a bi-encoder, a pure function of (seed, epoch, index).

An example is a question, one of its judged passages and n negatives. Negatives are a window over a seeded shuffle of
the question's pool; the window moves on with every epoch (coCondenser's authors' code). Row numbers everywhere: of
queries.parquet for questions, of passages.parquet for passages.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from pipeline.data.barred import FREE, Barred, barred_pairs, reasons
from pipeline.errors import InputError
from pipeline.finetune.pools import Pools

ORDER, POSITIVE, WINDOW, FILL = 0, 2, 3, 4  # first word of a seed, so that no two draws share a stream


@dataclass(frozen=True)
class Draw:
    """How passages are drawn to stand beside a question."""

    negatives: int
    """n, of each question."""
    positives_considered: int
    """Judged passages among which the positive is drawn, first ones first. 0: all."""
    seed: int


@dataclass(frozen=True)
class Batch:
    """Q examples of n negatives each."""

    queries_Q: np.ndarray
    passages_QN: np.ndarray
    """[Q, 1 + n]: the positive, then the negatives."""
    excluded_QP: np.ndarray
    """[Q, Q * (1 + n)] bool: passages of the flattened batch that are no negatives of the question: judged for it, a
    copy of a judged one, or the question itself. Its own positive aside."""


def epoch_size(pools: Pools) -> int:
    """Examples in an epoch: every question once with each kind of negatives."""
    return len(pools.queries) * len(pools.negatives)


def filled(pools: Pools, negatives_per_query: int) -> int:
    """Negatives an epoch that a pool is too small for, drawn from the whole collection instead."""
    return int(sum(np.maximum(0, negatives_per_query - lists.lengths).sum() for lists in pools.negatives))


@lru_cache(maxsize=1)
def order(seed: int, epoch: int, size: int) -> np.ndarray:
    """The examples of an epoch in the order of training, a permutation of range(size)."""
    return np.random.default_rng([ORDER, seed, epoch]).permutation(size)


def window(pool: np.ndarray, number: int, epoch: int, seed: int, example: int) -> np.ndarray:
    """The `number` negatives of `epoch`: a window over the shuffled pool that goes round; all of a smaller pool."""
    shuffled = np.random.default_rng([WINDOW, seed, example]).permutation(pool)
    return np.roll(shuffled, -epoch * number)[:number] if number < len(pool) else shuffled


def fill(
    taken: np.ndarray, barred: Barred, question: int, number: int, passages: int, rng: np.random.Generator
) -> np.ndarray:
    """`taken` and passages drawn from the whole collection, `number` together, none barred of the question with that
    number, none twice."""
    found = [int(passage) for passage in taken]
    drawn = {*found}
    while len(found) < number:
        passage = int(rng.integers(passages))
        if passage not in drawn:
            drawn.add(passage)
            if reasons(barred, np.array([question]), np.array([passage]))[0] == FREE:
                found.append(passage)
    return np.array(found, dtype=np.int64)


def room(barred_n: np.ndarray, passages: int) -> int:
    """Passages that may be negatives of a question, of the one that has the fewest. `barred_n`: how many may not."""
    return passages - int(barred_n.max(initial=0))


def check_enough(field: str, number: int, barred_n: np.ndarray, passages: int, positives: int = 0) -> None:
    """InputError where a question has fewer than `number` passages that are not barred: `fill` would never end.

    `positives`: what the field counts beside them.
    """
    if number > (left := room(barred_n, passages)):
        raise InputError(
            f"{field}: {number + positives} is too many: a question has only {left} of the {passages} passages for "
            "negatives; the others are its positives, copies of these, or the question itself"
        )


def example(pools: Pools, epoch: int, index: int, draw: Draw) -> tuple[int, np.ndarray]:
    """(place of the question in the pools, passages [1 + n]) of an example, one of range(epoch_size), in an epoch."""
    kind, place = divmod(index, len(pools.queries))
    taken = window(pools.negatives[kind][place], draw.negatives, epoch, draw.seed, index)
    rng = np.random.default_rng([FILL, draw.seed, epoch, index])
    negatives = fill(taken, pools.barred, place, draw.negatives, pools.passages, rng)
    return place, np.append(positive(pools, epoch, index, draw), negatives)


def positive(pools: Pools, epoch: int, index: int, draw: Draw) -> int:
    """The judged passage that an example has in an epoch."""
    considered = pools.judged[index % len(pools.queries)][: draw.positives_considered or None]
    return int(np.random.default_rng([POSITIVE, draw.seed, epoch, index]).choice(considered))


def batch(pools: Pools, epoch: int, indices: np.ndarray, draw: Draw) -> Batch:
    """The examples `indices` of an epoch."""
    drawn = [example(pools, epoch, int(index), draw) for index in indices]
    places = np.array([place for place, _ in drawn])
    passages_QN = np.stack([passages for _, passages in drawn])
    return Batch(pools.queries[places], passages_QN, _excluded(pools.barred, places, passages_QN))


def _excluded(barred: Barred, places: np.ndarray, passages_QN: np.ndarray) -> np.ndarray:
    excluded_QP = np.zeros((len(places), passages_QN.size), dtype=bool)
    excluded_QP[barred_pairs(barred, places, passages_QN.ravel())] = True
    excluded_QP[np.arange(len(places)), np.arange(len(places)) * passages_QN.shape[1]] = False
    return excluded_QP


def batches(size: int, most: int) -> np.ndarray:
    """Edges of an epoch's batches of at most `most` of `size` examples, of sizes that differ by at most one."""
    number = -(-size // most)
    return np.arange(number + 1) * size // number
