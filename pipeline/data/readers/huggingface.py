"""Reads any dataset of the Hugging Face hub, streamed, or a local folder of its files."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, cast

from pydantic import Field, model_validator

from pipeline.config import Config
from pipeline.data.collection import Judgement, Passage, Query, Source
from pipeline.data.metadata import EXACT, Names, UntypedCell, demand
from pipeline.data.qrels import grade, require_rows
from pipeline.data.readers.cut_documents import cut_documents
from pipeline.data.readers.reader_config import ReaderConfig
from pipeline.data.readers.tables import KINDS, by_splits, separator_hint, table_rows
from pipeline.data.readers.unread import unread
from pipeline.data.text import text_files
from pipeline.errors import InputError
from pipeline.notices import Examples, keep, one_line
from pipeline.runtime import hub
from pipeline.runtime.work import Progress

if TYPE_CHECKING:
    from datasets import DatasetBuilder


class Table(Config):
    """One table of the hub, or the files of a local folder."""

    dataset: str | None
    """Id on the hub, such as `BeIR/scifact`."""
    revision: str
    """Branch, tag or commit of `dataset`. Only a commit pins the content."""
    folder: Path | None
    """Instead of `dataset`: a local folder of JSONL, CSV, TSV or Parquet files of one kind. Files that are not read are
    listed in a notice."""
    name: str | None
    """Configuration of the dataset, such as `corpus` or `20231101.en`; None: its only one."""
    split: str
    """Split of the dataset, such as `train`; except for Parquet also several, as in `train+test`, or `all`."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.dataset is None) == (self.folder is None):
            raise ValueError("set one of dataset and folder")
        return self


class HuggingFaceConfig(ReaderConfig):
    """Tables and the names of their columns. An empty column name: the table has none."""

    reader: Literal["huggingface"]
    """Selects this reader."""
    passages: Table
    """Passages, or documents that `passage_words` cuts."""
    id_column: str
    """Ids of passages; empty: the row number."""
    document_column: str
    """Ids of the passages' documents; empty: each row is a document."""
    title_column: str
    """Titles; empty: none."""
    text_column: str = Field(min_length=1)
    """Texts."""
    passage_words: int | None = Field(ge=1)
    """Rows are cut into passages of about this many words, signs included (as with the reader text), and judgements
    refer to rows; null: a row is a passage."""
    metadata: Names
    """Further columns to keep and filter by: text, numbers, booleans or dates. Empty: none."""
    queries: Table | None
    """Queries of all splits; None: a collection for pre-training only."""
    query_id_column: str
    """Ids of queries; empty: the row number."""
    query_text_column: str
    """Texts of queries."""
    answers_column: str
    """Lists of answer strings; empty: none."""
    train_qrels: Table | None
    """Judgements of the training queries."""
    dev_qrels: Table | None
    """Judgements of the dev queries."""
    test_qrels: Table | None
    """Judgements of the test queries."""
    qrels_query_column: str
    """Query ids of the judgements, such as `query-id`."""
    qrels_passage_column: str
    """Passage ids of the judgements, such as `corpus-id`."""
    qrels_relevance_column: str
    """Integer relevances, such as `score`; empty: each line is relevant."""


def missing(config: HuggingFaceConfig) -> list[str]:
    """Returns a line for each folder that does not exist and, if the hub does not answer quickly, for each of its
    datasets.
    """
    tables = {key: table for key, table in config if isinstance(table, Table)}
    folders = [table.folder for table in tables.values() if table.folder]
    lines = text_files.missing(folders, {})
    lines += [f"{path} is a file; a folder with the files of a table is expected" for path in folders if path.is_file()]
    remote = {key: table for key, table in tables.items() if table.dataset}
    if remote and not hub.reachable(0.5):
        lines += [
            f"dataset {table.dataset} is on the Hugging Face hub, which does not answer: on a machine that reaches it "
            f"run `hf download {table.dataset} --repo-type dataset --revision {table.revision} --local-dir DIR`, "
            f"then set ingest.{key}.dataset=null and ingest.{key}.folder to the folder of its files"
            for key, table in remote.items()
        ]
    return lines


def read(config: HuggingFaceConfig, progress: Progress) -> Source:
    """Reads the tables' rows, streamed. A query without judgements is left out and counted.

    So are files in the tables' folders that no table reads, including those of other splits.
    """
    tables = {"train": config.train_qrels, "dev": config.dev_qrels, "test": config.test_qrels}
    qrels = {split: table for split, table in tables.items() if table}
    queries = config.queries
    if (queries is None) != (not qrels):
        raise InputError("ingest.queries and ingest.train_qrels, dev_qrels or test_qrels: set both or neither")
    counts: Counter[str] = Counter()
    examples: Examples = {}

    def passages() -> Iterator[tuple[str, Passage]]:
        counts.pop("unread_files", None)
        examples.pop("unread_files", None)
        for name in _unread(config):
            counts["unread_files"] += 1
            keep(examples, "unread_files", name)
        yield from _passages(config)

    source = Source(
        passages=passages,
        queries=lambda: _queries(queries, config, qrels, counts, examples) if queries else iter(()),
        qrels=lambda: _qrels(config, qrels),
        counts=counts,
        examples=examples,
    )
    return cut_documents(source, config, judged=bool(qrels))


def _unread(config: HuggingFaceConfig) -> list[str]:
    """Returns the files in the tables' folders that no table reads, with a table of the folder and the split, if known.

    Raises InputError if a table cannot be read.
    """
    tables = {key: table for key, table in config if isinstance(table, Table) and table.folder}
    read: list[Path] = []
    split_of: dict[str, str] = {}
    for table in tables.values():
        with _input_errors(table):
            by_split, splits = by_splits(_builder(table), table.split)
        read += [Path(path) for split in splits for path in by_split.get(split, ())]
        split_of.update((os.path.realpath(path), split) for split, paths in by_split.items() for path in paths)
    found: dict[Path, str] = {}
    for key, table in tables.items():
        for name, path in unread(cast(Path, table.folder), read).items():
            split = split_of.get(str(path))
            found.setdefault(path, f"{name} ({key}{f', split {split}' if split else ''})")
    return [*found.values()]


def _rows(table: Table, exact: Sequence[str] = ()) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Yields (number from 0, place, row) of a table. Raises InputError if it cannot be read.

    `exact`: columns whose values must be those of the files; InputError if they may have been rounded.
    """
    source = str(table.folder or table.dataset)
    with _input_errors(table):
        builder = _builder(table)
        untyped = builder.info.builder_name in KINDS
        if untyped:
            placed = table_rows(builder, table.split)
        else:
            streamed = builder.as_streaming_dataset(table.split)
            placed = ((f"{source}, row {number}", row) for number, row in enumerate(streamed, 1))
        for number, (place, row) in enumerate(placed):
            for name in exact if untyped else ():
                _check_exact(place, name, row.get(name))
            yield number, place, row


def _builder(table: Table) -> "DatasetBuilder":
    from datasets import load_dataset_builder

    revision = table.revision if table.dataset else None
    return load_dataset_builder(str(table.folder or table.dataset), table.name, revision=revision)


@contextmanager
def _input_errors(table: Table) -> Iterator[None]:
    """Turns all errors of reading the table into InputError."""
    source = str(table.folder or table.dataset)
    try:
        yield
    except Exception as error:  # of the library, pyarrow, the hub's client or the system
        if isinstance(error, InputError) and str(error).startswith(source):
            raise
        raise InputError(
            f"{source} ({table.name or 'default'}, {table.split}): {' '.join(str(error).split())}"
        ) from error


def _text(place: str, row: dict[str, Any], column: str) -> str:
    """Returns the column's text; empty for a null. Raises InputError for an unknown column."""
    _check_column(place, row, column)
    return text_files.text_of(place, row, column, required=False)


def _check_column(place: str, row: dict[str, Any], column: str) -> None:
    if column not in row:
        raise InputError(f"{place}: no column '{column}' among {', '.join(row)}{separator_hint([*row])}")


def _passages(config: HuggingFaceConfig) -> Iterator[tuple[str, Passage]]:
    for number, place, row in _rows(config.passages, config.metadata):
        row_id = _text(place, row, config.id_column) if config.id_column else str(number)
        title = _text(place, row, config.title_column) if config.title_column else ""
        document = _text(place, row, config.document_column) if config.document_column else ""
        text = _text(place, row, config.text_column)
        demand(place, config.metadata, row)
        yield place, Passage(row_id, document, title, text, row)


def _check_exact(place: str, column: str, value: object) -> None:
    """Raises InputError for a float of CSV or JSON that may be a rounded number."""
    number = float(value) if isinstance(value, UntypedCell) and value.kind == "float" else value
    if isinstance(number, float) and (isinstance(value, UntypedCell) or isfinite(number)) and abs(number) >= EXACT:
        raise InputError(
            f"{place}: ingest.metadata: '{one_line(column)}' was read as {number!r}, which may be a rounded number: "
            "write the column as text, or its numbers in Parquet"
        )


def _queries(
    table: Table, config: HuggingFaceConfig, qrels: dict[str, Table], counts: Counter[str], examples: Examples
) -> Iterator[tuple[str, Query]]:
    """Yields the queries with the split whose qrels judge them. Memory grows with the judged queries."""
    splits: dict[str, str] = {}
    for place, judgement in _qrels(config, qrels):
        if splits.setdefault(judgement.query_id, judgement.split) != judgement.split:
            raise InputError(f"{place}: query '{judgement.query_id}' is judged in two splits")
    counts["unjudged_queries"] = 0
    examples.pop("unjudged_queries", None)
    for number, place, row in _rows(table):
        query_id = _text(place, row, config.query_id_column) if config.query_id_column else str(number)
        if query_id not in splits:
            counts["unjudged_queries"] += 1
            keep(examples, "unjudged_queries", query_id)
            continue
        answers: list[str] = []
        if config.answers_column:
            _check_column(place, row, config.answers_column)
            answers = text_files.strings_of(place, row, config.answers_column)
        yield place, Query(query_id, splits[query_id], _text(place, row, config.query_text_column), answers)


def _qrels(config: HuggingFaceConfig, tables: dict[str, Table]) -> Iterator[tuple[str, Judgement]]:
    for split, table in tables.items():
        for _, place, row in require_rows(f"ingest.{split}_qrels", _rows(table)):
            query_id = _text(place, row, config.qrels_query_column)
            passage_id = _text(place, row, config.qrels_passage_column)
            column = config.qrels_relevance_column
            if column:
                _check_column(place, row, column)
            relevance = grade(place, row[column]) if column else 1
            yield place, Judgement(split, query_id, passage_id, relevance)
