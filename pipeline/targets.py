"""Soft targets: what a cross-encoder says of each question's own passages (coCondenser, section 5.1).

Shapes: S scored pairs, Q questions, N passages of each.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq

from pipeline.errors import InputError
from pipeline.pools import Lists, Pools, positions, read_judged


class Scores(NamedTuple):
    """A teacher's logits, in the order of their pairs."""

    key_S: np.ndarray
    """Row of the question << 32 | row of the passage, ascending. int64."""
    score_S: np.ndarray
    """float32."""


def read_scores(path: Path, collection: Path, pools: Pools) -> Scores:
    """The scores of `pools`' pairs from a scores.parquet. InputError where one has none."""
    known = read_judged(collection, "train")
    table = pq.read_table(path, columns=["query_id", "passage_id", "score"])
    places, passages = positions(table, known.query_ids, known.passage_ids)
    inside = (places >= 0) & (passages >= 0)
    key_S = known.queries[places[inside]] << 32 | passages[inside].astype(np.int64)
    by = np.argsort(key_S, kind="stable")
    scores = Scores(key_S[by], table["score"].to_numpy()[inside][by].astype(np.float32))
    lacking = sum(
        int((~np.isin(pairs(pools, lists), scores.key_S)).sum()) for lists in (pools.judged, *pools.negatives)
    )
    if lacking:
        raise InputError(
            f"{path}: no score of {lacking:,} pairs of a training question and one of its passages: the scores are of "
            "other negatives (is scores.negative_depth below negative_depth?)"
        )
    return scores


def pairs(pools: Pools, lists: Lists) -> np.ndarray:
    """Keys of every question and passage of `lists`."""
    return pools.queries.repeat(lists.lengths) << 32 | lists.flat.astype(np.int64)


def targets(scores: Scores, queries_Q: np.ndarray, passages_QN: np.ndarray, temperature: float) -> np.ndarray:
    """Softmax of the teacher's scores over each question's own passages, float32 [Q, N].

    Passages without a score, drawn from the whole collection to fill a pool, get 0.
    """
    key_QN = queries_Q[:, None].astype(np.int64) << 32 | passages_QN
    place_QN = np.minimum(np.searchsorted(scores.key_S, key_QN), len(scores.key_S) - 1)
    known_QN = scores.key_S[place_QN] == key_QN
    logit_QN = np.where(known_QN, scores.score_S[place_QN] / temperature, -np.inf)
    weight_QN = np.exp(logit_QN - logit_QN.max(1, keepdims=True))
    return (weight_QN / weight_QN.sum(1, keepdims=True)).astype(np.float32)
