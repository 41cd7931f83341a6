"""The similarities that batch scheduling uses: the grid, the dense matrix, candidate lists."""

import numpy as np
import pytest

from pipeline.errors import InputError
from pipeline.finetune.scheduling import similarity as sim

NONE = np.zeros((0, 2), np.int64)


def rows(scores_NN, keep=None):
    """All (or the `keep`) entries of a matrix as rows of candidate lists."""
    question, passage = np.nonzero(np.ones_like(scores_NN) if keep is None else keep)
    return question.astype(np.int32), passage.astype(np.int32), scores_NN[question, passage]


def test_dense_holds_both_directions_for_any_block_size(monkeypatch):
    scores = np.random.default_rng(0).integers(-9, 9, (23, 23)).astype(np.float32)
    monkeypatch.setattr(sim, "BLOCK", 7)
    dense = sim.dense(scores, np.array([[2, 5], [3, 3]]))
    scale, least = dense.grid.scale, dense.grid.least
    expected = (scores - least) * scale + 1
    expected[2, 5] = 0
    expected = expected + expected.T
    np.fill_diagonal(expected, 0)
    assert np.array_equal(dense.values_NN, expected)
    assert least == scores.min()
    assert 2**19 < (scores.max() - least) * scale <= 2**20


@pytest.mark.parametrize("scores", [[[1.0, np.nan], [0, 0]], [[np.inf, 1], [0, 0]]])
def test_scores_that_are_not_finite_are_refused(scores):
    with pytest.raises(InputError, match="not finite"):
        sim.dense(np.array(scores, np.float32), NONE)


def test_the_grid_converts_sums_back_to_units():
    scores = np.array([3.5, -2.0, 8.0], np.float32)
    grid = sim.grid(scores)
    assert grid.units(int(grid.steps(scores).sum()), 3) == 9.5
    assert sim.grid(np.full(4, 7.0)).steps(np.full(4, 7.0)).tolist() == [1] * 4


def test_sparse_equals_dense_for_complete_lists_and_is_zero_elsewhere():
    rng = np.random.default_rng(1)
    scores = rng.integers(-9, 9, (20, 20)).astype(np.float32)
    np.fill_diagonal(scores, 0)
    judged = np.array([[4, 7]])
    whole, dense = sim.sparse(rows(scores), 20, judged), sim.dense(scores, judged)
    everyone = np.arange(20)
    assert np.array_equal(whole.block(everyone, everyone), dense.values_NN)
    keep = rng.random((20, 20)) < 0.2
    keep[:, 11] = keep[11] = False
    part = sim.sparse(rows(scores, keep), 20, judged)
    np.fill_diagonal(keep, False)
    keep[4, 7] = False
    expected = np.where(keep, part.grid.steps(scores), 0)
    block = part.block(everyone[::-1], everyone)[::-1]
    assert np.array_equal(block, expected + expected.T)
    assert block[11].sum() == 0
    for i in everyone:
        columns, values = part.row(i)
        assert np.array_equal(columns, np.flatnonzero(block[i]))
        assert np.array_equal(values, block[i][columns])


def test_the_first_of_repeated_rows_counts():
    candidates = np.array([0, 0, 1], np.int32), np.array([1, 1, 0], np.int32), np.array([2, 5, 4], np.float32)
    similarity = sim.sparse(candidates, 2, NONE)
    assert similarity.block(np.array([0]), np.array([1])) == similarity.grid.steps(np.array([2.0, 4.0])).sum()


def test_empty_lists_give_zeros():
    empty = sim.sparse((np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0, np.float32)), 3, NONE)
    assert empty.block(np.arange(3), np.arange(3)).sum() == 0


def test_products_on_a_device_give_the_same_neighbours(monkeypatch):
    monkeypatch.setattr(sim, "BLOCK", 7)
    vectors = np.random.default_rng(2).standard_normal((2, 30, 4)).astype(np.float32)
    for depth in (1, 5, 50):
        ours, theirs = sim.best_by_torch(*vectors, depth, "cpu"), sim._best(*vectors, depth)
        for one, other in zip(ours[:2], theirs[:2], strict=True):
            assert one.dtype == other.dtype == np.int32
            assert one.tolist() == other.tolist()
        np.testing.assert_allclose(ours[2], theirs[2], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("depth", [1, 5, 50])
def test_nearest_neighbours_have_the_greatest_inner_products_without_the_pair_itself(depth):
    rng = np.random.default_rng(2)
    questions, passages = rng.standard_normal((2, 30, 4)).astype(np.float32)
    scores = questions @ passages.T
    question, passage, score = sim.nearest_neighbours(questions, passages, depth)
    np.testing.assert_allclose(score, scores[question, passage], rtol=1e-5, atol=1e-6)
    np.fill_diagonal(scores, -np.inf)
    half, depth = len(question) // 2, min(depth, 29)
    for i in range(30):
        assert set(passage[:half][question[:half] == i]) == set(np.argsort(-scores[i])[:depth])
        assert set(question[half:][passage[half:] == i]) == set(np.argsort(-scores[:, i])[:depth])


def test_best_rows_are_those_of_each_question_and_of_each_passage():
    scores = np.random.default_rng(3).integers(0, 4, (12, 12)).astype(np.float32)
    order = np.random.default_rng(4).permutation(144)
    question, passage, _ = sim.best_rows(tuple(x[order] for x in rows(scores)), 2)
    expected = {(i, int(j)) for i in range(12) for j in np.argsort(-scores[i], kind="stable")[:2]}
    expected |= {(int(i), j) for j in range(12) for i in np.argsort(-scores[:, j], kind="stable")[:2]}
    assert set(zip(question.tolist(), passage.tolist(), strict=True)) == expected


def test_pairs_within_a_pool_get_its_numbers():
    candidates = np.array([1, 5, 9, 5]), np.array([5, 9, 2, 1]), np.array([0.1, 0.2, 0.3, 0.4])
    question, passage, score = sim.within(candidates, np.array([1, 5, 9]), 10)
    assert (question.tolist(), passage.tolist(), score.tolist()) == ([0, 1, 1], [1, 2, 0], [0.1, 0.2, 0.4])
