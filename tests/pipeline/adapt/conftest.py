"""The small collection that is adapted to; and vectors with a teacher that ranks by a hidden linear map.

Shapes: 48 queries, 200 passages, 12 dimensions E, 20 candidates K.
"""

import numpy as np
import pytest
from adapted import Corpus, make_corpus

from pipeline.adapt.apply_map import apply_map
from pipeline.dense.exact import Found, exact_top_k

DIMENSION = 12


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Read-only."""
    return make_corpus(tmp_path_factory.mktemp("adapt"))


@pytest.fixture
def accepting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A guard that accepts any model."""
    monkeypatch.setattr("pipeline.adapt.guard.GuardResult.accepts", lambda *_: True)


def unit_vectors(seed: int, number: int) -> np.ndarray:
    rows = np.random.default_rng(seed).normal(size=(number, DIMENSION))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture
def vectors() -> np.ndarray:
    return unit_vectors(0, 200)


@pytest.fixture
def queries() -> np.ndarray:
    return unit_vectors(1, 48)


@pytest.fixture
def hidden_EE() -> np.ndarray:
    """The map by which the teacher ranks: some dimensions count more."""
    return np.diag(np.linspace(0.4, 2.0, DIMENSION)).astype(np.float32)


@pytest.fixture
def taught(queries: np.ndarray, vectors: np.ndarray, hidden_EE: np.ndarray) -> Found:
    """The teacher's candidates and their scores, [Q, K]."""
    return exact_top_k(apply_map(hidden_EE, queries, True), apply_map(hidden_EE, vectors, True), 20, 1.0)
