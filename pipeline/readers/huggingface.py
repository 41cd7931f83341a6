"""Any dataset of the Hugging Face hub, streamed, or a local folder of its files."""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from pipeline.collection import Source
from pipeline.config import Config
from pipeline.work import Progress


class Table(Config):
    """One table of the hub, or the files of a local folder."""

    dataset: str | None
    """Id on the hub, such as `BeIR/scifact`."""
    revision: str
    """Branch, tag or commit of `dataset`. Only a commit pins the content."""
    folder: Path | None
    """A local folder of JSONL, CSV or Parquet files instead."""
    name: str | None
    """Configuration of the dataset, such as `corpus` or `20231101.en`; None takes its only one."""
    split: str
    """Split of the dataset, such as `train` or `train[:1%]`."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.dataset is None) == (self.folder is None):
            raise ValueError("set one of dataset and folder")
        return self


class HuggingFaceConfig(Config):
    """Tables and the names of their columns. An empty column name: the table has none."""

    reader: Literal["huggingface"]
    """Names this reader."""
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
    passage_words: int = Field(ge=0)
    """Rows are cut into passages of about so many words; 0: a row is a passage."""
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
    """Tables that are neither on this machine nor to be had."""
    raise NotImplementedError


def read(config: HuggingFaceConfig, progress: Progress) -> Source:
    """The tables' rows, streamed. A query that no table of qrels judges is left out and counted."""
    raise NotImplementedError
