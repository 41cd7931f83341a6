"""Soft labels: a teacher's scores of pairs, looked up by question and passage."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pipeline.data.judged import index_pairs
from pipeline.data.parquet import parquet_writer
from pipeline.data.stored import read_table

NO_PAIR = np.iinfo(np.int64).max
ROWS = 1 << 20
"""Rows that are written at a time."""


class Scores(NamedTuple):
    """Scores of S pairs in the order of their keys, then a NaN for every other pair."""

    key_S: np.ndarray
    """Number of the question << 32 | number of the passage, ascending, NO_PAIR last. int64."""
    score_S: np.ndarray
    """float32 if they were read from a file."""


def read_scores(path: Path, query_ids: pa.ChunkedArray, passage_ids: pa.ChunkedArray) -> Scores:
    """Reads a scores.parquet, keyed by places in `query_ids` and `passage_ids`; leaves out pairs of other ids."""
    table = read_table(path, columns=["query_id", "passage_id", "score"])
    query_M, passage_M = index_pairs(table, query_ids, passage_ids)
    known_M = (query_M >= 0) & (passage_M >= 0)
    return by_pair(query_M[known_M], passage_M[known_M], table["score"].to_numpy()[known_M])


def by_pair(query_M: np.ndarray, passage_M: np.ndarray, score_M: np.ndarray) -> Scores:
    """Returns the scores of pairs in any order."""
    key_S = keys(query_M, passage_M)
    order_S = np.argsort(key_S, kind="stable")
    return Scores(np.append(key_S[order_S], NO_PAIR), np.append(score_M[order_S], np.float32("nan")))


def find(scores: Scores, query_N: np.ndarray, passage_N: np.ndarray) -> np.ndarray:
    """Returns the scores of pairs, [N] of the table's type; NaN for a pair without a score."""
    key_N = keys(query_N, passage_N)
    place_N = np.searchsorted(scores.key_S, key_N)
    return np.where(scores.key_S[place_N] == key_N, scores.score_S[place_N], np.float32("nan"))


def keys(query_N: np.ndarray, passage_N: np.ndarray) -> np.ndarray:
    return query_N.astype(np.int64) << 32 | passage_N


def write_scores(path: Path, collection: Path, query_N: np.ndarray, passage_N: np.ndarray, score_N: np.ndarray) -> None:
    """Writes a scores.parquet (query_id, passage_id, score) of rows of queries.parquet and passages.parquet.

    `score_N`: float32.
    """
    query_ids = read_table(collection / "queries.parquet", columns=["query_id"]).column(0)
    passage_ids = read_table(collection / "passages.parquet", columns=["passage_id"]).column(0)
    schema = pa.schema([("query_id", pa.string()), ("passage_id", pa.string()), ("score", pa.float32())])
    with parquet_writer(path, schema, compression="zstd", use_dictionary=["query_id"]) as writer:
        for start in range(0, len(query_N), ROWS):
            part = slice(start, start + ROWS)
            ids = [query_ids.take(pa.array(query_N[part])), passage_ids.take(pa.array(passage_N[part]))]
            writer.write_table(pa.table([*ids, pa.array(score_N[part])], schema=schema))
