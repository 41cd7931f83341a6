"""nb-recall n@k: how many of a later retriever's neighbours an earlier one finds, from the Condenser paper's analysis
of hard negatives (Gao and Callan, 2021, Condenser).

Legend of suffixes: H passages that both runs list.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from pipeline.data.runs import Run
from pipeline.evaluate.bootstrap import rounded

GRID = (50, 100, 200, 500, 1000)
"""Ranks k of the earlier run."""


def shared(earlier: Run, later: Run, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns (question [H], rank in `earlier` [H], rank in `later` [H]) of the passages in the first n of `later` and
    anywhere in `earlier`. Both runs were read with the same questions and passages."""
    passages = 1 + max(earlier.passage_R.max(initial=0), later.passage_R.max(initial=0))
    rank_R = later.rank_R
    top_R = rank_R <= n
    key_R, rank_R = later.question_R[top_R] * passages + later.passage_R[top_R], rank_R[top_R]
    by = np.argsort(key_R)
    key_R, rank_R = key_R[by], rank_R[by]
    sought = earlier.question_R * passages + earlier.passage_R
    at = np.minimum(np.searchsorted(key_R, sought), max(len(key_R) - 1, 0))
    found = key_R[at] == sought if len(key_R) else np.zeros(len(sought), bool)
    return earlier.question_R[found], earlier.rank_R[found], rank_R[at[found]]


def neighbours(runs: Mapping[str, Run], questions: int, ns: Sequence[int]) -> list[dict[str, Any]]:
    """Returns {earlier, later, n, questions, k, recall} of each run and the next one, for each n: nb-recall n@k,
    |first k of `earlier` ∩ first n of `later`| / n, averaged over the questions, at each k of GRID up to the depth of
    the earlier run.

    A question that is missing in either run counts as 0, and a later list with fewer than n passages is still divided
    by n. There is no row if the later run is shorter than n, or the earlier one shorter than all of GRID.
    """
    rows: list[dict[str, Any]] = []
    for (before, earlier), (after, later) in pairwise(runs.items()):
        ks = [k for k in GRID if k <= earlier.rank_R.max(initial=0)]
        fitting = [n for n in ns if n <= later.rank_R.max(initial=0)]
        if not ks or not fitting:
            continue
        _, earlier_H, later_H = shared(earlier, later, max(fitting))
        for n in fitting:
            recall = [rounded(((earlier_H <= k) & (later_H <= n)).sum() / n / questions) for k in ks]
            rows.append({"earlier": before, "later": after, "n": n, "questions": questions, "k": ks, "recall": recall})
    return rows
