"""Looks at questions that are judged one after another."""

import numpy as np
import pytest

from pipeline.evaluate.significance.paired import SURE, p_values
from pipeline.evaluate.significance.sequential import BOUNDARY, LOOKS, levels, look_counts, looks, needed_questions


def test_looks_are_at_equal_distances_up_to_the_plan() -> None:
    assert look_counts(50) == [10, 20, 30, 40, 50]
    assert look_counts(12) == [3, 5, 8, 10, 12]


def test_the_boundaries_keep_the_error_of_all_looks() -> None:
    """Sums of standard normal numbers cross |z| = BOUNDARY * sqrt(LOOKS / k) at any look in 5 % of the cases."""
    steps_SK = np.random.default_rng(0).normal(size=(200_000, LOOKS)).cumsum(axis=1)
    k_K = np.arange(1, LOOKS + 1)
    crossed = (np.abs(steps_SK / np.sqrt(k_K)) > BOUNDARY * np.sqrt(LOOKS / k_K)).any(axis=1).mean()
    assert crossed == pytest.approx(SURE, abs=0.002)
    assert [round(level, 4) for level in levels()] == [0.0, 0.0013, 0.0084, 0.0226, 0.0414]


def test_equal_systems_are_rarely_found_different_and_without_the_looks_levels_often() -> None:
    rng, found, naive = np.random.default_rng(1), 0, 0
    for _ in range(300):
        a_Q, b_Q = rng.uniform(size=(2, 50))
        found += looks({"a": a_Q, "b": b_Q}, 50, "t")[-1].is_decided
        naive += any(p_values((a_Q - b_Q)[:n, None], "t", 0, 0)[0] < SURE for n in range(10, 51, 4))
    assert found / 300 < 0.08
    assert naive / 300 > 0.15


def test_a_clear_difference_ends_the_looks_early() -> None:
    rng = np.random.default_rng(2)
    better_Q, worse_Q = rng.uniform(0.5, 1, 50), rng.uniform(0, 0.5, 50)
    done = looks({"worse": worse_Q, "better": better_Q}, 50)
    assert [look.questions for look in done] == [10, 20]
    assert (done[-1].best, done[-1].is_decided, done[0].is_decided) == ("better", True, False)
    assert [one.other for one in done[-1].others] == ["worse"]


def test_of_three_systems_the_best_must_differ_from_each_other_one() -> None:
    rng = np.random.default_rng(3)
    first_Q = rng.uniform(0.5, 1, 50)
    values = {"last": rng.uniform(0, 0.4, 50), "first": first_Q, "second": first_Q + np.tile([0.19, -0.2], 25)}
    final = looks(values, 50)[-1]
    assert ([one.other for one in final.others], final.questions) == (["second", "last"], 50)
    assert final.others[1].p_holm < final.level < final.others[0].p_holm
    assert not final.is_decided
    assert final.needed == final.others[0].needed > 50


def test_before_the_first_look_nothing_is_known() -> None:
    assert looks({"a": np.ones(9), "b": np.zeros(9)}, 50) == []


def test_the_number_of_needed_questions_has_the_planned_power() -> None:
    """Of plans as long as the estimate, four in five find the difference."""
    rng = np.random.default_rng(4)
    sample_Q = rng.normal(0.1, 0.25, 100_000)
    needed = needed_questions(sample_Q)
    assert needed is not None
    assert 45 <= needed <= 56
    found = sum(
        looks({"a": rng.normal(0.1, 0.25, needed), "b": np.zeros(needed)}, needed, "t")[-1].is_decided
        for _ in range(300)
    )
    assert 0.72 < found / 300 < 0.86


def test_equal_figures_need_no_number() -> None:
    assert needed_questions(np.zeros(20)) is None
    final = looks({"a": np.ones(50), "b": np.ones(50)}, 50)[-1]
    assert (final.needed, final.is_decided) == (None, False)
