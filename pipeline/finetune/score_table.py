"""A cross-encoder's scores, looked up by question and passage."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pipeline.data.judged import index_pairs
from pipeline.data.stored import read_table

NO_PAIR = np.iinfo(np.int64).max


class Scores(NamedTuple):
    """Logits of S pairs in the order of their keys, then a NaN for every other pair."""

    key_S: np.ndarray
    """Number of the question << 32 | number of the passage, ascending, NO_PAIR last. int64."""
    score_S: np.ndarray
    """float32."""


def read_scores(path: Path, query_ids: pa.ChunkedArray, passage_ids: pa.ChunkedArray) -> Scores:
    """Reads a scores.parquet, keyed by places in `query_ids` and `passage_ids`; leaves out pairs of other ids."""
    table = read_table(path, columns=["query_id", "passage_id", "score"])
    query_M, passage_M = index_pairs(table, query_ids, passage_ids)
    known_M = (query_M >= 0) & (passage_M >= 0)
    key_S, score_S = keys(query_M[known_M], passage_M[known_M]), table["score"].to_numpy()[known_M]
    order_S = np.argsort(key_S, kind="stable")
    return Scores(np.append(key_S[order_S], NO_PAIR), np.append(score_S[order_S], np.float32("nan")))


def find(scores: Scores, query_N: np.ndarray, passage_N: np.ndarray) -> np.ndarray:
    """Returns the scores of pairs, float32 [N]; NaN for a pair without a score."""
    key_N = keys(query_N, passage_N)
    place_N = np.searchsorted(scores.key_S, key_N)
    return np.where(scores.key_S[place_N] == key_N, scores.score_S[place_N], np.float32("nan"))


def keys(query_N: np.ndarray, passage_N: np.ndarray) -> np.ndarray:
    return query_N.astype(np.int64) << 32 | passage_N
