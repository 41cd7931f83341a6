"""Decides without judgements whether an adapted model is used: it must agree better with the fusion than its start.

The fusion is that of BM25 and the model as it was, on generated queries that the training does not have, of another
kind. On small collections an adaptation may harm; where it did, this agreement was worse too.

Shapes: Q queries, N passages, E dimension of a vector, K passages of a list.
"""

from typing import NamedTuple

import numpy as np

from pipeline.adapt.apply_map import apply_map
from pipeline.data.qrels import Qrels
from pipeline.data.runs import Run
from pipeline.dense.exact import Found, exact_top_k
from pipeline.dense.rescore import best_k
from pipeline.dense.search_runs import as_run, first, without
from pipeline.evaluate.measures import MEASURES, measure
from pipeline.evaluate.significance.paired import p_values, rounded_p

AGREEING = 10
"""First passages of the fusion: the first has grade 10, the last 1."""
PERMUTATIONS = 10_000
"""Draws of signs of the randomisation test."""
BLOCK = 1 << 15
"""Passages that are mapped, or encoded, at a time."""


class GuardResult(NamedTuple):
    """nDCG@10 of the model's lists, with the first passages of the fusion as relevant ones; means over the queries."""

    before: float
    after: float
    p: float
    """Two-sided, of the difference."""

    def accepts(self, p: float) -> bool:
        """Whether the adapted model agrees better, with a smaller p."""
        return self.after > self.before and self.p < p


def compare(fused: Run, start: Run, adapted: Run, source_Q: np.ndarray, seed: int) -> GuardResult:
    """Compares the lists of the model as it was and of the adapted one. `source_Q`: passages that are left out.

    Both lists have the first AGREEING passages besides the source: a shorter list would agree less by its length alone.
    """
    grades = {
        query: {p: AGREEING + 1 + place for p, place in places.items()} for query, places in _ranks(fused).items()
    }
    values = [_agreement(grades, _ranks(without(run, source_Q)), len(source_Q)) for run in (start, adapted)]
    (p,) = p_values((values[1] - values[0])[:, None], "randomisation", PERMUTATIONS, seed)
    return GuardResult(float(values[0].mean()), float(values[1].mean()), rounded_p(p))


def _ranks(run: Run) -> Qrels:
    """Returns {query: {passage: -rank}} of the first passages of each query."""
    short = first(run, AGREEING)
    found: dict[str, dict[str, int]] = {}
    for query, passage, rank in zip(
        short.question_R.tolist(), short.passage_R.tolist(), short.rank_R.tolist(), strict=True
    ):
        found.setdefault(str(query), {})[str(passage)] = -rank
    return found


def _agreement(grades: Qrels, run: Qrels, queries: int) -> np.ndarray:
    """Returns nDCG@10 of each query, [Q]."""
    values_QM = measure(run, [str(query) for query in range(queries)], grades, 1)
    return np.asarray(values_QM[:, MEASURES.index("nDCG@10")])


def mapped_run(queries_QE: np.ndarray, vectors_NE: np.ndarray, map_EE: np.ndarray, normalise: bool, depth: int) -> Run:
    """Returns the exact lists of the adapted model. Memory: one block of passages."""
    mapped_QE = apply_map(map_EE, queries_QE, normalise)
    parts = []
    for start in range(0, len(vectors_NE), BLOCK):
        block_BE = apply_map(map_EE, np.asarray(vectors_NE[start : start + BLOCK]), normalise)
        longest = float(np.linalg.norm(block_BE.astype(np.float64), axis=1).max())
        rows_QK, scores_QK = exact_top_k(mapped_QE, block_BE, depth, longest)
        parts.append((rows_QK + start, scores_QK))
    return as_run(*_best(parts, depth))


def _best(parts: list[Found], depth: int) -> Found:
    rows_QK, scores_QK = (np.concatenate(arrays, axis=1) for arrays in zip(*parts, strict=True))
    return best_k(rows_QK, scores_QK, depth)
