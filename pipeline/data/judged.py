"""The judged questions of a split and their passages, as row numbers.

Questions are rows of queries.parquet, passages rows of passages.parquet.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.data.collection import unknown_question
from pipeline.data.documents import read_documents
from pipeline.data.stored import read_table
from pipeline.errors import InputError


@dataclass(frozen=True)
class PassageLists:
    """n lists of passages in one flat array."""

    flat: np.ndarray
    """[total] int32."""
    offsets: np.ndarray
    """[n + 1] int64."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: int) -> np.ndarray:
        return self.flat[self.offsets[i] : self.offsets[i + 1]]

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.offsets)


@dataclass(frozen=True)
class Judged:
    """n questions of a split, with the ids of questions and passages."""

    queries: np.ndarray
    """[n] int64, ascending."""
    lists: PassageLists
    """All judged passages of each, in the order of qrels.parquet. Of a judged document that was cut these are all its
    passages, of which one is trained on (finetune/positives.py)."""
    query_ids: pa.ChunkedArray
    """Ids of the n questions."""
    passage_ids: pa.ChunkedArray
    """Ids of all passages."""
    all_barred_n: np.ndarray | None = None
    """Number of barred passages of each question (pipeline/data/barred.py), if known."""

    @property
    def barred_n(self) -> np.ndarray:
        """Number of barred passages of each question; if unknown, that of judged ones as a lower bound."""
        return self.lists.lengths if self.all_barred_n is None else self.all_barred_n


def read_questions(collection: Path, split: str, more: Path | None = None) -> Judged:
    """Reads all questions of `split`, judged or not. `more`: a further qrels.parquet, of passages (pseudo-labels).

    Unknown passages are left out. Raises InputError for an unknown question.
    """
    passage_ids = read_table(collection / "passages.parquet", columns=["passage_id"]).column(0)
    table = read_table(collection / "queries.parquet", columns=["query_id", "split"])
    rows = np.flatnonzero(pc.equal(table["split"], split).to_numpy())
    query_ids = table["query_id"].take(pa.array(rows))
    documents = read_documents(collection, passage_ids)
    pairs = [documents.passages(*_judged(collection / "qrels.parquet", split, query_ids, documents.ids))]
    if more is not None:
        pairs.append(_judged(more, split, query_ids, passage_ids))
    questions, passages = (np.concatenate(column) for column in zip(*pairs, strict=True))
    return Judged(rows.astype(np.int64), _lists(questions, passages, len(rows)), query_ids, passage_ids)


def _judged(
    path: Path, split: str, query_ids: pa.ChunkedArray, judged_ids: pa.ChunkedArray | pa.Array
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the `index_pairs` of a table's relevant judgements. Raises InputError for an unknown question."""
    table = read_table(path, filters=[("split", "=", split), ("relevance", ">", 0)])
    unknown = table.filter(pc.invert(pc.is_in(table["query_id"], value_set=query_ids.combine_chunks())))
    if len(unknown):
        raise unknown_question(path, unknown["query_id"][0].as_py())
    return index_pairs(table, query_ids, judged_ids)


def read_judged(collection: Path, split: str, more: Path | None = None) -> Judged:
    """Reads the questions of `split` with a judged passage (see `read_questions`). Raises InputError without any."""
    known = read_questions(collection, split, more)
    chosen = np.flatnonzero(known.lists.lengths)
    if not len(chosen):
        name = "training" if split == "train" else split
        raise InputError(f"{collection / 'qrels.parquet'}: no {name} question has a judged passage")
    return take(known, chosen)


def index_pairs(
    table: pa.Table, query_ids: pa.ChunkedArray | pa.Array, passage_ids: pa.ChunkedArray | pa.Array
) -> tuple[np.ndarray, np.ndarray]:
    """Returns (index in `query_ids`, index in `passage_ids`) of each row of a table, int32 [N]; -1: unknown."""
    queries = pc.fill_null(pc.index_in(table["query_id"], value_set=query_ids), -1)
    passages = pc.fill_null(pc.index_in(table["passage_id"], value_set=passage_ids), -1)
    return queries.to_numpy(), passages.to_numpy()


def _lists(queries: np.ndarray, passages: np.ndarray, n: int) -> PassageLists:
    """Groups pairs by question, in their order, without unknown ones and duplicates."""
    known = (queries >= 0) & (passages >= 0)
    queries, passages = queries[known].astype(np.int64), passages[known]
    first = np.sort(np.unique(queries << 32 | passages, return_index=True)[1])
    queries, passages = queries[first], passages[first]
    order = np.argsort(queries, kind="stable")
    offsets = np.concatenate(([0], np.cumsum(np.bincount(queries, minlength=n))))
    return PassageLists(passages[order].astype(np.int32), offsets)


def take(known: Judged, chosen: np.ndarray) -> Judged:
    """Returns the questions at the indices `chosen`."""
    query_ids = known.query_ids.take(pa.array(chosen))
    all_barred_n = None if known.all_barred_n is None else known.all_barred_n[chosen]
    return Judged(known.queries[chosen], take_lists(known.lists, chosen), query_ids, known.passage_ids, all_barred_n)


def judged_as(known: Judged, questions: np.ndarray, passages: np.ndarray) -> Judged:
    """Returns the same questions with these judged passages, in their order."""
    return replace(known, lists=_lists(questions, passages, len(known.queries)))


def take_lists(lists: PassageLists, chosen: np.ndarray) -> PassageLists:
    lengths = lists.lengths[chosen]
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    inside = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
    return PassageLists(lists.flat[np.repeat(lists.offsets[chosen], lengths) + inside], offsets)
