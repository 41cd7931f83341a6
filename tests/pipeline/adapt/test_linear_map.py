"""The linear map."""

import numpy as np
import pytest
import torch
from adapted import CONFIG

from pipeline.adapt.linear_map import batch, divergence_of, targets, train_map, training_lists


def ignore(steps: int, loss: float) -> None:
    pass


@pytest.mark.parametrize("normalise", [True, False])
def test_the_map_comes_nearer_to_the_teacher(queries, vectors, taught, normalise: bool) -> None:
    lists = training_lists(CONFIG, queries, *taught, vectors)
    map_EE = train_map(CONFIG, lists, vectors, normalise, ignore)
    assert map_EE.dtype == np.float32
    before, after = (
        divergence_of(CONFIG, lists, vectors, normalise, m) for m in (np.eye(len(map_EE), dtype=np.float32), map_EE)
    )
    assert after < 0.8 * before
    assert (train_map(CONFIG, lists, vectors, normalise, ignore) == map_EE).all()


def test_the_map_is_merged_with_the_start(queries, vectors, taught) -> None:
    lists = training_lists(CONFIG, queries, *taught, vectors)
    whole, half = (
        train_map(CONFIG.model_copy(update={"merge": m}), lists, vectors, True, ignore).astype(np.float64)
        for m in (1.0, 0.5)
    )
    np.testing.assert_allclose(half, (whole + np.eye(len(whole))) / 2, atol=1e-7)


def test_long_vectors_are_trained_like_short_ones(queries, vectors, taught) -> None:
    maps = []
    for length in (1, 4):
        lists = training_lists(CONFIG, length * queries, *taught, length * vectors)
        maps.append(train_map(CONFIG, lists, length * vectors, False, ignore))
    np.testing.assert_allclose(*maps, atol=1e-4)


def test_targets_have_the_mean_and_spread_of_the_model_s_own_logits(queries, vectors, taught) -> None:
    row_QK, teacher_QK = taught
    logits = np.log(targets(queries, row_QK, teacher_QK, vectors, 0.05).numpy())
    own = np.einsum("qe,qke->qk", queries, vectors[row_QK]) / 0.05
    np.testing.assert_allclose(logits.std(1), own.std(1), rtol=1e-3)
    assert (np.argsort(-logits, axis=1, kind="stable") == np.arange(20)).all()
    equal = targets(queries, row_QK, np.ones_like(teacher_QK), vectors, 0.05)
    np.testing.assert_allclose(equal, torch.full(row_QK.shape, 1 / 20))


def test_batches_take_each_query_once_an_epoch() -> None:
    rows = np.concatenate([batch(CONFIG.seed, 16, step, 24) for step in range(6)])  # 6 x 16 = 4 x 24
    for epoch in rows.reshape(4, 24):
        assert sorted(epoch.tolist()) == list(range(24))
    assert rows[:24].tolist() != rows[24:48].tolist()
