"""Measures of ir-measures, each from one provider, with one rule for ties.

The providers break ties in opposite ways, so they get scores without ties: a passage's score here is minus its rank.
Also nb-recall n@k, from the Condenser paper's analysis of hard negatives: how many of a later retriever's neighbours an
earlier one finds.

Legend of suffixes: R rows of a run, H passages that both runs list.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import islice, pairwise
from typing import Any

import ir_measures
import numpy as np
import pyarrow as pa
from ir_measures import AP, RR, R, Success, nDCG

from pipeline.data.qrels import Qrels
from pipeline.data.runs import Run
from pipeline.evaluate.significance.bootstrap import rounded

Providers = Sequence[tuple[Any, int | None, Mapping[str, ir_measures.Measure]]]
PROVIDERS: Providers = (
    (ir_measures.msmarco, 100, {"RR@10": RR @ 10, "RR@100": RR @ 100}),
    (
        ir_measures.pytrec_eval,
        None,
        {
            "nDCG@10": nDCG @ 10,
            "R@20": R @ 20,
            "R@50": R @ 50,
            "R@100": R @ 100,
            "R@1000": R @ 1000,
            "AP": AP,
            "Success@5": Success @ 5,
            "Success@20": Success @ 20,
            "Success@100": Success @ 100,
        },
    ),
)
"""(provider, deepest rank that its measures use, measures by name)."""
MEASURES = tuple(name for _, _, measures in PROVIDERS for name in measures)
HIT_PROVIDERS: Providers = (
    (ir_measures.pytrec_eval, 100, {"hits@5": Success @ 5, "hits@20": Success @ 20, "hits@100": Success @ 100}),
)
"""Measures of judgements that are derived from answers."""
HITS = tuple(name for _, _, measures in HIT_PROVIDERS for name in measures)


def measure_name(name: str) -> str:
    """Returns the measure's name here: `RR@10` also for `MRR@10`, its mean. Raises ValueError for an unknown one."""
    own = re.sub(r"^MRR(?=@)", "RR", name)
    if own not in (*MEASURES, *HITS):
        raise ValueError(f"unknown measure; known are {', '.join((*MEASURES, *HITS))}")
    return own


def as_ranks(run: Run, query_ids: pa.Array, passage_ids: pa.Array) -> dict[str, dict[str, int]]:
    """Returns {query_id: {passage_id: -rank}}, best first."""
    ids_R = passage_ids.take(pa.array(run.passage_R)).to_pylist()
    score_R = (-run.rank_R).tolist()
    question_Q, start_Q = np.unique(run.question_R, return_index=True)
    end_Q = np.r_[start_Q, len(ids_R)][1:].astype(int)
    return {
        query_ids[q].as_py(): dict(zip(ids_R[start:end], score_R[start:end], strict=True))
        for q, start, end in zip(question_Q.tolist(), start_Q.tolist(), end_Q.tolist(), strict=True)
    }


def measure(
    run: Qrels, query_ids: Sequence[str], qrels: Qrels, relevance: int, providers: Providers = PROVIDERS
) -> np.ndarray:
    """Returns all measures of all questions, float64 [questions, measures]; a question without results counts as 0.

    `run` is {query_id: {passage_id: -rank}}, best first. In binary measures judgements of at least `relevance` are
    relevant, nDCG uses grades. `providers`: PROVIDERS for the columns MEASURES, HIT_PROVIDERS for HITS.
    """
    place = {query_id: n for n, query_id in enumerate(query_ids)}
    names = [name for _, _, measures in providers for name in measures]
    values_QM = np.zeros((len(query_ids), len(names)))
    for provider, depth, measures in providers:
        top = {query_id: dict(islice(ranked.items(), depth)) for query_id, ranked in run.items()} if depth else run
        column = {at_level(m, relevance): names.index(name) for name, m in measures.items()}
        for metric in provider.iter_calc(list(column), qrels, top):
            if metric.query_id in place:
                values_QM[place[metric.query_id], column[metric.measure]] = metric.value
    return values_QM


def at_level(measure: ir_measures.Measure, relevance: int) -> ir_measures.Measure:
    """Returns the measure with its smallest relevant judgement. nDCG has none."""
    return measure if measure.NAME == "nDCG" else measure(rel=relevance)


NB_RECALL_DEPTHS = (50, 100, 200, 500, 1000)
"""Ranks k of the earlier run."""


def shared_passages(earlier: Run, later: Run, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
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


def nb_recall(runs: Mapping[str, Run], questions: int, ns: Sequence[int]) -> list[dict[str, Any]]:
    """Returns {earlier, later, n, questions, k, recall} of each run and the next one, for each n: nb-recall n@k,
    |first k of `earlier` ∩ first n of `later`| / n, averaged over the questions, at each k of NB_RECALL_DEPTHS up
    to the depth of the earlier run.

    A question that is missing in either run counts as 0, and a later list with fewer than n passages is still divided
    by n. There is no row if the later run is shorter than n, or the earlier one shorter than all of NB_RECALL_DEPTHS.
    """
    rows: list[dict[str, Any]] = []
    for (before, earlier), (after, later) in pairwise(runs.items()):
        ks = [k for k in NB_RECALL_DEPTHS if k <= earlier.rank_R.max(initial=0)]
        fitting = [n for n in ns if n <= later.rank_R.max(initial=0)]
        if not ks or not fitting:
            continue
        _, earlier_H, later_H = shared_passages(earlier, later, max(fitting))
        for n in fitting:
            recall = [rounded(((earlier_H <= k) & (later_H <= n)).sum() / n / questions) for k in ks]
            rows.append({"earlier": before, "later": after, "n": n, "questions": questions, "k": ks, "recall": recall})
    return rows
