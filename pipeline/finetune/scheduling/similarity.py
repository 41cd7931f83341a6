"""The similarity of pair j's passage to pair i's question, for Adaptive Batch Scheduling.

Similarities are rounded to integers on a grid, so that their sums are exact in any order. The hardness of a batch
counts both sim(q_i, p_j) and sim(q_j, p_i), so only their sum is stored, with zeros for i = j. If the similarity of two
pairs is unknown (in no candidate list), or must not count (the passage is judged relevant for the question), its value
is one step below the lowest similarity.

Shapes: N pairs of a question and its positive passage, D dimension, R rows (question, passage, score) of candidate
lists, E exceptions, A and B pairs.
"""

import math
from dataclasses import dataclass
from functools import partial
from itertools import combinations_with_replacement
from typing import Protocol

import numpy as np

from pipeline.errors import InputError

LEVELS = 1 << 20
"""Most steps of the grid: an int32 holds sim(q_i, p_j) + sim(q_j, p_i), with nearly the precision of float32."""
BLOCK = 1024
"""Rows computed at a time."""

Rows = tuple[np.ndarray, np.ndarray, np.ndarray]
"""question_R and passage_R, int32 numbers of pairs; score_R, float32."""
Number = int | np.integer


@dataclass(frozen=True)
class Grid:
    least: float
    """The similarity at step 1."""
    scale: float
    """Steps per unit of similarity: a power of two, so that sums of integers stay exact."""

    def steps(self, scores: np.ndarray) -> np.ndarray:
        """Returns the steps of scores, int32, at least 1."""
        return (np.rint((scores.astype(np.float64) - self.least) * self.scale) + 1).astype(np.int32)

    def units(self, total: int, terms: int) -> float:
        """Converts a sum of `terms` steps to a sum of similarities."""
        return (total - terms) / self.scale + terms * self.least


def grid(scores: np.ndarray) -> Grid:
    """Returns the grid from the lowest to the highest score. Raises InputError if a score is not finite."""
    low, high = (float(scores.min()), float(scores.max())) if scores.size else (0.0, 0.0)
    if not np.isfinite(high - low):  # a NaN anywhere makes both NaN
        raise InputError("similarity: not finite; the encoder diverged in training (try a lower learning_rate)")
    return Grid(low, math.ldexp(0.5, math.frexp(LEVELS / (high - low))[1]) if high > low else 1.0)


class Similarity(Protocol):
    @property
    def grid(self) -> Grid: ...

    def __len__(self) -> int: ...

    def row(self, i: Number) -> tuple[np.ndarray | slice, np.ndarray]:
        """Returns (pairs j, their sim(q_i, p_j) + sim(q_j, p_i) in steps); 0 for all other pairs."""

    def block(self, some_A: np.ndarray, others_B: np.ndarray) -> np.ndarray:
        """Returns sim(q_a, p_b) + sim(q_b, p_a) in steps, [A, B]."""


@dataclass(frozen=True)
class DenseSimilarity:
    """All similarities: 4 N^2 bytes."""

    values_NN: np.ndarray
    """int32, symmetric."""
    grid: Grid

    def __len__(self) -> int:
        return len(self.values_NN)

    def row(self, i: Number) -> tuple[slice, np.ndarray]:
        return slice(None), self.values_NN[i]

    def block(self, some_A: np.ndarray, others_B: np.ndarray) -> np.ndarray:
        return self.values_NN[some_A[:, None], others_B]


@dataclass(frozen=True)
class SparseSimilarity:
    """The similarities of candidate lists: 8 bytes each, at most 400 N with lists of 100."""

    columns: np.ndarray
    """int32, ascending within each row."""
    values: np.ndarray
    """int32, at least 1."""
    offsets: np.ndarray
    """[N + 1]: row i is offsets[i] up to offsets[i + 1]."""
    grid: Grid

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def row(self, i: Number) -> tuple[np.ndarray, np.ndarray]:
        span = slice(self.offsets[i], self.offsets[i + 1])
        return self.columns[span], self.values[span]

    def block(self, some_A: np.ndarray, others_B: np.ndarray) -> np.ndarray:
        values_AB = np.zeros((len(some_A), len(others_B)), np.int32)
        for values_B, i in zip(values_AB, some_A, strict=True):
            columns, values = self.row(i)
            if len(columns):
                place_B = np.minimum(np.searchsorted(columns, others_B), len(columns) - 1)
                np.copyto(values_B, values[place_B], where=columns[place_B] == others_B)
        return values_AB


def dense(scores_NN: np.ndarray, judged_E2: np.ndarray) -> DenseSimilarity:
    """Builds all similarities from sim(q_i, p_j) = scores_NN[i, j]. Entries (i, j) of `judged_E2` do not count."""
    steps, n = grid(scores_NN), len(scores_NN)
    values_NN = np.empty((n, n), np.int32)
    for start in range(0, n, BLOCK):
        values_NN[start : start + BLOCK] = steps.steps(scores_NN[start : start + BLOCK])
    values_NN[judged_E2[:, 0], judged_E2[:, 1]] = 0
    np.fill_diagonal(values_NN, 0)
    blocks = [slice(start, start + BLOCK) for start in range(0, n, BLOCK)]
    for here, there in combinations_with_replacement(blocks, 2):
        values_NN[here, there] += values_NN[there, here].T
        values_NN[there, here] = values_NN[here, there].T
    return DenseSimilarity(values_NN, steps)


def sparse(rows: Rows, n: int, judged_E2: np.ndarray) -> SparseSimilarity:
    """Builds the similarities of candidate lists. A pair's own passage and judged passages do not count.

    Of duplicate rows, the first counts.
    """
    from scipy.sparse import csr_array

    question_R, passage_R, score_R = rows
    key_R = question_R.astype(np.int64) * n + passage_R
    wanted_R = question_R != passage_R
    if len(judged_E2):
        wanted_R &= ~np.isin(key_R, judged_E2[:, 0].astype(np.int64) * n + judged_E2[:, 1])
    key_R, first_R = np.unique(key_R[wanted_R], return_index=True)
    score_R = score_R[wanted_R][first_R]
    del first_R, wanted_R
    steps = grid(score_R)
    offsets = np.searchsorted(key_R, np.arange(n + 1, dtype=np.int64) * n)
    one_way = csr_array((steps.steps(score_R), (key_R % n).astype(np.int32), offsets.astype(np.int32)), shape=(n, n))
    del key_R, score_R
    both = (one_way + one_way.T).tocsr()
    both.sort_indices()
    return SparseSimilarity(both.indices, both.data, both.indptr, steps)


def nearest_neighbours(questions_ND: np.ndarray, passages_ND: np.ndarray, depth: int, device: str = "cpu") -> Rows:
    """Returns each question's `depth` passages of greatest inner product, then each passage's questions.

    Own pairs are left out. `device`: "cuda" is hundreds of times faster than one core; any other uses that core.
    """
    best = partial(best_by_torch, device=device) if device == "cuda" else _best
    by_question, by_passage = best(questions_ND, passages_ND, depth), best(passages_ND, questions_ND, depth)
    return (
        np.concatenate([by_question[0], by_passage[1]]),
        np.concatenate([by_question[1], by_passage[0]]),
        np.concatenate([by_question[2], by_passage[2]]),
    )


def _best(from_ND: np.ndarray, to_ND: np.ndarray, depth: int) -> Rows:
    """Returns rows of the `depth` greatest inner products of each vector; the own pair is left out."""
    import faiss

    faiss.cvar.distance_compute_blas_threshold = 1  # else small batches do not use BLAS and are seven times slower
    n = len(from_ND)
    depth = min(depth, n - 1)
    column_NK = np.empty((n, depth), np.int32)
    scores_NK = np.empty((n, depth), np.float32)
    for start in range(0, n, BLOCK):
        block = slice(start, min(start + BLOCK, n))
        scores_BK, column_BK = faiss.knn(from_ND[block], to_ND, depth + 1, metric=faiss.METRIC_INNER_PRODUCT)
        own_BK = column_BK == np.arange(block.start, block.stop)[:, None]
        own_BK[~own_BK.any(1), np.argmin(scores_BK, axis=1)[~own_BK.any(1)]] = True
        column_NK[block] = column_BK[~own_BK].reshape(-1, depth)
        scores_NK[block] = scores_BK[~own_BK].reshape(-1, depth)
    return np.repeat(np.arange(n, dtype=np.int32), depth), column_NK.ravel(), scores_NK.ravel()


def best_by_torch(from_ND: np.ndarray, to_ND: np.ndarray, depth: int, device: str) -> Rows:
    """As `_best`, on the device, or on the processor if the device has no memory left."""
    import torch

    try:
        return _best_on(from_ND, to_ND, depth, device)
    except torch.OutOfMemoryError:
        return _best(from_ND, to_ND, depth)


def _best_on(from_ND: np.ndarray, to_ND: np.ndarray, depth: int, device: str) -> Rows:
    import torch

    torch.set_float32_matmul_precision("highest")
    n = len(from_ND)
    depth = min(depth, n - 1)
    on_device_ND, to_DN = torch.tensor(from_ND, device=device), torch.tensor(to_ND, device=device).T
    scores, columns = [], []
    for start in range(0, n, BLOCK):
        score_BN = on_device_ND[start : start + BLOCK] @ to_DN
        score_BN.diagonal(start).fill_(-torch.inf)
        score_BK, column_BK = score_BN.topk(depth)
        scores.append(score_BK)
        columns.append(column_BK.int())
    column_NK, score_NK = (torch.cat(parts).cpu().numpy() for parts in (columns, scores))
    return np.repeat(np.arange(n, dtype=np.int32), depth), column_NK.ravel(), score_NK.ravel()


def best_rows(rows: Rows, depth: int) -> Rows:
    """Returns the rows in a question's `depth` best passages or a passage's `depth` best questions; ties by number."""
    question_R, passage_R, score_R = rows
    kept_R = _ranks(question_R, passage_R, score_R) < depth
    kept_R |= _ranks(passage_R, question_R, score_R) < depth
    return question_R[kept_R], passage_R[kept_R], score_R[kept_R]


def _ranks(group_R: np.ndarray, other_R: np.ndarray, score_R: np.ndarray) -> np.ndarray:
    order_R = np.lexsort((other_R, -score_R, group_R))
    first = np.concatenate([[0], np.bincount(group_R).cumsum()])
    rank_R = np.empty(len(order_R), np.int64)
    rank_R[order_R] = np.arange(len(order_R)) - first[group_R[order_R]]
    return rank_R


def within(rows: Rows, members: np.ndarray, n: int) -> Rows:
    """Returns the rows with both pairs in `members` (ascending), by their places there."""
    place_N = np.full(n, -1, np.int32)
    place_N[members] = np.arange(len(members))
    question_R, passage_R = place_N[rows[0]], place_N[rows[1]]
    kept_R = (question_R >= 0) & (passage_R >= 0)
    return question_R[kept_R], passage_R[kept_R], rows[2][kept_R]
