"""Token embeddings from co-occurrence: a truncated SVD of the positive pointwise mutual information.

Levy, Goldberg and Dagan, Improving Distributional Similarity with Lessons Learned from Word Embeddings, TACL 2015:
PPMI with a smoothed context distribution (section 3.1), and U sqrt(S) as word vectors (section 3.3, p = 1/2).
V: entries of the vocabulary, D: dimensions, T: tokens.
"""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import svds
from threadpoolctl import threadpool_limits

CHUNK_TOKENS = 1 << 20
SMALL = 1024
"""Entries up to which the full decomposition takes a second or two."""


def cooccurrences(
    tokens: np.ndarray,
    offsets: np.ndarray,
    vocab_size: int,
    window: int,
    progress: Callable[[int], None] = lambda done: None,
) -> sparse.csr_array:
    """Counts how often entry j occurs at most `window` tokens from entry i in one text: [V, V], symmetric.

    `tokens` [T] and `offsets` [n + 1] as in `token_files.Ragged`. Reads about a million tokens at a time; a text is
    never split. `progress` gets the number of tokens read.
    """
    counts = sparse.csr_array((vocab_size, vocab_size), dtype=np.int64)
    for first, last in _chunks(offsets):
        ids = np.asarray(tokens[offsets[first] : offsets[last]], np.int32)
        texts = np.repeat(np.arange(last - first), np.diff(offsets[first : last + 1]))
        for distance in range(1, min(window, len(ids) - 1) + 1):
            same = texts[distance:] == texts[:-distance]
            left, right = ids[:-distance][same], ids[distance:][same]
            ones = np.ones(len(left), np.int64)
            counts += sparse.coo_array((ones, (left, right)), shape=counts.shape).tocsr()
        progress(int(offsets[last]))
    return (counts + counts.T).tocsr()


def ppmi(counts: sparse.csr_array, context_exponent: float) -> sparse.csr_array:
    """Returns max(0, log P(i, j) - log P(i) - log P'(j)), P'(j) ~ count(j) ** context_exponent, [V, V]: asymmetric."""
    pairs = counts.tocoo()
    total = counts.sum()
    rows = np.asarray(counts.sum(axis=1), np.float64)
    contexts = rows**context_exponent
    information = np.log(pairs.data / total) - np.log(rows[pairs.row] / total)
    information -= np.log(contexts[pairs.col] / contexts.sum())
    matrix = sparse.coo_array((np.maximum(information, 0), (pairs.row, pairs.col)), shape=counts.shape).tocsr()
    matrix.eliminate_zeros()
    return matrix


def svd_embeddings(matrix: sparse.csr_array, dimensions: int) -> np.ndarray:
    """Returns U sqrt(S) of the `dimensions` largest singular values, [V, D] float64, in descending order.

    The largest entry of a column is positive, the start vector is constant and one thread works, so that equal
    matrices give equal bytes. Columns beyond the matrix's rank are zero.
    """
    size = matrix.shape[0]
    with threadpool_limits(1):
        # Lanczos finds fewer than V vectors, and restarts at random if the rank is low, as for small collections.
        if size <= max(dimensions + 1, SMALL):
            u, s, _ = np.linalg.svd(matrix.toarray())
        else:
            u, s, _ = svds(matrix, k=dimensions, v0=np.full(size, size**-0.5), return_singular_vectors="u")
    order = np.argsort(-s, kind="stable")[:dimensions]
    u, s = u[:, order], s[order]
    u[:, s < 1e-6 * s.max(initial=0)] = 0  # directions of rounding errors
    u *= np.sign(np.take_along_axis(u, np.abs(u).argmax(axis=0)[None], axis=0)) * np.sqrt(s)
    return np.pad(u, ((0, 0), (0, dimensions - len(order))))


def rescale(embeddings_VD: np.ndarray, norm: float) -> np.ndarray:
    """Scales every row to length `norm`; a row with at most a millionth of the largest length becomes zero.

    The row of an entry without a neighbour has only rounding errors, which have no meaningful direction.
    """
    lengths_V1 = np.linalg.norm(embeddings_VD, axis=1, keepdims=True)
    known_V1 = lengths_V1 > 1e-6 * lengths_V1.max()
    return np.where(known_V1, embeddings_VD * (norm / np.where(known_V1, lengths_V1, 1)), 0)


def _chunks(offsets: np.ndarray) -> list[tuple[int, int]]:
    """Returns ranges of texts with about CHUNK_TOKENS tokens each."""
    edges = np.searchsorted(offsets, np.arange(0, offsets[-1], CHUNK_TOKENS))
    bounds = [*np.unique(edges).tolist(), len(offsets) - 1]
    return [(a, b) for a, b in pairwise(bounds) if b > a]
