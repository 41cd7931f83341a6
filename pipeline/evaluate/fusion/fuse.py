"""Fuses several runs: a weighted sum of normalised scores or reciprocal ranks. pipeline/evaluate/fusion/choice.py
decides which.

Legend of suffixes: R rows (of a run, or of the union of some), Q questions, N runs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from pipeline.data.runs import Run, ranked

Method = Literal["reciprocal_rank", "weighted_sum", "z_score_sum"]
RECIPROCAL_K = 60.0
"""Cormack, Clarke and Buettcher (2009)."""
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


EQUAL = Choice("z_score_sum", 0.5)
"""Two runs with equal weights: the default, and the teacher wherever nobody has judged (docs/evaluation.md)."""


@dataclass(frozen=True)
class Union:
    """Every candidate (question, passage) of some runs, with each run's part of its score, also if a run lacks it."""

    question_R: np.ndarray
    passage_R: np.ndarray
    part_NR: np.ndarray

    def score_R(self, weight: float) -> np.ndarray:
        """Returns fused scores; passages with equal sums of parts get equal scores, in any order of summation."""
        score_R = weight * self.part_NR[0] + (1 - weight) * self.part_NR[1:].mean(0)
        return np.round(score_R, DIGITS) + 0.0  # turns -0 into 0


def union(runs: Sequence[Run], method: Method, k: float = RECIPROCAL_K) -> Union:
    """Returns the candidates of each question, the passages in at least one of its lists, whatever their depths.

    Parts of the sum: `reciprocal_rank`: 1 / (k + rank) (Cormack, Clarke and Buettcher, 2009); 0 if a list lacks the
    passage. `weighted_sum`: the score scaled to [0, 1] within its list (1 if all its scores are equal); 0 if the list
    lacks the passage, as the list's last one has: its score is unknown, and not above that one. `z_score_sum`: these,
    shifted and scaled so that they have mean 0 and variance 1 over the question's candidates (ZMUV: Montague and
    Aslam, 2001); 0 if all are equal, as those of an empty list are.

    The mean and variance are those of the candidates, not of the list alone. A list that ends early says that its few
    passages are better than all other candidates; its own mean and variance would lose that (docs/evaluation.md).
    """
    passages = 1 + max(int(run.passage_R.max(initial=0)) for run in runs)
    keys = [run.question_R * passages + run.passage_R for run in runs]
    key_R = np.sort(np.concatenate(keys))
    key_R = key_R[np.diff(key_R, prepend=-1) > 0]
    question_R = key_R // passages
    part_NR = np.zeros((len(runs), len(key_R)))
    for part_R, key, run in zip(part_NR, keys, runs, strict=True):
        listed_R = 1 / (k + run.rank_R) if method == "reciprocal_rank" else _shares(run)
        part_R[np.searchsorted(key_R, key)] = listed_R
        if method == "z_score_sum":
            part_R[:] = _standardised(part_R, question_R)
    return Union(question_R, key_R % passages, part_NR)


def _shares(run: Run) -> np.ndarray:
    """Returns scores scaled to [0, 1] within their questions; 1 if all are equal."""
    questions = int(run.question_R.max(initial=-1)) + 1
    low_Q, high_Q = np.full(questions, np.inf), np.full(questions, -np.inf)
    np.minimum.at(low_Q, run.question_R, run.score_R)
    np.maximum.at(high_Q, run.question_R, run.score_R)
    low_R, width_R = low_Q[run.question_R], (high_Q - low_Q)[run.question_R]
    return np.divide(run.score_R - low_R, width_R, out=np.ones_like(run.score_R), where=width_R > 0)


def _standardised(share_R: np.ndarray, question_R: np.ndarray) -> np.ndarray:
    """Returns values shifted and scaled to mean 0 and variance 1 within their questions; 0 if all are equal."""
    size_Q = np.maximum(np.bincount(question_R), 1)
    mean_Q = np.bincount(question_R, share_R) / size_Q
    off_R = share_R - mean_Q[question_R]
    spread_Q = np.sqrt(np.bincount(question_R, off_R**2) / size_Q)
    spread_Q[spread_Q == 0] = 1
    return off_R / spread_Q[question_R]


def fuse(runs: Sequence[Run], choice: Choice, k: float = RECIPROCAL_K) -> Run:
    """Returns the fused run of all passages in at least one of two or more runs, equal scores in passage order."""
    joined = union(runs, choice.method, k)
    return ranked(joined.question_R, joined.passage_R, joined.score_R(choice.weight))
