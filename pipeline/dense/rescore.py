"""Exact lists from inexact ones: candidates rescored in float64, ties in passage order.

Libraries sum inner products in an order that depends on threads, blocks and batches, so their last bits differ; what
is sorted here does not.

Shapes: Q questions, C candidates, K kept of them, N passages, D dimension.
"""

from itertools import product

import numpy as np

FLOATS = 1 << 17  # of candidates' vectors rescored at a time: they stay in a core's cache


def rescore(questions_QD: np.ndarray, rows_QC: np.ndarray, vectors_ND: np.ndarray) -> np.ndarray:
    """Inner products of each question with its candidates, summed in float64, rounded to float32, [Q, C]."""
    (questions, width), dimension = rows_QC.shape, vectors_ND.shape[1]
    scores_QC = np.empty((questions, width), np.float32)
    wide = max(1, min(width, FLOATS // dimension))
    group = max(1, FLOATS // (wide * dimension))
    for start, first in product(range(0, questions, group), range(0, width, wide)):
        some, part = slice(start, start + group), slice(first, first + wide)
        candidates_SCD = rows(vectors_ND, rows_QC[some, part]).astype(np.float64)
        # One dot product each, and so one order of sums: a matrix product's depends on the number of rows.
        scores_QC[some, part] = np.vecdot(candidates_SCD, questions_QD[some, None].astype(np.float64))
    return scores_QC


def rows(vectors_ND: np.ndarray, row_R: np.ndarray) -> np.ndarray:
    """vectors_ND[row_R]. As bytes: FAISS's file has its vectors 45 bytes in, where NumPy's ways would copy them all."""
    return vectors_ND.view(np.uint8).take(row_R, axis=0).view(vectors_ND.dtype)


def best(rows_QC: np.ndarray, scores_QC: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The best k of each question as (rows, scores), [Q, k], by score descending, then passage order."""
    bits_QC = (scores_QC + np.float32(0)).view(np.int32)  # -0 becomes 0
    # One whole number for both: the complement of the score's bits in their order, then the row.
    key_QC = np.sort(~_ordered(bits_QC).astype(np.int64) << 32 | rows_QC, axis=1)[:, :k]
    return key_QC & 0xFFFFFFFF, _ordered((~(key_QC >> 32)).astype(np.int32)).view(np.float32)


def _ordered(bits: np.ndarray) -> np.ndarray:
    """A float32's bits as an int32 that sorts as the float does; its own inverse."""
    return np.where(bits < 0, bits ^ 0x7FFFFFFF, bits).astype(np.int32)


def error_bound(questions_QD: np.ndarray, longest: float) -> np.ndarray:
    """How far a float32 inner product, summed in any order, may lie from the exact one rounded to float32, [Q].

    `longest`: the greatest length of a passage vector. gamma_D |x|.|y| (Higham, Accuracy and Stability of Numerical
    Algorithms, section 3.1), with |x|.|y| <= ||x|| ||y||, and half a unit of the last place for the rounding.
    """
    unit = np.finfo(np.float32).eps / 2
    gamma = (questions_QD.shape[1] + 2) * unit
    return gamma / (1 - gamma) * longest * np.linalg.norm(questions_QD.astype(np.float64), axis=1)


def is_certain(rescored_Q: np.ndarray, worst_Q: np.ndarray, bound_Q: np.ndarray) -> np.ndarray:
    """Whether no passage outside the candidates can reach the best k.

    `rescored`: exact score of the k-th; `worst`: no other passage's inexact score is above it.
    """
    return rescored_Q > worst_Q + bound_Q
