"""Exact search: the best passages of each question, with the same bytes for any threads, batches, blocks and devices.

Candidates come from float32 products with one block of passages at a time, and are rescored in float64 (rescore.py).

Shapes: Q questions, N passages, A allowed passages, D dimension, B passages of a block, C candidates, K passages of a
list.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from pipeline.dense.rescore import best_k, error_bound, is_certain, rescore, take_rows
from pipeline.errors import InputError

if TYPE_CHECKING:
    from pipeline.dense.exact_gpu import GpuVectors

SPARE = 20  # candidates beyond k (or k / 10 if larger), so that rounding rarely requires a second search
WIDER = 8  # times as many candidates in the second search
RESCORED = 8192  # passages rescored at a time if all of them are
QUESTIONS, GPU_QUESTIONS = 1024, 8192  # searched at a time, by a processor and by a GPU
COPIED = 1 << 22  # floats of a block of passages that is copied
LEAST = 1024  # smallest number of passages of a block
FEW = 4  # questions: for fewer, one pass over the passages each is faster than a matrix product
PRODUCT = 2048  # passages in a matrix product; FAISS's 1,024 is 1 % slower

Found = tuple[np.ndarray, np.ndarray]
Blocks = Iterator[tuple[int, np.ndarray]]
"""(row of the first passage, float32 vectors [B, D])."""


def exact_top_k(
    questions_QD: np.ndarray,
    vectors_ND: np.ndarray,
    k: int,
    longest: float,
    rows_A: np.ndarray | None = None,
    block: int = 0,
    on_gpu: "GpuVectors | None" = None,
) -> Found:
    """Returns rows (int64) and scores (float32), both [Q, min(k, A)], by score descending, then passage order.

    `vectors_ND`: float32 (read in place) or float16, may be memory-mapped; `longest`: the greatest vector norm;
    `rows_A`: the allowed passages, ascending, None for all; `block`: passages at a time, 0 for a fast default;
    `on_gpu`: the same vectors on a GPU, which then searches.

    If a passage outside the candidates could still belong to the best k because of rounding (as with many equal
    passages), the question is searched again with WIDER times as many candidates, and at last through all passages
    in float64. So the result depends only on the vectors. Apart from the result, memory does not grow with Q, N or A.
    Raises InputError if the dimensions differ or a question is not finite.
    """
    check_questions(questions_QD, vectors_ND)
    questions_QD = np.ascontiguousarray(questions_QD, dtype=np.float32)
    passages = len(vectors_ND) if rows_A is None else len(rows_A)
    k = min(k, passages)
    rows_QK = np.empty((len(questions_QD), k), np.int64)
    scores_QK = np.empty((len(questions_QD), k), np.float32)
    bound_Q = error_bound(questions_QD, longest)
    pending = np.arange(len(questions_QD) if k else 0)
    for wider in (1, WIDER):
        width = min(wider * (k + max(SPARE, k // 10)), passages)
        batch = (GPU_QUESTIONS if on_gpu else QUESTIONS) // wider
        uncertain_Q = np.zeros(len(questions_QD), bool)
        for start in range(0, len(pending), batch):
            some = pending[start : start + batch]
            if on_gpu:
                best = on_gpu.best(questions_QD[some], k, width, longest, rows_A)
            else:
                best = _best(questions_QD[some], vectors_ND, k, width, rows_A, block)
            rows_QK[some], scores_QK[some], worst_Q = best
            uncertain_Q[some] = width < passages and ~is_certain(scores_QK[some, -1], worst_Q, bound_Q[some])
        pending = np.flatnonzero(uncertain_Q)
    for question in pending:
        one = slice(question, question + 1)
        rows_QK[one], scores_QK[one] = _by_all(questions_QD[one], vectors_ND, k, rows_A)
    return rows_QK, scores_QK


def _best(
    questions_QD: np.ndarray, vectors_ND: np.ndarray, k: int, width: int, rows_A: np.ndarray | None, block: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns (rows and exact scores of the best `k` of `width` candidates, bounds [Q] of all other passages)."""
    blocks = _blocks(vectors_ND, rows_A, block or _block_size(vectors_ND, rows_A))
    rows_QC, worst_Q = _candidates(questions_QD, blocks, width)
    rows_QC = rows_QC if rows_A is None else rows_A[rows_QC]
    return *best_k(rows_QC, rescore(questions_QD, rows_QC, vectors_ND), k), worst_Q


def _by_all(question_1D: np.ndarray, vectors_ND: np.ndarray, k: int, rows_A: np.ndarray | None) -> Found:
    """Returns rows and scores of a question after rescoring all passages, [1, k] each."""
    passages, size = len(vectors_ND) if rows_A is None else len(rows_A), max(k, RESCORED)
    rows_1C, scores_1C = np.empty((1, 0), np.int64), np.empty((1, 0), np.float32)
    for first in range(0, passages, size):
        places = np.arange(first, min(first + size, passages))
        block_1B = (places if rows_A is None else rows_A[places])[None]
        rows_1C = np.concatenate([rows_1C, block_1B], 1)
        scores_1C = np.concatenate([scores_1C, rescore(question_1D, block_1B, vectors_ND)], 1)
        rows_1C, scores_1C = best_k(rows_1C, scores_1C, k)
    return rows_1C, scores_1C


def check_questions(questions_QD: np.ndarray, vectors_ND: np.ndarray) -> None:
    """Raises InputError if questions cannot be compared with the vectors."""
    if questions_QD.shape[1] != vectors_ND.shape[1]:
        raise InputError(
            f"index: vectors of dimension {vectors_ND.shape[1]}, but the encoder's have {questions_QD.shape[1]}; "
            "they belong to different models"
        )
    if not np.isfinite(questions_QD).all():
        raise InputError("vectors of questions are not finite: the encoder diverged in training")


def _block_size(vectors_ND: np.ndarray, rows_A: np.ndarray | None) -> int:
    if rows_A is None and vectors_ND.dtype == np.float32:
        return max(1, len(vectors_ND))
    return max(LEAST, COPIED // vectors_ND.shape[1])


def _blocks(vectors_ND: np.ndarray, rows_A: np.ndarray | None, size: int) -> Blocks:
    passages = len(vectors_ND) if rows_A is None else len(rows_A)
    for first in range(0, passages, size):
        span = slice(first, first + size)
        block_BD = vectors_ND[span] if rows_A is None else take_rows(vectors_ND, rows_A[span])
        yield first, np.ascontiguousarray(block_BD, dtype=np.float32)


def _candidates(questions_QD: np.ndarray, blocks: Blocks, width: int) -> Found:
    """Returns (unsorted rows [Q, width], upper bounds [Q] of the inexact scores of all other passages)."""
    rows_QC = np.empty((len(questions_QD), 0), np.int64)
    scores_QC = np.empty((len(questions_QD), 0), np.float32)
    for first, block_BD in blocks:
        scores, places = _faiss(questions_QD, block_BD, min(width, len(block_BD)))
        rows_QC, scores_QC = np.concatenate([rows_QC, places + first], 1), np.concatenate([scores_QC, scores], 1)
        if rows_QC.shape[1] > width:
            kept = np.argpartition(scores_QC, -width, axis=1)[:, -width:]
            rows_QC, scores_QC = np.take_along_axis(rows_QC, kept, 1), np.take_along_axis(scores_QC, kept, 1)
    return rows_QC, scores_QC.min(1)


def _faiss(questions_QD: np.ndarray, block_BD: np.ndarray, width: int) -> Found:
    import faiss

    # FAISS (at least 1.15) stops using BLAS at 128,000 numbers of questions, and then takes seven times as long.
    faiss.cvar.distance_compute_blas_threshold = 1 << 30 if len(questions_QD) < FEW else 1
    faiss.cvar.distance_compute_blas_database_bs = PRODUCT
    return faiss.knn(questions_QD, block_BD, width, metric=faiss.METRIC_INNER_PRODUCT)
