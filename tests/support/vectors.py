"""Random questions and passages, and their exact lists the plain way."""

import numpy as np


def data(n: int = 5000, q: int = 40, dimension: int = 24, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """(questions, passages), float32; those of the passages fit float16."""
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(n, dimension)).astype(np.float16).astype(np.float32)
    return rng.normal(size=(q, dimension)).astype(np.float32), vectors


def longest(vectors: np.ndarray) -> float:
    return float(np.linalg.norm(vectors.astype(np.float64), axis=1).max())


def reference(questions: np.ndarray, vectors: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Every score in float64, rounded, sorted by score and row."""
    scores = (vectors.astype(np.float64) @ questions.astype(np.float64).T).T.astype(np.float32)
    rows = np.lexsort((np.broadcast_to(np.arange(len(vectors)), scores.shape), -scores), axis=1)[:, :k]
    return rows, np.take_along_axis(scores, rows, 1)
