"""Fuses several runs: a weighted sum of normalised scores or reciprocal ranks. pipeline/evaluate/fusion_choice.py
decides which.

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
    shifted and scaled so that the question's whole list has mean 0 and variance 1 (ZMUV: Montague and Aslam, 2001);
    equal scores give 0, and -1 for passages that are not listed; an empty list gives 0.

    A passage that is not listed gets what the last of the list has: its score is unknown, and not above that one.
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
