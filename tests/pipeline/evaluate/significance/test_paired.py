"""Significance tests, compared with values calculated by hand and with the plain formulas."""

import math
from itertools import product

import numpy as np
import pytest

from pipeline.evaluate.measures import MEASURES
from pipeline.evaluate.significance.paired import comparisons, holm, p_values


def test_few_questions_are_tested_with_all_signs():
    difference_QM = np.array([[0.5], [0.25], [0.0], [0.125], [-0.25], [1.0]])
    means = [abs(np.dot(signs, difference_QM[:, 0])) for signs in product((1, -1), repeat=6)]
    expected = np.mean([mean >= abs(difference_QM.sum()) - 1e-12 for mean in means])
    assert p_values(difference_QM, "randomisation", samples=1000, seed=1)[0] == pytest.approx(expected)


def test_many_questions_are_tested_with_samples_of_signs():
    random = np.random.default_rng(5)
    difference_QM = random.normal([0.0, 0.3, 0.05], 1.0, (400, 3))
    p_M = p_values(difference_QM, "randomisation", samples=9999, seed=1)
    assert p_M == pytest.approx(p_values(difference_QM, "t", samples=0, seed=0), abs=0.02)
    assert p_M[1] < 0.001
    assert np.array_equal(p_M, p_values(difference_QM, "randomisation", samples=9999, seed=1))


def test_samples_of_signs_agree_with_scipy():
    """SciPy draws other samples: the two agree within the precision of 20,000 draws."""
    from scipy import stats

    difference_QM = np.random.default_rng(8).normal([0.03, 0.06, 0.1], 0.5, (200, 3)).round(1)
    difference_QM[:50] = 0.0
    whole = stats.permutation_test(
        (difference_QM,), lambda x, axis: np.abs(x.mean(axis)), permutation_type="samples", alternative="greater",
        vectorized=True, n_resamples=20_000, batch=1000, axis=0, rng=np.random.default_rng(1),
    )  # fmt: skip
    p_M = p_values(difference_QM, "randomisation", samples=20_000, seed=1)
    assert p_M == pytest.approx(whole.pvalue, abs=0.015)
    assert 0.0 < p_M[2] < 0.05 < p_M[0] < 1.0


def test_the_order_of_a_sum_does_not_change_p():
    """0.1 + 0.2 + 0.3 and 0.3 + 0.2 + 0.1 differ in the last bit."""
    difference_QM = np.array([[0.1], [0.2], [0.3], [0.0]])
    assert p_values(difference_QM, "randomisation", samples=100, seed=1).tolist() == [0.25]
    assert p_values(-difference_QM[::-1], "randomisation", samples=100, seed=1).tolist() == [0.25]


def test_t_is_the_test_of_student():
    difference_Q = np.array([0.1, 0.3, -0.2, 0.4])
    t = difference_Q.mean() / (difference_Q.std(ddof=1) / math.sqrt(4))
    # With 3 degrees of freedom the tail has a closed form.
    tail = 0.5 - (math.atan(t / math.sqrt(3)) + (t / math.sqrt(3)) / (1 + t * t / 3)) / math.pi
    assert p_values(difference_Q[:, None], "t", samples=0, seed=0)[0] == pytest.approx(2 * tail)


@pytest.mark.parametrize("test", ["randomisation", "t"])
def test_an_undecidable_comparison_has_p_1(test):
    assert p_values(np.zeros((5, 2)), test, samples=100, seed=1).tolist() == [1.0, 1.0]
    assert p_values(np.array([[0.5]]), test, samples=100, seed=1).tolist() == [1.0]
    one = p_values(np.array([[0.0, 0.5], [0.0, 0.5], [0.0, 0.5]]), test, samples=100, seed=1)
    assert one.tolist() == [1.0, 0.25]  # no variance, so no t: of all eight signs two are as far from zero


def test_t_of_equal_differences_uses_randomisation():
    """Their only variance is that of the last bits, so that the p of a t test would be almost 0."""
    last_bits = np.linspace(0.0, 1e-12, 40)
    spread = np.random.default_rng(4).normal(0.3, 1.0, 40)
    difference_QM = np.stack([np.full(40, 0.1), 0.1 + last_bits, spread], axis=1)
    p_M = p_values(difference_QM, "t", samples=999, seed=1)
    assert p_M[:2].tolist() == [0.001, 0.001]
    assert p_M[2] == p_values(difference_QM[:, 2:], "t", samples=0, seed=0)[0]


def test_a_small_p_is_not_written_as_0():
    values = {"a": np.random.default_rng(3).normal(1.0, 0.1, (50, 1)), "b": np.zeros((50, 1))}
    figures = comparisons(values, ["AP"], [("a", "b")], "t", 100, 1)["a - b"]["AP"]
    assert 0.0 < figures["p"] < 1e-20


def test_holm_gives_the_values_of_a_textbook():
    p_P = np.array([0.01, 0.04, 0.03, 0.005])
    assert holm(p_P[:, None])[:, 0].tolist() == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm(np.array([[0.6], [0.7]]))[:, 0].tolist() == [1.0, 1.0]


def test_wins_ties_and_losses_add_up():
    shape = (4, len(MEASURES))
    one, two = np.full(shape, 0.5), np.full(shape, 0.5)
    one[0], one[1], one[2] = 1.0, 0.1 + 0.2, 0.0
    two[1] = 0.3  # differs only in the last bit
    compared = comparisons({"one": one, "two": two}, MEASURES, [("one", "two")], "randomisation", 100, 1)
    assert compared.keys() == {"one - two"}
    assert [compared["one - two"]["AP"][key] for key in ("wins", "ties", "losses")] == [1, 2, 1]
    assert comparisons({"one": one}, MEASURES, [], "t", 100, 1) == {}


def test_more_pairs_raise_the_corrected_p_of_each_measure():
    random = np.random.default_rng(2)
    values = {name: random.random((30, len(MEASURES))) for name in ("a", "b", "c")}
    one = comparisons(values, MEASURES, [("a", "b")], "t", 100, 1)["a - b"]
    both = comparisons(values, MEASURES, [("a", "b"), ("a", "c")], "t", 100, 1)["a - b"]
    for measure in MEASURES:
        assert one[measure]["p"] == one[measure]["p_holm"] == both[measure]["p"]
        assert both[measure]["p"] <= both[measure]["p_holm"] <= min(1, 2 * both[measure]["p"]) + 1e-6
