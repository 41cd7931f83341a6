"""Tests of differences, against values worked out by hand and the plain formulas."""

import math
from itertools import product

import numpy as np
import pytest

from pipeline.evaluate.measures import MEASURES
from pipeline.evaluate.significance import comparisons, holm, p_values


def test_few_questions_are_tested_by_all_signs():
    difference_QM = np.array([[0.5], [0.25], [0.0], [0.125], [-0.25], [1.0]])
    means = [abs(np.dot(signs, difference_QM[:, 0])) for signs in product((1, -1), repeat=6)]
    expected = np.mean([mean >= abs(difference_QM.sum()) - 1e-12 for mean in means])
    assert p_values(difference_QM, "randomisation", samples=1000, seed=1)[0] == pytest.approx(expected)


def test_many_questions_are_tested_by_samples_of_signs():
    random = np.random.default_rng(5)
    difference_QM = random.normal([0.0, 0.3, 0.05], 1.0, (400, 3))
    found_M = p_values(difference_QM, "randomisation", samples=9999, seed=1)
    assert found_M == pytest.approx(p_values(difference_QM, "t", samples=0, seed=0), abs=0.02)
    assert found_M[1] < 0.001
    assert np.array_equal(found_M, p_values(difference_QM, "randomisation", samples=9999, seed=1))


def test_samples_of_signs_are_those_of_scipy():
    """Its own draws, which are others: the two agree as far as 20,000 draws tell."""
    from scipy import stats

    difference_QM = np.random.default_rng(8).normal([0.03, 0.06, 0.1], 0.5, (200, 3)).round(1)
    difference_QM[:50] = 0.0
    whole = stats.permutation_test(
        (difference_QM,), lambda x, axis: np.abs(x.mean(axis)), permutation_type="samples", alternative="greater",
        vectorized=True, n_resamples=20_000, batch=1000, axis=0, rng=np.random.default_rng(1),
    )  # fmt: skip
    found_M = p_values(difference_QM, "randomisation", samples=20_000, seed=1)
    assert found_M == pytest.approx(whole.pvalue, abs=0.015)
    assert 0.0 < found_M[2] < 0.05 < found_M[0] < 1.0


def test_a_sum_in_another_order_is_as_far_from_0():
    """0.1 + 0.2 + 0.3 and 0.3 + 0.2 + 0.1 differ in the last bit."""
    difference_QM = np.array([[0.1], [0.2], [0.3], [0.0]])
    assert p_values(difference_QM, "randomisation", samples=100, seed=1).tolist() == [0.25]
    assert p_values(-difference_QM[::-1], "randomisation", samples=100, seed=1).tolist() == [0.25]


def test_t_is_students():
    difference_Q = np.array([0.1, 0.3, -0.2, 0.4])
    t = difference_Q.mean() / (difference_Q.std(ddof=1) / math.sqrt(4))
    # Of 3 degrees of freedom the tail has a closed form.
    tail = 0.5 - (math.atan(t / math.sqrt(3)) + (t / math.sqrt(3)) / (1 + t * t / 3)) / math.pi
    assert p_values(difference_Q[:, None], "t", samples=0, seed=0)[0] == pytest.approx(2 * tail)


@pytest.mark.parametrize("test", ["randomisation", "t"])
def test_an_undecidable_comparison_has_p_1(test):
    assert p_values(np.zeros((5, 2)), test, samples=100, seed=1).tolist() == [1.0, 1.0]
    assert p_values(np.array([[0.5]]), test, samples=100, seed=1).tolist() == [1.0]
    one = p_values(np.array([[0.0, 0.5], [0.0, 0.5], [0.0, 0.5]]), test, samples=100, seed=1)
    assert one.tolist() == [1.0, 0.25]  # without variance there is no t: all signs, of which two are as far from zero


def test_t_of_equal_differences_is_the_randomisations():
    """They have no variance but that of their last bits, and t none but theirs: p would be 0 or next to it."""
    last_bits = np.linspace(0.0, 1e-12, 40)
    spread = np.random.default_rng(4).normal(0.3, 1.0, 40)
    difference_QM = np.stack([np.full(40, 0.1), 0.1 + last_bits, spread], axis=1)
    found_M = p_values(difference_QM, "t", samples=999, seed=1)
    assert found_M[:2].tolist() == [0.001, 0.001]
    assert found_M[2] == p_values(difference_QM[:, 2:], "t", samples=0, seed=0)[0]


def test_a_small_p_is_not_written_as_0():
    values = {"a": np.random.default_rng(3).normal(1.0, 0.1, (50, 1)), "b": np.zeros((50, 1))}
    found = comparisons(values, ["AP"], [("a", "b")], "t", 100, 1)["a - b"]["AP"]
    assert 0.0 < found["p"] < 1e-20


def test_holm_is_that_of_the_textbook():
    p_P = np.array([0.01, 0.04, 0.03, 0.005])
    assert holm(p_P[:, None])[:, 0].tolist() == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm(np.array([[0.6], [0.7]]))[:, 0].tolist() == [1.0, 1.0]


def test_wins_ties_and_losses_add_up():
    shape = (4, len(MEASURES))
    one, two = np.full(shape, 0.5), np.full(shape, 0.5)
    one[0], one[1], one[2] = 1.0, 0.1 + 0.2, 0.0
    two[1] = 0.3  # another last bit, not another figure
    found = comparisons({"one": one, "two": two}, MEASURES, [("one", "two")], "randomisation", 100, 1)
    assert found.keys() == {"one - two"}
    assert [found["one - two"]["AP"][key] for key in ("wins", "ties", "losses")] == [1, 2, 1]
    assert comparisons({"one": one}, MEASURES, [], "t", 100, 1) == {}


def test_more_pairs_raise_each_measures_own_p():
    random = np.random.default_rng(2)
    values = {name: random.random((30, len(MEASURES))) for name in ("a", "b", "c")}
    one = comparisons(values, MEASURES, [("a", "b")], "t", 100, 1)["a - b"]
    both = comparisons(values, MEASURES, [("a", "b"), ("a", "c")], "t", 100, 1)["a - b"]
    for measure in MEASURES:
        assert one[measure]["p"] == one[measure]["p_holm"] == both[measure]["p"]
        assert both[measure]["p"] <= both[measure]["p_holm"] <= min(1, 2 * both[measure]["p"]) + 1e-6
