"""PPMI and its SVD against the plain formulas."""

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy import sparse

from pipeline.modeling import ppmi


@pytest.fixture
def texts() -> tuple[np.ndarray, np.ndarray]:
    """60 texts of 0 to 29 tokens of 11 entries; entry 10 never occurs."""
    random = np.random.default_rng(0)
    lengths = random.integers(0, 30, 60)
    tokens = np.minimum(random.geometric(0.2, lengths.sum()) - 1, 9).astype(np.uint16)
    return tokens, np.concatenate([[0], lengths.cumsum()])


def plain_counts(tokens: np.ndarray, offsets: np.ndarray, window: int) -> np.ndarray:
    counts = np.zeros((11, 11), np.int64)
    for start, end in pairwise(offsets):
        for i in range(start, end):
            for j in range(max(start, i - window), min(end, i + window + 1)):
                if i != j:
                    counts[tokens[i], tokens[j]] += 1
    return counts


@pytest.mark.parametrize("window", [1, 6, 50])
@pytest.mark.parametrize("chunk", [1, 17, 1 << 20])
def test_counts_equal_plain_loops(texts, window, chunk, monkeypatch):
    monkeypatch.setattr(ppmi, "CHUNK_TOKENS", chunk)
    seen = []
    counts = ppmi.cooccurrences(*texts, 11, window, seen.append)
    assert (counts.toarray() == plain_counts(*texts, window)).all()
    assert seen == sorted(seen)
    assert seen[-1] == len(texts[0])


def test_a_collection_without_tokens_gives_zeros():
    counts = ppmi.cooccurrences(np.zeros(0, np.uint16), np.array([0, 0]), 5, 6)
    assert counts.nnz == 0
    embeddings = ppmi.svd_embeddings(ppmi.ppmi(counts, 0.75), 3)
    assert (ppmi.rescale(embeddings, 1.0) == 0).all()


def test_ppmi_equals_the_formula(texts):
    counts = plain_counts(*texts, 3)
    rows = counts.sum(axis=1)
    smoothed = rows**0.75 / (rows**0.75).sum()
    expected = np.zeros((11, 11))
    for i in range(11):
        for j in range(11):
            if counts[i, j]:
                joint, alone = counts[i, j] / counts.sum(), rows[i] / counts.sum()
                expected[i, j] = max(0.0, math.log(joint / (alone * smoothed[j])))
    matrix = ppmi.ppmi(ppmi.cooccurrences(*texts, 11, 3), 0.75)
    np.testing.assert_allclose(matrix.toarray(), expected, rtol=1e-12, atol=1e-12)
    assert 0 < matrix.nnz < np.count_nonzero(counts)


@pytest.mark.parametrize("size", [40, ppmi.SMALL + 1])
def test_svd_embeddings_equal_those_of_numpy(size):
    """Small and large matrices use different methods; both give U sqrt(S) with fixed signs."""
    matrix = sparse.random_array((size, size), density=0.1, rng=np.random.default_rng(1)).tocsr()
    embeddings = ppmi.svd_embeddings(matrix, 12)
    u, s, _ = np.linalg.svd(matrix.toarray())
    expected = u[:, :12] * np.sqrt(s[:12])
    expected *= np.sign(expected[np.abs(expected).argmax(axis=0), range(12)])
    np.testing.assert_allclose(embeddings, expected, atol=1e-8)
    assert (embeddings.max(axis=0) == np.abs(embeddings).max(axis=0)).all()
    assert embeddings.tobytes() == ppmi.svd_embeddings(matrix, 12).tobytes()


def test_a_matrix_of_low_rank_gives_equal_bytes_too():
    """Three groups of equal entries, as in a collection of a few texts."""
    group_V = np.arange(400) % 3
    matrix = sparse.csr_array((group_V[:, None] == group_V) * (1.0 + group_V))
    embeddings = ppmi.svd_embeddings(matrix, 64)
    assert np.linalg.matrix_rank(embeddings) == 3
    assert (embeddings[:, 3:] == 0).all()
    assert {ppmi.svd_embeddings(matrix, 64).tobytes() for _ in range(3)} == {embeddings.tobytes()}


def test_more_dimensions_than_entries_are_zeros(texts):
    matrix = ppmi.ppmi(ppmi.cooccurrences(*texts, 11, 3), 0.75)
    embeddings = ppmi.svd_embeddings(matrix, 16)
    assert embeddings.shape == (11, 16)
    assert (embeddings[:, 11:] == 0).all()
    # U sqrt(S) keeps the left singular structure: its Gram matrix is that of U S^(1/2).
    u, s, _ = np.linalg.svd(matrix.toarray())
    np.testing.assert_allclose(embeddings @ embeddings.T, (u * s) @ u.T, atol=1e-10)


def test_rescale_gives_all_nonempty_rows_the_same_norm():
    rows = np.array([[3.0, 4.0], [0.0, 0.0], [0.1, 0.0]])
    np.testing.assert_allclose(ppmi.rescale(rows, 2.0), [[1.2, 1.6], [0.0, 0.0], [2.0, 0.0]])
    rows[1] = 1e-17  # an empty row after an SVD
    np.testing.assert_allclose(ppmi.rescale(rows, 2.0), [[1.2, 1.6], [0.0, 0.0], [2.0, 0.0]])


def test_words_in_the_same_contexts_have_near_vectors():
    """Entries in the same contexts get similar vectors: 0 and 1 before 2, 3 and 4 before 5."""
    random = np.random.default_rng(2)
    pairs = [(a, 2) if a < 2 else (a, 5) for a in random.choice([0, 1, 3, 4], 500)]
    tokens, offsets = np.array(pairs).ravel(), np.arange(0, 1001, 2)
    vectors = ppmi.rescale(ppmi.svd_embeddings(ppmi.ppmi(ppmi.cooccurrences(tokens, offsets, 6, 2), 0.75), 3), 1.0)
    assert vectors[0] @ vectors[1] > 0.99
    assert vectors[3] @ vectors[4] > 0.99
    assert abs(vectors[0] @ vectors[3]) < 0.5
