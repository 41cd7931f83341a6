"""Fusion, compared with sums calculated by hand."""

import numpy as np
import pytest

from pipeline.data.runs import Run, ranked
from pipeline.evaluate.fusion.fuse import Choice, Method, fuse, union


def run(*rows: tuple[int, int, float]) -> Run:
    return ranked(*(np.array(column) for column in zip(*rows, strict=True)))


def parts(run: Run, method: Method, *others: Run) -> list[float]:
    """What the run adds for each candidate of the runs, in the order of questions and passages."""
    return union([run, *others], method, 60).part_NR[0].tolist()


# Question 0: passages 5, 6, 7; question 1: only passage 5.
BM25 = run((0, 5, 9.0), (0, 6, 5.0), (0, 7, 1.0), (1, 5, 3.0))
DENSE = run((0, 7, 0.8), (0, 8, 0.6), (1, 6, -2.0), (1, 5, -4.0))


def test_reciprocal_rank_by_hand():
    fused = fuse([BM25, DENSE], Choice("reciprocal_rank", 0.75), 60)
    scores = {(q, p): s for q, p, s in zip(fused.question_R, fused.passage_R, fused.score_R, strict=True)}
    assert scores[0, 5] == pytest.approx(0.75 / 61)
    assert scores[0, 7] == pytest.approx(0.75 / 63 + 0.25 / 61)
    assert scores[0, 8] == pytest.approx(0.25 / 62)
    assert scores[1, 5] == pytest.approx(0.75 / 61 + 0.25 / 62)
    assert fused.question_R.tolist() == [0, 0, 0, 0, 1, 1]
    assert fused.passage_R.tolist() == [7, 5, 6, 8, 5, 6]


def test_weighted_sum_by_hand():
    assert parts(BM25, "weighted_sum") == [1.0, 0.5, 0.0, 1.0]  # a single result gets 1
    fused = fuse([BM25, DENSE], Choice("weighted_sum", 0.5), 60)
    assert fused.passage_R.tolist() == [5, 7, 6, 8, 5, 6]  # 5 and 7 with .5, 5 and 6 with .5: passage order
    assert fused.score_R.tolist() == [0.5, 0.5, 0.25, 0.0, 0.5, 0.5]


def test_the_first_run_has_the_weight_and_the_others_share_the_rest_equally():
    third = run((0, 8, 3.0), (0, 5, 1.0))
    fused = fuse([BM25, DENSE, third], Choice("reciprocal_rank", 0.5), 60)
    scores = {(q, p): s for q, p, s in zip(fused.question_R, fused.passage_R, fused.score_R, strict=True)}
    assert scores[0, 5] == pytest.approx(0.5 / 61 + 0.25 / 62)
    assert scores[0, 8] == pytest.approx(0.25 / 62 + 0.25 / 61)
    assert scores[1, 6] == pytest.approx(0.25 / 61)
    equal = fuse([BM25, DENSE, third], Choice("reciprocal_rank", 1 / 3), 60)
    score_of = dict(zip(zip(equal.question_R, equal.passage_R, strict=True), equal.score_R, strict=True))
    assert score_of[0, 5] == pytest.approx((1 / 61 + 1 / 62) / 3)
    assert score_of[0, 7] == pytest.approx((1 / 63 + 1 / 61) / 3)


def test_a_list_of_equal_scores_gets_one():
    assert parts(run((0, 1, 2.0), (0, 2, 2.0)), "weighted_sum") == [1.0, 1.0]


SCORES = {
    "any": [9.0, 5.0, 1.5, 1.0],
    "near 1.7e9": [1699999999.0, 1699999998.0, 1699999990.0],
    "12th digit": [12.5, 12.5 - 1e-11, 12.5 - 3e-11],
    "denormal": [4e-320, 3e-320, 0.0],
    "greatest": [1e38, 0.0, -1e38],
    "negative": [-1.0, -1.5, -9.0],
}


@pytest.mark.parametrize("scores", SCORES.values(), ids=SCORES)
def test_z_scores_have_mean_0_and_variance_1_over_the_candidates(scores):
    one = run(*((0, n, s) for n, s in enumerate(scores)))
    for others in ([], [run((0, 98, 3.0), (0, 99, 2.0))]):  # two candidates that the list lacks
        part_R = np.array(parts(one, "z_score_sum", *others))
        assert part_R.mean() == pytest.approx(0, abs=1e-9)
        assert part_R.std() == pytest.approx(1)
        listed_R, other_R = part_R[: len(scores)], part_R[len(scores) :]
        assert (listed_R[1:] < listed_R[:-1]).all()
        assert other_R.tolist() == [listed_R[-1]] * len(other_R)


def test_a_list_of_few_passages_counts_as_much_as_a_long_one():
    """A rare word matches two of a hundred candidates: both are above those that the dense list has first."""
    rare = run((0, 50, 2.0), (0, 51, 1.9))
    dense = run(*((0, n, 1 - n / 1000) for n in range(100)))
    assert fuse([rare, dense], Choice("z_score_sum", 0.5), 60).passage_R.tolist()[:2] == [50, 0]
    assert fuse([rare, dense], Choice("z_score_sum", 0.9), 60).passage_R.tolist()[0] == 50
    assert parts(rare, "z_score_sum", dense)[50] == pytest.approx((1 - 0.01) / (0.01 * 0.99) ** 0.5)


@pytest.mark.parametrize("method", ["weighted_sum", "z_score_sum"])
@pytest.mark.parametrize("step", [0.1, 1 / 3, 1e-9])
def test_sums_that_differ_only_by_rounding_are_in_passage_order(method, step):
    passages = range(11)
    opposite = [run(*((0, n, sign * n * s) for n in passages)) for sign, s in ((1, step), (-1, 0.7))]
    fused = fuse(opposite, Choice(method, 0.5), 60)
    assert fused.passage_R.tolist() == [*passages]
    assert len({*fused.score_R.tolist()}) == 1
    above = run(*((0, n, n * step) for n in passages), (0, 10_000, 10 * step + 1e-6))
    assert fuse([above, opposite[1]], Choice(method, 0.9), 60).passage_R[0] == 10_000  # a real difference counts


def test_z_scores_by_hand():
    fused = fuse([BM25, DENSE], Choice("z_score_sum", 0.5), 60)
    score_of = dict(zip(zip(fused.question_R, fused.passage_R, strict=True), fused.score_R, strict=True))
    # Question 0, passages 5 to 8: BM25 has 1, .5, 0, 0 (8 is not listed), DENSE 0, 0, 1, 0 (8 is its last).
    bm25 = np.array([1, 0.5, 0, 0]) - 0.375
    dense = np.array([0, 0, 1, 0]) - 0.25
    expected = (bm25 / bm25.std() + dense / dense.std()) / 2
    assert [score_of[0, p] for p in (5, 6, 7, 8)] == pytest.approx(expected.tolist())
    # Question 1, passages 5 and 6: BM25 has 1, 0, DENSE 0, 1.
    assert [score_of[1, p] for p in (5, 6)] == [0, 0]


@pytest.mark.parametrize(
    "rows", [[(0, 1, 2.0)], [(0, 1, 0.1), (0, 2, 0.1), (0, 3, 0.1)], [(0, 1, -1e38), (0, 2, -1e38)]]
)
def test_a_list_of_equal_scores_ranks_its_passages_above_unlisted_ones(rows):
    assert parts(run(*rows), "z_score_sum") == [0.0] * len(rows)
    part_R = parts(run(*rows), "z_score_sum", run((0, 9, 1.0), (1, 9, 1.0)))
    assert {*part_R[: len(rows)]} == {part_R[0]}
    assert part_R[len(rows)] < 0 < part_R[0]
    assert part_R[-1] == 0  # question 1 has no list


def test_an_empty_run_changes_no_order():
    empty = Run(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))
    for method in ("reciprocal_rank", "weighted_sum", "z_score_sum"):
        fused = fuse([BM25, empty], Choice(method, 0.3), 60)
        assert fused.passage_R.tolist() == BM25.passage_R.tolist()


def test_union_has_every_passage_once():
    both = union([BM25, DENSE], "weighted_sum", 60)
    pairs = list(zip(both.question_R.tolist(), both.passage_R.tolist(), strict=True))
    assert pairs == [(0, 5), (0, 6), (0, 7), (0, 8), (1, 5), (1, 6)]
