"""Searches an approximate index: most of the exact list for less time or memory.

FAISS searches each question alone, with fixed code, so its candidates do not depend on other questions. IVF's lists
are chosen by this project's exact search, because BLAS sums a batch of questions in another order than one question.
The candidates are rescored in float64 from the stored vectors (rescore.py).

Shapes: Q questions, N passages, D dimension, C candidates, K kept, P lists probed.
"""

from collections.abc import Sequence

import numpy as np
from pydantic import Field

from pipeline.config import Config
from pipeline.dense.exact import Found, check_questions, exact_top_k
from pipeline.dense.index_files import Index
from pipeline.dense.index_kinds import WITH_LISTS
from pipeline.dense.rescore import best_k, rescore

QUESTIONS = 1024  # searched at a time


class ApproximateConfig(Config):
    ef_search: int = Field(ge=1)
    """efSearch of HNSW: candidates that the search keeps; never fewer than are rescored."""
    nprobe: int = Field(ge=1)
    """Lists of ivf and ivfpq that are searched for each question."""
    candidates: int = Field(ge=1)
    """Candidates rescored exactly, per passage kept."""


def approximate_top_k(
    questions_QD: np.ndarray, index: Index, k: int, effort: ApproximateConfig, allowed_N: np.ndarray | None = None
) -> tuple[Found, int]:
    """Returns (rows and scores as exact_top_k, number of questions that were searched exactly instead).

    A question is searched exactly if it has fewer than k candidates, or fewer than k among `allowed_N` (bool).
    """
    check_questions(questions_QD, index.vectors_ND)
    passages = len(index.vectors_ND) if allowed_N is None else int(allowed_N.sum())
    k = min(k, passages)
    rows_QK = np.empty((len(questions_QD), k), np.int64)
    scores_QK = np.empty((len(questions_QD), k), np.float32)
    searched_exactly = 0
    for start in range(0, len(questions_QD) if k else 0, QUESTIONS):
        some = slice(start, start + QUESTIONS)
        rows_QC = _candidates(questions_QD[some], index, min(effort.candidates * k, len(index.vectors_ND)), effort)
        found_QC = rows_QC >= 0 if allowed_N is None else (rows_QC >= 0) & allowed_N[rows_QC]
        rows_QC = np.where(found_QC, rows_QC, 0)
        scores_QC = np.where(found_QC, rescore(questions_QD[some], rows_QC, index.vectors_ND), -np.float32(np.inf))
        rows_QK[some], scores_QK[some] = best_k(rows_QC, scores_QC, k)
        short = start + np.flatnonzero(found_QC.sum(1) < k)
        if len(short):
            rows_A = None if allowed_N is None else np.flatnonzero(allowed_N)
            found = exact_top_k(questions_QD[short], index.vectors_ND, k, index.longest, rows_A=rows_A)
            rows_QK[short], scores_QK[short] = found
            searched_exactly += len(short)
    return (rows_QK, scores_QK), searched_exactly


def _candidates(questions_QD: np.ndarray, index: Index, width: int, effort: ApproximateConfig) -> np.ndarray:
    """Returns rows of candidates, [Q, width]; -1 for a missing candidate."""
    import faiss

    faiss_index = index.faiss
    if index.kind == "hnsw":
        settings = faiss.SearchParametersHNSW(efSearch=max(effort.ef_search, width))
        return faiss_index.search(questions_QD, width, params=settings)[1]
    if index.kind in WITH_LISTS:
        centroids_LD, longest = index.centroids
        lists_QP, scores_QP = exact_top_k(questions_QD, centroids_LD, effort.nprobe, longest)
        faiss_index.nprobe = lists_QP.shape[1]  # the same at every call
        return faiss_index.search_preassigned(questions_QD, width, lists_QP, scores_QP)[1]
    return faiss_index.search(questions_QD, width)[1]


def recall(found_QK: np.ndarray, exact_QK: np.ndarray, depths: Sequence[int]) -> np.ndarray:
    """Returns, at each depth, the share of the exact list's passages that are in the found list, [Q, depths]."""
    pairs = list(zip(found_QK, exact_QK, strict=True))
    return np.array([[np.isin(exact[:n], found[:n]).mean() for n in depths] for found, exact in pairs])
