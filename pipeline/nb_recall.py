"""How many of a later retriever's neighbours an earlier one finds: nb-recall n@k of the Condenser paper's analysis of
hard negatives (Gao and Callan, 2021, Condenser)."""

import numpy as np

from pipeline.runs import Run


def nb_recall(earlier: Run, later: Run, questions: int, n: int, k: int) -> np.ndarray:
    """|first k of `earlier` ∩ first n of `later`| / n of each question, float64 [questions].

    Both runs were read with the same questions and passages. A question that either run lacks has 0, and a later list
    of fewer than n passages is counted against n all the same.
    """
    passages = 1 + max(earlier.passage_R.max(initial=0), later.passage_R.max(initial=0))

    def firsts(run: Run, depth: int) -> np.ndarray:
        """A number for each question and passage of the lists' beginnings."""
        top_R = run.rank_R <= depth
        return run.question_R[top_R] * passages + run.passage_R[top_R]

    shared = np.intersect1d(firsts(earlier, k), firsts(later, n), assume_unique=True)
    return np.bincount(shared // passages, minlength=questions) / n
