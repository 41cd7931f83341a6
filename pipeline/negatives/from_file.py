"""Negatives from a file instead of mined ones: DPR's released hard negatives, or any table."""

from array import array
from collections.abc import Iterable, Iterator
from itertools import islice, pairwise
from math import nan
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import field_validator

from pipeline.data.barred import Dropped, by_id, free
from pipeline.data.collection import ROWS, passage_batches, passage_id_array, train_positives
from pipeline.data.documents import are_cut, read_documents
from pipeline.data.ids import check_id, hash_id
from pipeline.data.parquet import parquet_file
from pipeline.data.readers import dpr
from pipeline.data.runs import LARGEST
from pipeline.data.stored import read_table
from pipeline.data.text import text_files
from pipeline.data.text.heading import NEGATIVES, column_positions
from pipeline.errors import InputError, reason
from pipeline.negatives.ranking import QuestionNegatives, Ranking, SamplingConfig, sample_places
from pipeline.negatives.write import write_negatives
from pipeline.notices import one_line
from pipeline.runtime.work import Metrics, Work

DPR, TABLES, PARQUET = ".json", (".tsv", ".jsonl"), ".parquet"
ADVANCED = "biencoder-nq-adv-hn-train.json"
COMMANDS = dpr.COMMANDS | {ADVANCED: [f"wget {dpr.OFFICIAL}/data/retriever/{ADVANCED}.gz"]}
COLUMNS = ("query_id", "passage_id", "score")
"""Columns of a table; the last one is optional."""
UNKNOWN_IDS = 0.01  # share of rows that may name unknown ids; more means that the files do not belong together
UNKNOWN_TEXTS = 0.5  # DPR's hard negatives have 69,639 questions, its training set has 58,880 (its issue 137)


class NegativesFileConfig(SamplingConfig):
    file: Path
    """Negatives of training questions. DPR's format (.json: a list of question, hard_negative_ctxs), or a table of
    query_id, passage_id and, if known, score (.tsv, .jsonl, .parquet). Text files plain or compressed."""

    @field_validator("file")
    @classmethod
    def _readable(cls, file: Path) -> Path:
        if not text_files.plain_name(file).endswith((DPR, *TABLES)) and file.suffix != PARQUET:
            raise ValueError(f"{file.name}: DPR's .json or a table in {', '.join((*TABLES, PARQUET))} expected")
        return file


class FileNegative(NamedTuple):
    """One negative as in the file."""

    place: str
    question: str
    """The question's id; in DPR's files its text."""
    passage_id: str
    score: float
    """NaN: no score."""


def missing(config: NegativesFileConfig) -> list[str]:
    """Returns lines about a missing file (with the download command) or a fault at its start. Quick."""
    read = dpr_rows if names_by_text(config.file) else table_negatives
    missing_files = text_files.missing([config.file], COMMANDS, folders=False)
    return missing_files or text_files.wrong_beginning("negatives_file.file", config.file, read)


def negatives_file(config: NegativesFileConfig, collection: Path, work: Work) -> Metrics:
    """Writes the file's negatives of training questions (see `write_negatives`), in the file's order.

    DPR's files name a question by its text, and the reader of DPR's questions creates ids; so texts are compared, and
    questions with equal texts get the same negatives. Passages that cannot be negatives (pipeline/data/barred.py) are
    dropped, and so are rows of other splits, of unknown ids (up to 1 % of the rows; by text up to half of the
    questions) and duplicates; all are counted.
    Memory: below 100 bytes per row of the file (12 until they are sorted), 16 bytes per passage of the collection,
    its passages' ids, and its questions' ids or texts.
    Raises InputError for a fault of the file, with its line, and if no question has a remaining negative.
    """
    import pyarrow as pa

    positives = train_positives(collection)
    query_ids, known = questions(collection, by_text=names_by_text(config.file))
    dropped = Dropped()
    dropped.counts.update(repeated=0, other_split=0, unknown=0)
    question_N, passage_N, score_N = numbered(config.file, known, collection, dropped, work)
    passage_ids, barred = passage_id_array(collection), by_id(collection)

    def chosen() -> Iterator[QuestionNegatives]:
        starts = np.flatnonzero(np.diff(question_N, prepend=-1)).tolist()
        for start, stop in pairwise([*starts, len(question_N)]):
            names = passage_ids.take(pa.array(passage_N[start:stop])).to_pylist()
            ranking = Ranking(query_ids[question_N[start]], names, score_N[start:stop])
            reason_N = barred.of(ranking.query_id, names)
            dropped.count([ranking.query_id] * len(names), names, reason_N)
            pool = np.array(free(reason_N), dtype=np.int64)
            yield QuestionNegatives(ranking, sample_places(pool, config.number, config.seed, ranking.query_id))

    try:
        return write_negatives(
            chosen(), dropped, config, source="given", positives=positives, collection=collection, work=work
        )
    except InputError as error:
        raise InputError(f"{config.file}: {error}") from None


def names_by_text(path: Path) -> bool:
    """Whether the file has DPR's format, which names questions by their texts."""
    return text_files.plain_name(path).endswith(DPR)


def questions(collection: Path, by_text: bool) -> tuple[list[str], dict[str, tuple[int, ...]]]:
    """Returns (query ids of the collection, {name in the file: places of its training questions; () otherwise})."""
    table = read_table(collection / "queries.parquet", columns=["query_id", "split", "text"])
    query_ids, splits = table["query_id"].to_pylist(), table["split"].to_pylist()
    names = [text.strip() for text in table["text"].to_pylist()] if by_text else query_ids
    known: dict[str, tuple[int, ...]] = {}
    for i, (name, split) in enumerate(zip(names, splits, strict=True)):
        known[name] = (*known.get(name, ()), *([i] if split == "train" else []))
    return query_ids, known


def numbered(
    path: Path, known: dict[str, tuple[int, ...]], collection: Path, dropped: Dropped, work: Work
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns (place of the question, row of the passage, score) of each usable row, [N], grouped by question."""
    by_text = names_by_text(path)
    hashes, order = passage_order(collection)
    question_N, passage_N, score_N = array("i"), array("i"), array("f")
    total, of_known, unknown_questions, unknown_passages = 0, 0, UnknownNames("query"), UnknownNames("passage")
    stream = dpr_rows(path) if by_text else table_negatives(path)
    while group := list(islice(stream, ROWS)):
        for row, passage in zip(group, rows_of([r.passage_id for r in group], hashes, order), strict=True):
            total += 1
            questions_of_row = known.get(row.question)
            if questions_of_row is None:
                unknown_questions.add(row.place, row.question)
                dropped.add("unknown", 1, [(row.question, row.passage_id)])
                continue
            of_known += 1
            if passage < 0:
                unknown_passages.add(row.place, row.passage_id)
                dropped.add("unknown", 1, [(row.question, row.passage_id)])
            elif not questions_of_row:
                dropped.add("other_split", 1, [(row.question, row.passage_id)])
            for question in questions_of_row if passage >= 0 else ():
                question_N.append(question)
                passage_N.append(int(passage))
                score_N.append(row.score)
        work.progress(total, None, "rows")
    if not total:
        raise InputError(f"{path}: no row")
    unknown_questions.check(total, UNKNOWN_TEXTS if by_text else UNKNOWN_IDS)
    unknown_passages.check(of_known, UNKNOWN_IDS)
    columns = [np.asarray(column) for column in (question_N, passage_N, score_N)]
    first = np.sort(np.unique(columns[0].astype(np.int64) << 32 | columns[1], return_index=True)[1])
    dropped.add("repeated", len(question_N) - len(first))
    by_question = first[np.argsort(columns[0][first], kind="stable")]
    return columns[0][by_question], columns[1][by_question], columns[2][by_question]


class UnknownNames:
    """Counts names that the collection does not have, and keeps the place of the first."""

    def __init__(self, kind: str) -> None:
        self.kind, self.count, self.first = kind, 0, ""

    def add(self, place: str, name: str) -> None:
        self.count += 1
        self.first = self.first or f"{place}: unknown {self.kind} '{one_line(name)}'"

    def check(self, total: int, share: float) -> None:
        """Raises InputError if more than `share` of the `total` rows are unknown."""
        if self.count > share * total:
            raise InputError(f"{self.first} ({self.count:,} of {total:,} rows, more than {share:.0%})")


def passage_order(collection: Path) -> tuple[np.ndarray, np.ndarray]:
    """Returns (hashes of the P passage ids, ascending, uint64 [P]; the passages' rows in that order, int64 [P]).

    Where documents are cut, their ids are among them: a document stands for its first passage, as in ingest.
    """
    ids = (i for batch in passage_batches(collection, ["passage_id"]) for i in batch["passage_id"])
    hashes = np.fromiter(map(hash_id, ids), dtype=np.uint64)
    rows = np.arange(len(hashes))
    if are_cut(collection):
        documents = read_documents(collection, passage_id_array(collection))
        of_documents = np.fromiter(map(hash_id, documents.ids.to_pylist()), dtype=np.uint64)
        hashes, rows = np.append(hashes, of_documents), np.append(rows, documents.first_D[:-1])
    order = np.argsort(hashes)
    return hashes[order], rows[order]


def rows_of(ids: list[str], hashes: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Returns the passages' rows in the collection, -1 if unknown, int64 [N]; `hashes`, `order`: of `passage_order`."""
    hash_N = np.fromiter(map(hash_id, ids), dtype=np.uint64, count=len(ids))
    at = np.searchsorted(hashes, hash_N).clip(max=len(hashes) - 1)
    return np.where(hashes[at] == hash_N, order[at], -1)


def dpr_rows(path: Path) -> Iterator[FileNegative]:
    """Yields the `hard_negative_ctxs` of DPR's format; the field of their ids is `passage_id`, `psg_id` or `id`."""
    for place, record in text_files.json_list(path):
        question = text_files.text_of(place, record, "question").strip()
        for context in dpr.contexts(place, record, "hard_negative_ctxs"):
            key = next((k for k in ("passage_id", "psg_id") if k in context), "id")
            passage_id = text_files.text_of(place, context, key)
            check_id(place, "passage", passage_id)
            yield FileNegative(place, question, passage_id, score_of(place, context.get("score")))


def table_negatives(path: Path) -> Iterator[FileNegative]:
    """Yields rows of a table; the first line of a .tsv may name its columns."""
    if path.suffix == PARQUET:
        records: Iterable[tuple[str, dict[str, Any]]] = parquet_records(path)
    else:
        lines = text_files.plain_name(path).endswith(".jsonl")
        records = text_files.json_lines(path) if lines else tsv_records(path)
    for place, record in records:
        query_id, passage_id = (text_files.text_of(place, record, key) for key in ("query_id", "passage_id"))
        check_id(place, "query", query_id)
        check_id(place, "passage", passage_id)
        yield FileNegative(place, query_id, passage_id, score_of(place, record.get("score")))


def tsv_records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields (place, record) of each line. The score is optional, unless the header names it."""
    named: list[int] | None = None
    for n, (number, line) in enumerate(text_files.table_lines(path)):
        place, fields = f"{path}:{number}", line.split("\t")
        if len(fields) not in (2, 3) or (named and len(fields) != len(named)):
            raise InputError(f"{place}: {len(named) if named else '2 or 3'} columns expected, {len(fields)} found")
        if n == 0:
            named = column_positions(place, fields, NEGATIVES[: len(fields)])
            if named:
                continue
        in_order = [fields[i] for i in named] if named else fields
        yield place, dict(zip(COLUMNS[: len(fields)], in_order, strict=True))


def parquet_records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    import pyarrow as pa

    done = 0
    try:
        with parquet_file(path) as file:
            names = file.schema_arrow.names
            lacking = set(COLUMNS[:2]) - set(names)
            if lacking:
                raise InputError(f"{path}: no column {' and '.join(sorted(lacking))}; it has {', '.join(names)}")
            columns = [name for name in COLUMNS if name in names]
            for batch in file.iter_batches(batch_size=ROWS, columns=columns):
                for i, record in enumerate(batch.to_pylist(), done + 1):
                    yield f"{path}: row {i}", record
                done += len(batch)
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        after = f" after row {done}" if done else ""
        raise InputError(f"{path}: cannot be read{after}: {reason(error)}") from None


def score_of(place: str, value: Any) -> float:
    """Returns a number, also from a text as in DPR's files; NaN for None. Raises InputError."""
    if value is None:
        return nan
    try:
        score = float(value) if text_files.is_plain(str(value)) else nan
    except (TypeError, ValueError, OverflowError):
        score = nan
    if not -LARGEST <= score <= LARGEST:
        raise InputError(f"{place}: score '{one_line(str(value))}' is not a number from -{LARGEST:g} to {LARGEST:g}")
    return score
