"""Adaptive Batch Scheduling: batches whose own passages are hard negatives for their questions.

A pair is a question and its positive passage; the negatives of a question are the other passages of its batch. The
hardness of a batch is the sum over i != j of sim(q_i, p_j). An epoch starts as a random partition of all pairs into
batches. Each batch in turn becomes harder by swaps with the pairs of later batches, and is then fixed. A swap exchanges
the places of two pairs, so each pair is always in exactly one batch.

Shapes: N pairs, B pairs of a batch, K pairs to swap. Batches are ascending int64 numbers of pairs.
"""

from collections.abc import Callable, Generator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from pipeline.errors import InputError
from pipeline.finetune.scheduling.similarity import Similarity, SparseSimilarity

HIDDEN = 1 << 60
"""Subtracted from the sum of a pair that cannot be swapped in; larger than any sum."""

Improve = Callable[[Similarity, np.ndarray, np.ndarray], np.ndarray]
"""improve(similarity, sums_N, batch_B): returns a batch at least as hard; changes `sums_N`, see `greedy`."""


class Hardness(NamedTuple):
    """Sums over an epoch's batches, in units of the similarity."""

    scheduled: float
    random: float
    """Of the random batches that the epoch started from."""


def check_pairs(pairs: int, batch: int) -> None:
    """Raises InputError if one batch has more pairs than the training."""
    if batch > pairs:
        raise InputError(f"batch_queries: {batch} is too many, there are only {pairs} training pairs to schedule")


def random_batches(sizes: Sequence[int], seed: int, epoch: int) -> list[np.ndarray]:
    """Returns random batches of all pairs: the start of scheduled batches, and their baseline."""
    order_N = np.random.default_rng([seed, epoch]).permutation(sum(sizes))
    return [np.sort(batch) for batch in np.split(order_N, np.cumsum(sizes)[:-1])]


def greedy(similarity: Similarity, sums_N: np.ndarray, batch_B: np.ndarray) -> np.ndarray:
    """Swaps out argmax h(B - d), swaps in argmax h(B - d_r + d) over all unused pairs, until no swap gains.

    `sums_N`: for each pair the sum of its similarities with the batch, both ways (row and column), in steps of the
    grid, minus HIDDEN if it is in this batch or an earlier one. A swap changes two rows of it. Ties: the lower number.
    """
    batch_B = batch_B.copy()
    while True:
        place = sums_N[batch_B].argmin()
        leaving = batch_B[place]
        where, values = similarity.row(leaving)
        sums_N[where] -= values
        entering = sums_N.argmax()
        if sums_N[entering] <= sums_N[leaving] + HIDDEN:
            return batch_B
        where, values = similarity.row(entering)
        sums_N[where] += values
        sums_N[leaving] += HIDDEN
        sums_N[entering] -= HIDDEN
        batch_B[place] = entering
        batch_B.sort()


def beam(width: int) -> Improve:
    """Returns a search that makes the best of `width` x `width` swaps, until none gains.

    It swaps out one of the pairs that add least to the batch, and swaps in one of the candidates that would add most.
    Candidates are in the list of a question or passage of the batch, or have one of the batch in their own list. (The
    paper does not state the width of its beam, nor whether it continues from several batches; this search continues
    from the best one.)
    """

    def improve(similarity: Similarity, sums_N: np.ndarray, batch_B: np.ndarray) -> np.ndarray:
        if not isinstance(similarity, SparseSimilarity):
            raise TypeError("beam search needs candidate lists")
        batch_B = batch_B.copy()
        while True:
            leaving_K = batch_B[_greatest(-sums_N[batch_B], width)]
            candidates = np.flatnonzero(sums_N > 0)  # every entry of a list is at least 1
            entering_K = candidates[_greatest(sums_N[candidates], width)]
            if not len(entering_K):
                return batch_B
            gain_KK = sums_N[entering_K] - (sums_N[leaving_K] + HIDDEN)[:, None]
            gain_KK -= similarity.block(leaving_K, entering_K)
            out, into = np.unravel_index(gain_KK.argmax(), gain_KK.shape)
            if gain_KK[out, into] <= 0:
                return batch_B
            leaving, entering = int(leaving_K[out]), int(entering_K[into])
            for pair, sign in ((leaving, -1), (entering, 1)):
                where, values = similarity.row(pair)
                sums_N[where] += sign * values
                sums_N[pair] -= sign * HIDDEN
            batch_B[np.searchsorted(batch_B, leaving)] = entering
            batch_B.sort()

    return improve


def _greatest(values_C: np.ndarray, k: int) -> list[int]:
    """Returns the places of the k greatest values, greatest first; ties: the lower place."""
    values_C, places = values_C.copy(), []
    for _ in range(min(k, len(values_C))):
        places.append(int(values_C.argmax()))
        values_C[places[-1]] = -2 * HIDDEN
    return places


def schedule(
    similarity: Similarity,
    sizes: Sequence[int],
    seed: int,
    epoch: int,
    improve: Improve,
    found: Sequence[np.ndarray] = (),
) -> Generator[np.ndarray, None, Hardness]:
    """Yields the epoch's batches in order, each pair of `similarity` in exactly one; returns their hardness.

    A pure function of its arguments. `found`: the first batches of an interrupted call with the same arguments, which
    are not searched again. If the swaps of a batch would make the partition (fixed and still random batches) less hard
    than the random one, the batch stays unchanged; so the epoch is never less hard than random.
    """
    home = random_batches(sizes, seed, epoch)
    order_N, edges = np.concatenate(home), np.cumsum([0, *sizes])
    place_N = np.argsort(order_N)
    bounds_N2 = np.stack([edges[:-1], edges[1:]], axis=1).repeat(sizes, axis=0)
    random = total = sum(_inside(similarity, batch_B) for batch_B in home)
    hidden_N = np.zeros(len(order_N), np.int64)
    for k, (start, stop) in enumerate(pairwise(edges)):
        home_B = np.sort(order_N[start:stop])
        hidden_N[home_B] = -HIDDEN
        batch_B = found[k] if k < len(found) else improve(similarity, _sums(similarity, home_B, hidden_N), home_B)
        change = _inside(similarity, batch_B) - _inside(similarity, home_B)
        leaving, entering = np.setdiff1d(home_B, batch_B), np.setdiff1d(batch_B, home_B)
        for out, into in zip(leaving, entering, strict=True):
            change += _exchange(similarity, order_N, place_N, bounds_N2, out, into)
        if total + change < random:
            for out, into in zip(leaving, entering, strict=True):
                _exchange(similarity, order_N, place_N, bounds_N2, into, out)
            change, batch_B = 0, home_B
        total += change
        hidden_N[home_B] = 0
        hidden_N[batch_B] = -HIDDEN
        yield batch_B
    terms = _terms(sizes)
    return Hardness(similarity.grid.units(total, terms), similarity.grid.units(random, terms))


def _sums(similarity: Similarity, batch_B: np.ndarray, hidden_N: np.ndarray) -> np.ndarray:
    sums_N = hidden_N.copy()
    for pair in batch_B:
        where, values = similarity.row(pair)
        sums_N[where] += values
    return sums_N


def _exchange(
    similarity: Similarity, order_N: np.ndarray, place_N: np.ndarray, bounds_N2: np.ndarray, out: int, into: int
) -> int:
    """Exchanges the pair `out` of the current batch and `into` of a later one; returns how much harder that becomes."""
    start, stop = bounds_N2[place_N[into]]
    later = order_N[start:stop]  # a view
    before = similarity.block(np.array([into]), later).sum()
    order_N[place_N[[out, into]]] = into, out
    place_N[[out, into]] = place_N[[into, out]]
    return int(similarity.block(np.array([out]), later).sum() - before)


def _inside(similarity: Similarity, batch_B: np.ndarray) -> int:
    """Returns the hardness of a batch in steps of the grid."""
    return int(similarity.block(batch_B, batch_B).sum(dtype=np.int64)) // 2


def _terms(sizes: Sequence[int]) -> int:
    """Returns the number of terms of all sums over i != j."""
    return sum(size * (size - 1) for size in sizes)
