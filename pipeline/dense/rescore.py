"""Exact lists from inexact ones: candidates rescored in float64, ties in passage order.

Libraries sum inner products in an order that depends on threads, blocks and batches, so their last bits differ. The
scores here do not differ.

Shapes: Q questions, C candidates, K kept candidates, N passages, D dimension.
"""

from itertools import product

import numpy as np

FLOATS = 1 << 17  # candidates' vectors rescored at a time fit into a core's cache


def rescore(questions_QD: np.ndarray, rows_QC: np.ndarray, vectors_ND: np.ndarray) -> np.ndarray:
    """Returns inner products of questions and candidates, summed in float64, rounded to float32, [Q, C]."""
    (questions, width), dimension = rows_QC.shape, vectors_ND.shape[1]
    scores_QC = np.empty((questions, width), np.float32)
    wide = max(1, min(width, FLOATS // dimension))
    group = max(1, FLOATS // (wide * dimension))
    for start, first in product(range(0, questions, group), range(0, width, wide)):
        some, part = slice(start, start + group), slice(first, first + wide)
        candidates_SCD = take_rows(vectors_ND, rows_QC[some, part]).astype(np.float64)
        # One dot product each has a fixed order of sums: a matrix product's depends on the number of rows.
        scores_QC[some, part] = np.vecdot(candidates_SCD, questions_QD[some, None].astype(np.float64))
    return scores_QC


def take_rows(vectors_ND: np.ndarray, row_R: np.ndarray) -> np.ndarray:
    """Returns vectors_ND[row_R]. Works on bytes: NumPy would copy all vectors of FAISS's unaligned file (offset 45)."""
    return vectors_ND.view(np.uint8).take(row_R, axis=0).view(vectors_ND.dtype)


def best_k(rows_QC: np.ndarray, scores_QC: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the best k of each question as (rows, scores), [Q, k], by score descending, then passage order."""
    bits_QC = (scores_QC + np.float32(0)).view(np.int32)  # -0 becomes 0
    # One integer for both: the complement of the score's ordered bits, then the row.
    key_QC = np.sort(~_ordered(bits_QC).astype(np.int64) << 32 | rows_QC, axis=1)[:, :k]
    return key_QC & 0xFFFFFFFF, _ordered((~(key_QC >> 32)).astype(np.int32)).view(np.float32)


def _ordered(bits: np.ndarray) -> np.ndarray:
    """Returns a float32's bits as an int32 with the same order; it is its own inverse."""
    return np.where(bits < 0, bits ^ 0x7FFFFFFF, bits).astype(np.int32)


def error_bound(questions_QD: np.ndarray, longest: float) -> np.ndarray:
    """Returns the largest error of a float32 inner product, summed in any order, from the exact one in float32, [Q].

    `longest`: the greatest norm of a passage vector. gamma_D |x|.|y| (Higham, Accuracy and Stability of Numerical
    Algorithms, section 3.1), with |x|.|y| <= ||x|| ||y||, and half a unit in the last place for the rounding.
    """
    unit = np.finfo(np.float32).eps / 2
    gamma = (questions_QD.shape[1] + 2) * unit
    return gamma / (1 - gamma) * longest * np.linalg.norm(questions_QD.astype(np.float64), axis=1)


def is_certain(rescored_Q: np.ndarray, worst_Q: np.ndarray, bound_Q: np.ndarray) -> np.ndarray:
    """Whether no passage outside the candidates can reach the best k.

    `rescored`: exact score of the k-th candidate; `worst`: upper bound of all other passages' inexact scores.
    """
    return rescored_Q > worst_Q + bound_Q
