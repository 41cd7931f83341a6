"""Runs: ranked lists of passages. They are sorted by descending score, then by passage order or the order of the run
file; ranks count from 1 without gaps.

Scores are float64, because scores of other systems may differ in any digit. They are never changed: a fusion treats
equal scores equally.

Suffixes: R rows of a run (question by question, best first).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.data.documents import best_rows, document_id
from pipeline.data.parquet import parquet_writer
from pipeline.data.stored import read_table
from pipeline.errors import InputError

SCHEMA = pa.schema(
    [
        ("split", pa.string()),
        ("query_id", pa.string()),
        ("passage_id", pa.string()),
        ("rank", pa.int32()),
        ("score", pa.float64()),  # float32 in older artifacts
    ]
)
NEGATIVES = pa.schema(
    [
        ("query_id", pa.string()),
        ("passage_id", pa.string()),
        ("source", pa.string()),
        ("rank", pa.int32()),
        ("score", pa.float32()),
    ]
)
"""Passages of a run that may be negatives of their questions, with their ranks in the run."""
TREC_SPLITS = ("dev", "test")
TAG = "cocondenser"
GREATEST = float(np.finfo(np.float32).max)
"""Largest absolute score that is written."""
ROWS = 1 << 16
"""Rows that the writer buffers."""

Write = Callable[[str, Sequence[str], Sequence[str], np.ndarray], None]


@dataclass(frozen=True)
class Run:
    """A run of one split, as numbers: all rows of a question together, best first."""

    question_R: np.ndarray
    """Index of the row's question in the caller's list of questions. int64."""
    passage_R: np.ndarray
    """Row number of the passage in the collection. int64."""
    score_R: np.ndarray
    """float64."""

    @property
    def rank_R(self) -> np.ndarray:
        return ranks(self.question_R)

    def rows(self, chosen_R: np.ndarray | slice) -> "Run":
        """Returns some of the rows, by a mask (bool [R]), by their places, or by a slice."""
        return Run(self.question_R[chosen_R], self.passage_R[chosen_R], self.score_R[chosen_R])


def row_order(question_R: np.ndarray, tie_R: np.ndarray, score_R: np.ndarray) -> np.ndarray:
    """Returns the permutation that sorts rows by question, then descending score, then `tie_R`."""
    return np.lexsort((tie_R, -score_R, question_R))


def in_order(question_R: np.ndarray, tie_R: np.ndarray, score_R: np.ndarray) -> bool:
    """Returns whether rows are already in the order of `row_order`, as in most runs. Much cheaper than sorting."""
    question, tie, score = (column[1:] - column[:-1] for column in (question_R, tie_R, score_R))
    return bool(np.all((question > 0) | ((question == 0) & ((score < 0) | ((score == 0) & (tie > 0))))))


def ranks(question_R: np.ndarray) -> np.ndarray:
    """Returns 1, 2, ... within each stretch of equal values. int32."""
    if len(question_R) == 0:
        return np.zeros(0, np.int32)
    start_Q = np.flatnonzero(np.r_[True, question_R[1:] != question_R[:-1]])
    length_Q = np.diff(np.r_[start_Q, len(question_R)])
    return (np.arange(len(question_R)) - np.repeat(start_Q, length_Q) + 1).astype(np.int32)


def ranked(question_R: np.ndarray, passage_R: np.ndarray, score_R: np.ndarray, tie_R: np.ndarray | None = None) -> Run:
    """Returns a run from rows in any order. Equal scores are sorted by `tie_R`, such as their ranks in a file; without
    it, by passage order.
    """
    run = Run(question_R.astype(np.int64), passage_R.astype(np.int64), score_R.astype(np.float64))
    keys = run.question_R, run.passage_R if tie_R is None else tie_R, run.score_R
    if in_order(*keys):
        return run
    return run.rows(row_order(*keys))


@contextmanager
def writer(folder: Path, cut: bool = False) -> Iterator[Write]:
    """Writes `run.parquet` and `run.trec` (dev and test only) in pieces.

    `cut`: the passages are pieces of documents, which run.trec then ranks, as the judgements name them.

    `with writer(out) as write: write(split, query_ids_R, passage_ids_R, scores_R)`. All rows of a question are in one
    call, best first (see `row_order`).
    """
    pending: list[pa.Table] = []
    with (
        parquet_writer(folder / "run.parquet", SCHEMA, compression="zstd") as table,
        (folder / "run.trec").open("w", encoding="utf-8", newline="\n") as trec,
    ):

        def flush() -> None:
            if pending:
                table.write_table(pa.concat_tables(pending).combine_chunks())
                pending.clear()

        def write(split: str, query_ids_R: Sequence[str], passage_ids_R: Sequence[str], scores_R: np.ndarray) -> None:
            query_R = pa.array(query_ids_R, pa.string())
            score_R = np.asarray(scores_R, np.float64)
            rank_R = ranks(query_R.dictionary_encode().indices.to_numpy())
            follows_R = rank_R[1:] > 1
            if not (np.abs(score_R) <= GREATEST).all() or (score_R[1:] > score_R[:-1])[follows_R].any():
                raise ValueError("a run's scores must be finite 32-bit numbers and descend within a question")
            columns = [pa.repeat(split, len(query_R)), query_R, pa.array(passage_ids_R, pa.string()), rank_R, score_R]
            rows = pa.table(columns, schema=SCHEMA)
            if len(rows) == 0:
                return
            if split in TREC_SPLITS:
                trec.write(trec_lines(_of_documents(rows) if cut else rows))
            pending.append(rows)
            if sum(map(len, pending)) >= ROWS:
                flush()

        yield write
        flush()


def _of_documents(rows: pa.Table) -> pa.Table:
    """Returns the rows of each question's documents, each with the score of its best passage."""
    documents = pa.array(map(document_id, rows["passage_id"].to_pylist()), pa.string())
    question_R = np.cumsum(rows["rank"].to_numpy() == 1)
    best_R = best_rows(question_R, documents.dictionary_encode().indices.to_numpy())
    named = rows.set_column(rows.schema.get_field_index("passage_id"), "passage_id", documents).take(best_R)
    return named.set_column(rows.schema.get_field_index("rank"), "rank", pa.array(ranks(question_R[best_R])))


def trec_lines(rows: pa.Table) -> str:
    """Returns rows of a run as lines of a TREC run.

    trec_eval reads only the scores, older versions as 32-bit floats, and breaks ties by passage id. Scores that are
    equal as 32-bit floats are lowered until they differ, in the order of the ranks; all others are written in full.
    White space in ids is percent-encoded.
    """
    score_R = distinct_scores(np.cumsum(rows["rank"].to_numpy() == 1), rows["score"].to_numpy(), np.float32)
    numbers = rows["rank"].cast(pa.string()), pa.array(score_R).cast(pa.string())
    ids = trec_ids(rows["query_id"]), trec_ids(rows["passage_id"])
    return "\n".join(pc.binary_join_element_wise(ids[0], "Q0", ids[1], *numbers, TAG, " ").to_pylist()) + "\n"


def distinct_scores(question_R: np.ndarray, score_R: np.ndarray, kind: type[np.floating]) -> np.ndarray:
    """Returns scores that strictly descend within a question, also when rounded to `kind`. Rows are best first.

    A score is unchanged if it is below the previous one in `kind`; otherwise it becomes the next lower number.
    """
    step_R = _steps(score_R.astype(kind))
    tied_R = (question_R[1:] == question_R[:-1]) & (step_R[1:] >= step_R[:-1])
    distinct_R = score_R.astype(np.float64)
    for question in np.unique(question_R[1:][tied_R]):
        part = slice(*np.searchsorted(question_R, [question, question + 1]))
        place = np.arange(part.stop - part.start)
        lower = np.minimum.accumulate(step_R[part] + place) - place
        distinct_R[part] = np.where(lower < step_R[part], _numbers(lower, kind), distinct_R[part])
    return distinct_R


def _steps(score_R: np.ndarray) -> np.ndarray:
    """Returns each float's distance from 0 in floats, int64: 0 for -0 and 0, 1 for the next float above, -1 below."""
    bits_R = score_R.view(f"i{score_R.itemsize}")
    return np.where(bits_R < 0, -(bits_R & np.iinfo(bits_R.dtype).max).astype(np.int64), bits_R)


def _numbers(step_R: np.ndarray, kind: type[np.floating]) -> np.ndarray:
    """Returns the floats at these distances from 0: the inverse of `_steps`."""
    size = np.dtype(kind).itemsize
    size_R = np.abs(step_R).astype(f"i{size}").view(kind)
    return np.where(step_R < 0, -size_R, size_R)


def trec_ids(ids_R: pa.ChunkedArray) -> pa.Array:
    """Returns ids as fields of a TREC file: white space is percent-encoded."""
    encoded = ids_R.combine_chunks().dictionary_encode()
    names = ["".join(quote(c) if c.isspace() else c for c in name) for name in encoded.dictionary.to_pylist()]
    return pa.array(names, pa.string()).take(encoded.indices)


def read_run(folder: Path, split: str, query_ids: pa.Array, passage_ids: pa.Array) -> Run | None:
    """Reads the run of `split` in `folder` for the questions in `query_ids`. None: the run has no row of this split.

    `passage_ids`: those of the collection, in passage order. Rows are sorted by score, then rank, then passage order.
    Raises InputError for NaN scores, unknown passages, and a passage that appears twice under a question.
    """
    path = folder / "run.parquet"
    rows = read_table(path, columns=["query_id", "passage_id", "rank", "score"], filters=[("split", "=", split)])
    if len(rows) == 0:
        return None
    rows = rows.append_column("question", pc.index_in(rows["query_id"], value_set=query_ids))
    rows = rows.filter(pc.is_valid(rows["question"]))
    score_R = rows["score"].to_numpy().astype(np.float64)
    if np.isnan(score_R).any():
        query_id = rows["query_id"][int(np.flatnonzero(np.isnan(score_R))[0])]
        raise InputError(f"{path}: split {split}, query {query_id}: score is NaN")
    index_R = pc.index_in(rows["passage_id"], value_set=passage_ids)
    if index_R.null_count:
        raise InputError(
            f"{path}: passage {rows['passage_id'].filter(pc.is_null(index_R))[0]} is not in the collection"
        )
    passage_R = index_R.to_numpy().astype(np.int64)
    tie_R = rows["rank"].to_numpy().astype(np.int64) * len(passage_ids) + passage_R
    run = ranked(rows["question"].to_numpy(), passage_R, score_R, tie_R)
    twice = first_repeated(run.question_R, run.passage_R)
    if twice is not None:
        raise InputError(f"{path}: query {query_ids[int(run.question_R[twice])]} lists a passage twice")
    return run


def first_repeated(question_R: np.ndarray, passage_R: np.ndarray) -> int | None:
    """Returns the first row that repeats the question and passage of an earlier row, or None; rows in any order."""
    pair_R = question_R.astype(np.int64) * (int(passage_R.max(initial=0)) + 1) + passage_R
    by = np.argsort(pair_R, kind="stable")
    twice = by[1:][pair_R[by[1:]] == pair_R[by[:-1]]]
    return int(twice.min()) if len(twice) else None


LARGEST = 1e38
"""Largest absolute score that is read: between it and GREATEST there are floats to make thousands of equal scores
distinct."""
