"""Positives of questions whose judgements name documents: of each relevant document one passage.

Shapes: J pairs of a question and a passage of a relevant document.
"""

from pathlib import Path

import numpy as np

from pipeline.data.barred import pair_keys
from pipeline.data.documents import are_cut, best_rows, read_documents
from pipeline.data.judged import Judged, PassageLists, index_pairs
from pipeline.data.stored import read_table

UNRANKED = np.iinfo(np.int32).max


def best_positives(known: Judged, collection: Path, bm25: Path) -> PassageLists:
    """Returns each question's positives, in the order of qrels.parquet.

    Of a relevant document that was cut it is the passage that the run in `bm25` ranks best for the question, or the
    first one if that run ranks none: a document is relevant although most of its passages may say nothing about the
    question. Without documents that are cut, these are all judged passages.
    """
    if not are_cut(collection):
        return known.lists
    documents = read_documents(collection, known.passage_ids)
    question_J, passage_J = np.arange(len(known.lists)).repeat(known.lists.lengths), known.lists.flat
    document_J = documents.of_P[passage_J]
    rank_J = _ranks(bm25 / "run.parquet", known, question_J, passage_J)
    order_J = np.lexsort((passage_J, rank_J, question_J))
    best_J = np.sort(order_J[best_rows(question_J[order_J], document_J[order_J])])
    offsets = np.searchsorted(question_J[best_J], np.arange(len(known.lists) + 1))
    return PassageLists(passage_J[best_J], offsets)


def _ranks(path: Path, known: Judged, question_J: np.ndarray, passage_J: np.ndarray) -> np.ndarray:
    """Returns the rank of each pair in a run; UNRANKED if it is not in it. int32 [J]."""
    table = read_table(path, columns=["query_id", "passage_id", "rank"])
    question_R, passage_R = index_pairs(table, known.query_ids, known.passage_ids)
    known_R = (question_R >= 0) & (passage_R >= 0)
    key_R, rank_R = pair_keys(question_R[known_R], passage_R[known_R]), table["rank"].to_numpy()[known_R]
    order_R = np.argsort(key_R)
    key_R, rank_R = np.append(key_R[order_R], np.iinfo(np.int64).max), np.append(rank_R[order_R], UNRANKED)
    key_J = pair_keys(question_J, passage_J)
    at_J = np.searchsorted(key_R, key_J)
    return np.where(key_R[at_J] == key_J, rank_R[at_J], UNRANKED)
