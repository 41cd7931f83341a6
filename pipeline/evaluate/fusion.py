"""Fuses several runs: a weighted sum of reciprocal ranks or normalised scores. Judgements of dev choose method and
weight; without any, z-normalised scores are added with equal weights.

Legend of suffixes: R rows (of a run, or of the union of some), Q questions, N runs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from pipeline.data.runs import Run, ranked

Method = Literal["reciprocal_rank", "weighted_sum", "z_score_sum"]
DIGITS = 12
"""Decimal places of a fused score: smaller differences are rounding errors."""


@dataclass(frozen=True)
class Choice:
    """How runs are fused: score = weight x (first run's part) + (1 - weight) x (mean of the other runs' parts).

    One weight for any number of runs: a grid over all weights grows exponentially, and dev's few questions would fit
    noise. 1 / N gives equal weights.
    """

    method: Method
    weight: float


@dataclass(frozen=True)
class Union:
    """Every (question, passage) of some runs, with each run's part of its score, also if the run does not list it."""

    question_R: np.ndarray
    passage_R: np.ndarray
    part_NR: np.ndarray

    def score_R(self, weight: float) -> np.ndarray:
        """Returns fused scores; passages with equal sums of parts get equal scores, in any order of summation."""
        score_R = weight * self.part_NR[0] + (1 - weight) * self.part_NR[1:].mean(0)
        return np.round(score_R, DIGITS) + 0.0  # turns -0 into 0


def parts(run: Run, method: Method, k: float, questions: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns (each listed row's part of the sum, [R]; each question's part for passages that are not listed, [Q]).

    `reciprocal_rank`: 1 / (k + rank) (Cormack, Clarke and Buettcher, 2009), and 0. `weighted_sum`: the score scaled to
    [0, 1] within its question (1 if all scores are equal), and 0, as for the last of the list. `z_score_sum`: these
    shifted and scaled so that listed ones have mean 0 and variance 1 (ZMUV: Montague and Aslam, 2001); equal scores
    give 0, and -1 for passages that are not listed; an empty list gives 0.
    """
    if method == "reciprocal_rank":
        return 1 / (k + run.rank_R), np.zeros(questions)
    share_R = _shares(run, questions)
    if method == "weighted_sum":
        return share_R, np.zeros(questions)
    size_Q = np.maximum(np.bincount(run.question_R, minlength=questions), 1)
    mean_Q = np.bincount(run.question_R, share_R, questions) / size_Q
    off_R = share_R - mean_Q[run.question_R]
    spread_Q = np.sqrt(np.bincount(run.question_R, off_R**2, questions) / size_Q)
    spread_Q[spread_Q == 0] = 1  # if all scores are equal
    return off_R / spread_Q[run.question_R], -mean_Q / spread_Q


def _shares(run: Run, questions: int) -> np.ndarray:
    """Returns scores scaled to [0, 1] within their questions; 1 if all are equal."""
    low_Q, high_Q = np.full(questions, np.inf), np.full(questions, -np.inf)
    np.minimum.at(low_Q, run.question_R, run.score_R)
    np.maximum.at(high_Q, run.question_R, run.score_R)
    low_R, width_R = low_Q[run.question_R], (high_Q - low_Q)[run.question_R]
    return np.divide(run.score_R - low_R, width_R, out=np.ones_like(run.score_R), where=width_R > 0)


def union(runs: Sequence[Run], method: Method, k: float) -> Union:
    passages = 1 + max(int(run.passage_R.max(initial=0)) for run in runs)
    keys = [run.question_R * passages + run.passage_R for run in runs]
    key_R = np.sort(np.concatenate(keys))
    key_R = key_R[np.diff(key_R, prepend=-1) > 0]
    question_R = key_R // passages
    part_NR = np.empty((len(runs), len(key_R)))
    for part_R, key, run in zip(part_NR, keys, runs, strict=True):
        listed_R, other_Q = parts(run, method, k, int(question_R.max(initial=-1)) + 1)
        part_R[:] = other_Q[question_R]
        part_R[np.searchsorted(key_R, key)] = listed_R
    return Union(question_R, key_R % passages, part_NR)


def fuse(runs: Sequence[Run], choice: Choice, k: float) -> Run:
    """Returns the fused run of all passages in at least one of two or more runs, equal scores in passage order."""
    joined = union(runs, choice.method, k)
    return ranked(joined.question_R, joined.passage_R, joined.score_R(choice.weight))


def mean_reciprocal_rank(
    question_R: np.ndarray,
    passage_R: np.ndarray,
    score_R: np.ndarray,
    relevant_R: np.ndarray,
    questions: int,
    cutoff: int = 10,
) -> float:
    """Returns RR@cutoff, averaged over `questions`, of rows in any order, without sorting them.

    The first relevant passage has the best score, then the first place in passage order; its rank is one more than
    the number of rows ahead of it.
    """
    best_Q = np.full(questions, -np.inf)
    np.maximum.at(best_Q, question_R[relevant_R], score_R[relevant_R])
    level_R = score_R == best_Q[question_R]
    first_Q = np.full(questions, np.iinfo(np.int64).max)
    np.minimum.at(first_Q, question_R[relevant_R & level_R], passage_R[relevant_R & level_R])
    ahead_R = (score_R > best_Q[question_R]) | (level_R & (passage_R < first_Q[question_R]))
    rank_Q = 1 + np.bincount(question_R[ahead_R], minlength=questions)
    return float(np.where((best_Q > -np.inf) & (rank_Q <= cutoff), 1 / rank_Q, 0).sum() / questions)


def is_relevant(question_R: np.ndarray, passage_R: np.ndarray, relevant: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Returns which rows are in the positive judgements `relevant` (questions, passages; equal lengths), bool [R]."""
    passages = 1 + max(int(passage_R.max(initial=0)), int(relevant[1].max(initial=0)))
    return np.isin(question_R * passages + passage_R, relevant[0] * passages + relevant[1])


def choose(
    runs: Sequence[Run],
    relevant: tuple[np.ndarray, np.ndarray],
    questions: int,
    methods: Sequence[Method],
    weights: Sequence[float],
    k: float,
    document_P: np.ndarray | None = None,
) -> Choice | None:
    """Returns the method and weight with the best RR@10; the first of equal ones. `relevant`: see `is_relevant`.

    `document_P`: document of each passage, ascending; documents are then ranked by their best passages, and `relevant`
    names documents. None: passages are ranked. Returns None if none of them finds a relevant one.
    """
    best, best_value = None, 0.0
    for method in methods:
        joined = union(runs, method, k)
        ranked_R = joined.passage_R if document_P is None else document_P[joined.passage_R]
        # The rows are in the order of questions and passages, and so are those of each document.
        first_G = np.flatnonzero(np.diff(joined.question_R, prepend=-1) | np.diff(ranked_R, prepend=-1))
        question_G, ranked_G = joined.question_R[first_G], ranked_R[first_G]
        relevant_G = is_relevant(question_G, ranked_G, relevant)
        for weight in weights:
            score_G = np.maximum.reduceat(joined.score_R(weight), first_G) if len(first_G) else np.zeros(0)
            value = mean_reciprocal_rank(question_G, ranked_G, score_G, relevant_G, questions)
            if value > best_value:
                best, best_value = Choice(method, weight), value
    return best


def untuned(runs: int, methods: Sequence[Method], weights: Sequence[float]) -> Choice:
    """Returns how to fuse `runs` runs if no judgement can choose: the only method or weight if there is just one, else
    z-normalised scores with equal weights.

    On ten collections no other choice of method and weight was better than z-scores with equal weights, while
    reciprocal ranks were worse by .014 nDCG@10 on average (docs/evaluation.md).
    """
    method: Method = methods[0] if len(methods) == 1 else "z_score_sum"
    return Choice(method, weights[0] if len(weights) == 1 else 1 / runs)
