"""RR@10 of many lists at once, from arrays: the values of ir-measures (measures.py), without its dictionaries.

Shapes: R rows of lists, Q questions.
"""

import numpy as np

from pipeline.data.runs import Run


def run_reciprocal_ranks(run: Run, relevant: tuple[np.ndarray, np.ndarray], questions: int) -> np.ndarray:
    """Returns RR@10 of each question, [Q], in the run's order; 0 without a relevant passage in the run.

    `relevant`: the positive judgements, questions and passages; equal lengths.
    """
    relevant_R = is_relevant(run.question_R, run.passage_R, relevant)
    return reciprocal_ranks(run.question_R, run.passage_R, -run.rank_R, relevant_R, questions)


def reciprocal_ranks(
    question_R: np.ndarray,
    passage_R: np.ndarray,
    score_R: np.ndarray,
    relevant_R: np.ndarray,
    questions: int,
    cutoff: int = 10,
) -> np.ndarray:
    """Returns RR@cutoff of each question, [Q], from rows in any order, without sorting them.

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
    return np.where((best_Q > -np.inf) & (rank_Q <= cutoff), 1 / rank_Q, 0.0)


def is_relevant(question_R: np.ndarray, passage_R: np.ndarray, relevant: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Returns which rows are in the positive judgements `relevant` (questions, passages; equal lengths), bool [R]."""
    passages = 1 + max(int(passage_R.max(initial=0)), int(relevant[1].max(initial=0)))
    return np.isin(question_R * passages + passage_R, relevant[0] * passages + relevant[1])
