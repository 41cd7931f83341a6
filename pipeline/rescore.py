"""Exact lists from inexact ones: candidates rescored in float64, ties in passage order.

Libraries sum inner products in an order that depends on threads, blocks and batches, so their last bits differ; what
is sorted here does not.
"""

import numpy as np


def rescore(question_D: np.ndarray, rows_C: np.ndarray, vectors_ND: np.ndarray) -> np.ndarray:
    """Inner products of a question with the candidates, summed in float64, rounded to float32, [C]."""
    candidates_CD = vectors_ND[rows_C].astype(np.float64)
    # einsum sums each row in one fixed order, unlike BLAS, whose order depends on the number of rows and threads.
    return np.einsum("cd,d->c", candidates_CD, question_D.astype(np.float64), optimize=False).astype(np.float32)


def best(rows_C: np.ndarray, scores_C: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The best k as (rows, scores), by score descending, then passage order."""
    order = np.lexsort((rows_C, -scores_C))[:k]
    return rows_C[order], scores_C[order]


def error_bound(question_D: np.ndarray, longest: float) -> float:
    """How far a float32 inner product, summed in any order, may lie from the exact one.

    `longest`: the greatest length of a passage vector. gamma_D |x|.|y| (Higham, Accuracy and Stability of Numerical
    Algorithms, section 3.1), with |x|.|y| <= ||x|| ||y||.
    """
    dimension = len(question_D)
    return float(dimension * np.finfo(np.float32).eps * np.linalg.norm(question_D.astype(np.float64)) * longest)


def is_certain(rescored: float, worst: float, bound: float) -> bool:
    """Whether no passage outside the candidates can reach the best k.

    `rescored`: exact score of the k-th; `worst`: lowest inexact score among the candidates, which all others lie below.
    """
    return rescored > worst + bound
