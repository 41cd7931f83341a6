"""The linear map and the guard."""

import numpy as np
import pytest
import torch
from adapted import CONFIG

from pipeline.adapt.apply_map import apply_map
from pipeline.adapt.guard import judge, mapped_run
from pipeline.adapt.linear_map import Lists, batch, divergence_of, targets, train_map
from pipeline.adapt.teacher import as_run
from pipeline.data.runs import Run
from pipeline.dense.exact import exact_top_k

QUERIES, PASSAGES, DIMENSION = 48, 200, 12
NONE = np.full(QUERIES, -1)


def unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture
def vectors() -> np.ndarray:
    return unit(np.random.default_rng(0).normal(size=(PASSAGES, DIMENSION)))


@pytest.fixture
def queries() -> np.ndarray:
    return unit(np.random.default_rng(1).normal(size=(QUERIES, DIMENSION)))


@pytest.fixture
def hidden_EE() -> np.ndarray:
    """The map by which the teacher ranks: some dimensions count more."""
    return np.diag(np.linspace(0.4, 2.0, DIMENSION)).astype(np.float32)


def taught(queries: np.ndarray, vectors: np.ndarray, hidden_EE: np.ndarray) -> tuple[Lists, Run]:
    mapped = apply_map(hidden_EE, vectors, True)
    rows, scores = exact_top_k(apply_map(hidden_EE, queries, True), mapped, 20, 1.0)
    return Lists(queries, rows, scores), as_run(rows, scores)


def ignore(steps: int, loss: float) -> None:
    pass


@pytest.mark.parametrize("normalise", [True, False])
def test_the_map_comes_nearer_to_the_teacher(queries, vectors, hidden_EE, normalise: bool) -> None:
    lists, _ = taught(queries, vectors, hidden_EE)
    map_EE = train_map(CONFIG, lists, vectors, normalise, ignore)
    assert map_EE.dtype == np.float32
    before, after = (
        divergence_of(CONFIG, lists, vectors, normalise, m) for m in (np.eye(DIMENSION, dtype=np.float32), map_EE)
    )
    assert after < 0.8 * before
    assert (train_map(CONFIG, lists, vectors, normalise, ignore) == map_EE).all()


def test_the_map_is_merged_with_the_start(queries, vectors, hidden_EE) -> None:
    lists, _ = taught(queries, vectors, hidden_EE)
    whole, half = (
        train_map(CONFIG.model_copy(update={"merge": m}), lists, vectors, True, ignore).astype(np.float64)
        for m in (1.0, 0.5)
    )
    np.testing.assert_allclose(half, (whole + np.eye(DIMENSION)) / 2, atol=1e-7)


def test_long_vectors_are_trained_like_short_ones(queries, vectors, hidden_EE) -> None:
    lists, _ = taught(queries, vectors, hidden_EE)
    maps = [
        train_map(CONFIG, Lists(length * queries, lists.row_QK, lists.teacher_QK), length * vectors, False, ignore)
        for length in (1, 4)
    ]
    np.testing.assert_allclose(*maps, atol=1e-4)


def test_targets_have_the_mean_and_spread_of_the_model_s_own_logits(queries, vectors, hidden_EE) -> None:
    lists, _ = taught(queries, vectors, hidden_EE)
    logits = np.log(targets(lists, vectors, 0.05).numpy())
    own = np.einsum("qe,qke->qk", queries, vectors[lists.row_QK]) / 0.05
    np.testing.assert_allclose(logits.std(1), own.std(1), rtol=1e-3)
    assert (np.argsort(-logits, axis=1, kind="stable") == np.arange(20)).all()
    equal = Lists(queries, lists.row_QK, np.ones_like(lists.teacher_QK))
    np.testing.assert_allclose(targets(equal, vectors, 0.05), torch.full((QUERIES, 20), 1 / 20))


def test_batches_take_each_query_once_an_epoch() -> None:
    rows = np.concatenate([batch(CONFIG, step, 24) for step in range(6)])  # 6 x 16 = 4 x 24
    for epoch in rows.reshape(4, 24):
        assert sorted(epoch.tolist()) == list(range(24))
    assert rows[:24].tolist() != rows[24:48].tolist()


def judged(queries, vectors, hidden_EE, map_EE):
    _, fused = taught(queries, vectors, hidden_EE)
    start = as_run(*exact_top_k(queries, vectors, 11, 1.0))
    return judge(fused, start, mapped_run(queries, vectors, map_EE, True, 11), NONE, seed=1)


def test_the_guard_accepts_a_map_to_the_fusion_and_refuses_a_harmful_one(queries, vectors, hidden_EE) -> None:
    better = judged(queries, vectors, hidden_EE, hidden_EE)
    assert better.after == pytest.approx(1)
    assert better.after > better.before
    assert better.accepts(0.01)
    worse = judged(queries, vectors, hidden_EE, np.linalg.inv(hidden_EE).astype(np.float32))
    assert worse.after < worse.before
    assert worse.p < 0.01
    assert not worse.accepts(0.01)
    same = judged(queries, vectors, hidden_EE, np.eye(DIMENSION, dtype=np.float32))
    assert same.after == same.before
    assert same.p == 1
    assert not same.accepts(0.01)


def test_the_guard_leaves_out_the_source(queries, vectors, hidden_EE) -> None:
    _, fused = taught(queries, vectors, hidden_EE)
    start = as_run(*exact_top_k(queries, vectors, 11, 1.0))
    source = start.passage_R[start.rank_R == 1]
    kept = fused.passage_R != source[fused.question_R]
    without = Run(fused.question_R[kept], fused.passage_R[kept], fused.score_R[kept])
    found = judge(without, start, mapped_run(queries, vectors, hidden_EE, True, 11), source, seed=1)
    assert found.after == pytest.approx(1)


def test_mapped_lists_are_those_of_all_passages_at_once(queries, vectors, hidden_EE, monkeypatch) -> None:
    whole = mapped_run(queries, vectors, hidden_EE, True, 11)
    monkeypatch.setattr("pipeline.adapt.guard.BLOCK", 7)
    parts = mapped_run(queries, vectors, hidden_EE, True, 11)
    assert (whole.passage_R == parts.passage_R).all()
    assert (whole.score_R == parts.score_R).all()
