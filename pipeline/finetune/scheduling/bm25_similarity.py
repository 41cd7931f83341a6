"""BM25 between the pairs of a training, by their tokens: the similarity of batch scheduling in its first epoch.

Shapes: N pairs of a question and a passage, V vocabulary, R rows of candidate lists.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from scipy.sparse import csr_array

K1, B = 0.9, 0.4  # Anserini's
BLOCK = 512  # rows of a product that are in memory at once
COMMON, COMMON_SHARE = 1000, 0.02
"""An entry in more passages than the larger of this number and this share is left out: its weight is small, and it
would make the work grow with the square of the pairs."""


def bm25_lists(
    questions: Sequence[np.ndarray], passages: Sequence[np.ndarray], vocabulary: int, depth: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns each question's `depth` best passages and each passage's best questions, without own pairs.

    Rows are (pair of the question, pair of the passage, score), each [R], without duplicates. Texts are token ids; a
    pair is its place in both lists.
    """
    question_NV, weight_NV = _counts(questions, vocabulary), _weights(_counts(passages, vocabulary))
    question_NV.data[:] = 1
    rows = [(q, p, s) for q, p, s in _best(question_NV, weight_NV, depth)]
    rows += [(q, p, s) for p, q, s in _best(weight_NV, question_NV, depth)]
    question_R, passage_R, score_R = (np.concatenate(column) for column in zip(*rows, strict=True))
    once_R = np.unique(question_R.astype(np.int64) * len(questions) + passage_R, return_index=True)[1]
    return question_R[once_R], passage_R[once_R], score_R[once_R]


def _counts(texts: Sequence[np.ndarray], vocabulary: int) -> csr_array:
    """Counts how often each entry occurs in each text, [N, V]."""
    lengths = [len(text) for text in texts]
    edges = np.concatenate(([0], np.cumsum(lengths)))
    ids = np.concatenate([np.asarray(text, np.int32) for text in texts]) if edges[-1] else np.zeros(0, np.int32)
    counts_NV = csr_array((np.ones(len(ids), np.float32), ids, edges), shape=(len(texts), vocabulary))
    counts_NV.sum_duplicates()
    return counts_NV


def _weights(counts_NV: csr_array) -> csr_array:
    """Returns BM25's weight of each entry in each passage (Robertson and Zaragoza 2009, equation 3.15), [N, V]."""
    texts = counts_NV.shape[0]
    frequency_V = np.bincount(counts_NV.indices, minlength=counts_NV.shape[1])
    idf_V = np.log1p((texts - frequency_V + 0.5) / (frequency_V + 0.5))
    idf_V[frequency_V > max(COMMON, COMMON_SHARE * texts)] = 0
    length_N = counts_NV.sum(axis=1)
    norm_N = K1 * (1 - B + B * length_N / max(length_N.mean(), 1e-9))
    count_R = counts_NV.data
    norm_R = np.repeat(norm_N, np.diff(counts_NV.indptr))
    weight_R = idf_V[counts_NV.indices] * count_R * (K1 + 1) / (count_R + norm_R)
    weight_NV = csr_array((weight_R.astype(np.float32), counts_NV.indices, counts_NV.indptr), shape=counts_NV.shape)
    weight_NV.eliminate_zeros()
    return weight_NV


def _best(from_NV: csr_array, to_NV: csr_array, depth: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yields, for each row of `from_NV`, the `depth` other rows of `to_NV` of greatest product; ties by number."""
    to_VN = to_NV.T.tocsr()
    for start in range(0, from_NV.shape[0], BLOCK):
        scores = (from_NV[start : start + BLOCK] @ to_VN).tocoo()
        row_R, column_R, score_R = scores.coords[0] + start, scores.coords[1], scores.data
        other_R = row_R != column_R
        row_R, column_R, score_R = row_R[other_R], column_R[other_R], score_R[other_R]
        order_R = np.lexsort((column_R, -score_R, row_R))
        row_R, column_R, score_R = row_R[order_R], column_R[order_R], score_R[order_R]
        first_R = np.searchsorted(row_R, row_R)
        kept_R = np.arange(len(row_R)) - first_R < depth
        yield row_R[kept_R].astype(np.int32), column_R[kept_R].astype(np.int32), score_R[kept_R]
