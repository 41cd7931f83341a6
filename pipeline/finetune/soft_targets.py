"""Soft targets: a cross-encoder's scores of each question's own passages (coCondenser, section 5.1).

Shapes: Q questions, N passages of each.
"""

from pathlib import Path

import numpy as np

from pipeline.data.stored import read_table
from pipeline.errors import InputError
from pipeline.finetune.pools import Pools
from pipeline.finetune.score_table import Scores, find, read_scores


def teacher_scores(path: Path, collection: Path, pools: Pools) -> Scores:
    """Reads the scores of the pairs in `pools`, by rows of the collection. Raises InputError if one is missing."""
    query_ids = read_table(collection / "queries.parquet", columns=["query_id"]).column(0)
    passage_ids = read_table(collection / "passages.parquet", columns=["passage_id"]).column(0)
    scores = read_scores(path, query_ids, passage_ids)
    lacking = 0
    for lists in (pools.judged, *pools.negatives):
        lacking += int(np.isnan(find(scores, pools.queries.repeat(lists.lengths), lists.flat)).sum())
    if lacking:
        raise InputError(
            f"{path}: no score of {lacking:,} pairs of a training question and one of its passages: the scores are for "
            "other negatives (is soft_labels.negative_depth below negative_depth?)"
        )
    return scores


def targets(scores: Scores, queries_Q: np.ndarray, passages_QN: np.ndarray, temperature: float) -> np.ndarray:
    """Returns the softmax of the teacher's scores over each question's own passages, float32 [Q, N].

    Passages without a score, drawn from the full collection to fill a pool, get 0.
    """
    logit_QN = find(scores, queries_Q[:, None], passages_QN) / temperature
    logit_QN = np.where(np.isnan(logit_QN), -np.inf, logit_QN)
    weight_QN = np.exp(logit_QN - logit_QN.max(1, keepdims=True))
    return (weight_QN / weight_QN.sum(1, keepdims=True)).astype(np.float32)
