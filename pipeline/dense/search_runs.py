"""Searches by BM25 and by exact inner products whose lists are runs, in memory: of queries that no artifact has.

Shapes: R rows of a run, Q queries, E dimension of a vector, K passages of a list.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from pipeline.bm25.searcher import Hits, Searcher, complete_hits
from pipeline.data.passages import Passages
from pipeline.data.runs import Run, ranked
from pipeline.dense.exact import exact_top_k
from pipeline.dense.index_files import Index
from pipeline.runtime.work import Progress

TOGETHER = 64
"""Queries of a request to Lucene."""


def bm25_run(bm25: Path, texts: Sequence[str], depth: int, passages: Passages, progress: Progress) -> Run:
    """Returns BM25's list of each text, with equal scores in passage order."""
    numbers_of, scores_of = [], []
    with Searcher(bm25) as searcher:
        for start in range(0, len(texts), TOGETHER):
            for numbers_K, scores_K in hits(searcher, texts[start : start + TOGETHER], depth, passages.count):
                numbers_of.append(numbers_K)
                scores_of.append(scores_K)
            progress(len(numbers_of), len(texts), "queries")
        number_R = np.concatenate([np.zeros(0, np.int64), *numbers_of])
        known, place_R = np.unique(number_R, return_inverse=True)
        row_of = passages.rows(searcher.ids(known))
    question_R = np.repeat(np.arange(len(texts)), [len(one) for one in numbers_of])
    return first(ranked(question_R, row_of[place_R], np.concatenate([np.zeros(0), *scores_of])), depth)


def hits(searcher: Searcher, texts: Sequence[str], depth: int, passages: int) -> list[Hits]:
    """Returns the best `depth` hits of each text, in a collection of `passages`, as `complete_hits` does."""

    def search(width: Mapping[int, int]) -> list[Hits]:
        return searcher.hits([(texts[n], k, None) for n, k in width.items()])

    return complete_hits(search, [depth] * len(texts), [passages] * len(texts))


def dense_run(queries_QE: np.ndarray, index: Index, depth: int) -> Run:
    """Returns the exact list of each query."""
    return as_run(*exact_top_k(queries_QE, index.vectors_ND, depth, index.longest))


def as_run(rows_QK: np.ndarray, scores_QK: np.ndarray) -> Run:
    question_R = np.repeat(np.arange(len(rows_QK)), rows_QK.shape[1])
    return ranked(question_R, rows_QK.ravel(), scores_QK.ravel())


def without(run: Run, source_Q: np.ndarray) -> Run:
    """Returns the run without each query's own passage."""
    return run.rows(run.passage_R != source_Q[run.question_R])


def first(run: Run, depth: int) -> Run:
    """Returns the first `depth` passages of each query."""
    return run.rows(run.rank_R <= depth)
