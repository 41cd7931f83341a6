"""BM25 among pairs, against loops over questions, passages and words."""

import math

import numpy as np
import pytest

from pipeline.finetune.scheduling import bm25_similarity
from pipeline.finetune.scheduling.bm25_similarity import K1, B, bm25_lists

N, V = 30, 40


@pytest.fixture
def texts():
    rng = np.random.default_rng(0)
    questions = [rng.integers(0, V, rng.integers(1, 6)) for _ in range(N)]
    passages = [rng.integers(0, V, rng.integers(3, 30)) for _ in range(N)]
    questions[3] = np.zeros(0, int)
    return questions, passages


def score(question, passage, passages):
    mean = sum(map(len, passages)) / N
    total = 0.0
    for word in set(question.tolist()):
        containing = sum(word in other for other in passages)
        count = int((passage == word).sum())
        idf = math.log(1 + (N - containing + 0.5) / (containing + 0.5))
        total += idf * count * (K1 + 1) / (count + K1 * (1 - B + B * len(passage) / mean))
    return total


@pytest.mark.parametrize("depth", [3, 100])
def test_lists_hold_the_best_of_either_side(texts, depth, monkeypatch):
    monkeypatch.setattr(bm25_similarity, "BLOCK", 7)
    questions, passages = texts
    all_NN = np.array([[score(q, p, passages) for p in passages] for q in questions])
    np.fill_diagonal(all_NN, 0)
    expected = set()
    for i in range(N):
        expected |= {(i, int(p)) for p in np.argsort(-all_NN[i], kind="stable")[:depth] if all_NN[i, p] > 0}
        expected |= {(int(q), i) for q in np.argsort(-all_NN[:, i], kind="stable")[:depth] if all_NN[q, i] > 0}
    question_R, passage_R, score_R = bm25_lists(questions, passages, V, depth)
    pairs = list(zip(question_R.tolist(), passage_R.tolist(), strict=True))
    assert len(pairs) == len(set(pairs))
    assert set(pairs) == expected
    np.testing.assert_allclose(score_R, all_NN[question_R, passage_R], rtol=1e-5)
