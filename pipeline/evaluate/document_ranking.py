"""Turns lists of passages into lists of documents.

A document's score is (1 - share) x the score of its best passage + share x the mean of the scores of its best three in
the list, or of fewer if the list has no more. Share 0 is MaxP (Dai and Callan 2019, section 3). Lists are fused after
this: BM25 and a dense model often find different passages of the same document.

Where documents are not cut, a document is a passage, and its score does not change.

Shapes: R rows of a run.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from pipeline.data.documents import Documents, best_rows
from pipeline.data.runs import Run, ranked, ranks
from pipeline.evaluate.fusion.fuse import RECIPROCAL_K, Choice, fuse

BEST = 3
"""Passages of a document that may contribute to its score. Two and five gave the same on PostgreSQL's documentation."""


def rank_documents(run: Run, document_R: np.ndarray, share: float) -> Run:
    """Returns the row of each document's best passage, with the document's score. `document_R`: its number, of each
    row."""
    best_R = best_rows(run.question_R, document_R)
    if share == 0 or len(best_R) == len(document_R):
        return run.rows(best_R)
    order_R = np.lexsort((document_R, run.question_R))  # stable: the rows of a document stay best first
    question_R, document_R, score_R = run.question_R[order_R], document_R[order_R], run.score_R[order_R]
    is_first_R = np.diff(question_R, prepend=-1).astype(bool) | np.diff(document_R, prepend=-1).astype(bool)
    first_G = np.flatnonzero(is_first_R)
    counts_R = np.arange(len(score_R)) - first_G[np.cumsum(is_first_R) - 1] < BEST
    mean_G = np.add.reduceat(np.where(counts_R, score_R, 0.0), first_G) / np.add.reduceat(counts_R, first_G, dtype=int)
    score_G = (1 - share) * score_R[first_G] + share * mean_G
    return ranked(question_R[first_G], run.passage_R[order_R[first_G]], score_G)


def fuse_documents(
    runs: Sequence[Run],
    documents: Sequence[np.ndarray],
    share: float,
    choice: Choice,
    k: float = RECIPROCAL_K,
    allowed: Callable[[Run], np.ndarray] | None = None,
) -> Run:
    """Fuses the documents of some lists of passages. Returns the row of each document's best passage in the fused list
    of passages, with the document's fused score.

    `documents`: their numbers, of each run's rows. `allowed`: returns which rows of a list may represent their
    documents, bool [R]; documents without one are left out.
    """
    passage_U, first_U = np.unique(np.concatenate([run.passage_R for run in runs]), return_index=True)
    document_U = np.concatenate(documents)[first_U]

    def as_documents(run: Run) -> Run:
        return Run(run.question_R, document_U[np.searchsorted(passage_U, run.passage_R)], run.score_R)

    def keys(run: Run) -> np.ndarray:
        return run.question_R * (1 + int(document_U.max(initial=0))) + run.passage_R

    passages = fuse(runs, choice, k)
    if allowed is not None:
        passages = passages.rows(allowed(passages))
    if np.array_equal(document_U, passage_U):
        return passages
    passages = passages.rows(best_rows(passages.question_R, as_documents(passages).passage_R))
    lists = [rank_documents(run, numbers, share) for run, numbers in zip(runs, documents, strict=True)]
    fused = fuse([as_documents(one) for one in lists], choice, k)
    _, at_R, best_R = np.intersect1d(keys(fused), keys(as_documents(passages)), assume_unique=True, return_indices=True)
    return ranked(fused.question_R[at_R], passages.passage_R[best_R], fused.score_R[at_R])


def of_documents(run: Run, documents: Documents, share: float) -> Run:
    """Returns the row of each document's best passage, with the document's score."""
    return rank_documents(run, documents.of_P[run.passage_R], share) if documents.are_cut else run


def numbered(run: Run, documents: Documents) -> Run:
    """Returns the list with numbers of documents instead of rows of passages."""
    return Run(run.question_R, documents.of_P[run.passage_R], run.score_R) if documents.are_cut else run


def with_first_passages(run: Run, documents: Documents) -> Run:
    """Returns the list with the row of each document's first passage instead of the number of the document."""
    return Run(run.question_R, documents.first_D[run.passage_R], run.score_R) if documents.are_cut else run


def fewest_documents(lists: Mapping[str, Run], runs: Mapping[str, Run], cut: Mapping[str, int]) -> dict[str, int]:
    """Returns the smallest number of documents in the lists that were cut, of each run in `cut`.

    `lists`: of passages; `runs`: the same, of documents. A list that ends earlier has found all that there is.
    """
    fewest = {}
    for name in cut:
        passages_Q = np.bincount(lists[name].question_R)
        documents_Q = np.bincount(runs[name].question_R)
        fewest[name] = int(documents_Q[passages_Q == ranks(lists[name].question_R).max()].min())
    return fewest
