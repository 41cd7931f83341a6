"""Which fusion is used: the default, the user's own, or one that dev questions prove better."""

from dataclasses import replace

import numpy as np
import pytest

from pipeline.data.runs import Run, ranked
from pipeline.evaluate.fusion.choice import Judged, choose, default_choice, reciprocal_ranks_of
from pipeline.evaluate.fusion.files import WAYS
from pipeline.evaluate.fusion.fuse import Choice, fuse
from pipeline.evaluate.significance.paired import proven_better

DEFAULT = Choice("z_score_sum", 1 / 2)


def random_run(questions: int, seed: int, passages: int = 20) -> Run:
    question_R = np.repeat(np.arange(questions), passages)
    return ranked(
        question_R, np.tile(np.arange(passages), questions), np.random.default_rng(seed).random(len(question_R))
    )


def firsts(run: Run) -> tuple[np.ndarray, np.ndarray]:
    """Judgements by which the first passage of each of the run's lists is relevant."""
    first_R = run.rank_R == 1
    return run.question_R[first_R], run.passage_R[first_R]


@pytest.mark.parametrize(
    ("methods", "weights", "runs", "expected"),
    [
        (["reciprocal_rank", "weighted_sum"], [0.1, 0.9], 2, Choice("z_score_sum", 1 / 2)),
        (["weighted_sum", "z_score_sum"], [0.1, 0.9], 3, Choice("z_score_sum", 1 / 3)),
        (["reciprocal_rank"], [0.1, 0.9], 2, Choice("reciprocal_rank", 1 / 2)),
        (["reciprocal_rank", "weighted_sum"], [0.3], 2, Choice("z_score_sum", 0.3)),
        (["weighted_sum"], [0.3], 4, Choice("weighted_sum", 0.3)),
    ],
)
def test_the_default_has_z_scores_and_equal_weights_unless_the_user_allows_one_only(methods, weights, runs, expected):
    assert default_choice(runs, replace(WAYS, methods=methods, weights=weights)) == expected


def test_dev_chooses_nothing_by_chance():
    """8 dev questions, by which the first run alone is perfect: the grid's best weight is .9, and it is not used."""
    for questions, why in (
        (8, "default: 8 dev questions, fewer than 50"),
        (49, "default: 49 dev questions, fewer than 50"),
    ):
        runs = [random_run(questions, 0), random_run(questions, 1)]
        found = choose(runs, WAYS, Judged(firsts(runs[0]), questions))
        assert (found.choice, found.chosen_on_dev, found.why) == (DEFAULT, False, why)


def test_what_dev_proves_better_is_used():
    runs = [random_run(60, 0), random_run(60, 1)]
    found = choose(runs, WAYS, Judged(firsts(runs[1]), 60))
    assert found.chosen_on_dev
    assert found.choice.weight < 0.5
    assert found.why == "better than the default on 60 dev questions, p = .003"  # 1 / 10,001, for 26 other ways
    z_score = choose(runs, replace(WAYS, methods=["z_score_sum"]), Judged(firsts(runs[0]), 60))
    assert z_score.choice.weight > 0.5


def test_a_gain_that_is_no_proof_changes_nothing():
    """Of random judgements some weight is always the best."""
    runs = [random_run(60, 0), random_run(60, 1)]
    for seed in range(5):
        judged = Judged((np.arange(60), np.random.default_rng(seed).integers(0, 20, 60)), 60)
        ranks_QC = reciprocal_ranks_of(runs, [DEFAULT, *(Choice("z_score_sum", w) for w in WAYS.weights)], 60, judged)
        assert (ranks_QC.mean(0)[1:] > ranks_QC.mean(0)[0]).any()
        found = choose(runs, WAYS, judged)
        assert (found.choice, found.chosen_on_dev) == (DEFAULT, False)
        assert found.why == "default: no other way is better on 60 dev questions with p < .05"


def test_candidates_are_corrected_for_their_number():
    """+ .1 for 6 of 60 questions has p = .03 alone, which 9 further candidates that differ nowhere raise to .3."""
    gain_Q = np.zeros(60)
    gain_Q[:6] = 0.1
    alone = proven_better(gain_Q[:, None], "randomisation", 10_000, 0)
    assert alone is not None
    assert (alone.column, alone.p) == (0, pytest.approx(2 / 64))
    nothing_QC = np.zeros((60, 9))
    assert proven_better(np.column_stack([gain_Q, nothing_QC]), "randomisation", 10_000, 0) is None
    assert proven_better(-gain_Q[:, None], "randomisation", 10_000, 0) is None  # worse
    sure_Q = np.full(60, 0.1)
    best = proven_better(np.column_stack([gain_Q, sure_Q / 2, sure_Q, nothing_QC, sure_Q]), "randomisation", 10_000, 0)
    assert best is not None
    assert best.column == 2  # the first of the best means
    assert proven_better(sure_Q[:49, None], "randomisation", 10_000, 0) is None


@pytest.mark.parametrize("judged", [None, Judged((np.array([0]), np.array([0])), 1)])
def test_a_single_way_is_the_users_own(judged):
    ways = replace(WAYS, methods=["weighted_sum"], weights=[0.3])
    found = choose([random_run(2, 0), random_run(2, 1)], ways, judged)
    assert (found.choice, found.chosen_on_dev, found.why) == (Choice("weighted_sum", 0.3), False, "as requested")


def test_without_dev_the_reason_is_reported():
    runs = [random_run(2, 0), random_run(2, 1), random_run(2, 2)]
    found = choose(runs, WAYS, None)
    assert (found.choice, found.why) == (Choice("z_score_sum", 1 / 3), "default: no dev questions")
    assert choose(runs, WAYS, None, "one of its runs has no dev questions").why.endswith("runs has no dev questions")


@pytest.mark.parametrize("relevant", [([], []), ([0], [99]), ([70], [7])])
def test_judgements_that_no_run_finds_prove_nothing(relevant):
    pairs = np.array(relevant[0], np.int64), np.array(relevant[1], np.int64)
    found = choose([random_run(60, 0), random_run(60, 1)], WAYS, Judged(pairs, 60))
    assert (found.choice, found.chosen_on_dev) == (DEFAULT, False)


def test_each_choice_is_measured_as_its_fusion():
    runs = [random_run(30, 0), random_run(30, 1)]
    judged = np.arange(30), np.random.default_rng(1).integers(0, 20, 30)
    choices = [Choice(method, weight) for method in WAYS.methods for weight in (0.2, 0.5, 0.8)]
    measured_QC = reciprocal_ranks_of(runs, choices, 60, Judged(judged, 30))
    for column, choice in enumerate(choices):
        fused = fuse(runs, choice, 60)
        rank = {(q, p): r for q, p, r in zip(fused.question_R, fused.passage_R, fused.rank_R, strict=True)}
        ranks = np.array([rank[pair] for pair in zip(*judged, strict=True)])
        assert measured_QC[:, column].tolist() == pytest.approx(np.where(ranks <= 10, 1 / ranks, 0).tolist())
