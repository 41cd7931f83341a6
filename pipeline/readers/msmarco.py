"""MS MARCO's official TSV files."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from pipeline.collection import Source
from pipeline.config import Config
from pipeline.work import Progress


class MarcoConfig(Config):
    """Official files of MS MARCO passages or documents, and TREC files of the same layouts; plain or compressed."""

    reader: Literal["msmarco"]
    """Names this reader."""
    collection: Path
    """collection.tsv (id, text) or msmarco-docs.tsv (id, url, title, body)."""
    layout: Literal["passages", "documents"]
    """Columns of `collection`: two, or four."""
    titles: Path | None
    """Titles by passage id (id, title), in the collection's order; coCondenser joins them from the documents (code)."""
    train_queries: Path | None
    """queries.train.tsv (id, text)."""
    train_qrels: Path | None
    """qrels.train.tsv (query, 0, passage, relevance)."""
    dev_queries: Path | None
    """queries.dev.small.tsv."""
    dev_qrels: Path | None
    """qrels.dev.small.tsv."""
    test_queries: Path | None
    """Topics of TREC DL 2019 or 2020."""
    test_qrels: Path | None
    """Judgements of TREC DL 2019 or 2020."""
    negatives: Path | None
    """qidpidtriples.train.full.2.tsv (query, positive, negative)."""
    negatives_per_query: int = Field(ge=1)
    """The first so many distinct negatives of a query are kept (code: 30)."""


def missing(config: MarcoConfig) -> list[str]:
    """Absent paths, each with the commands that would bring them."""
    raise NotImplementedError


def read(config: MarcoConfig, progress: Progress) -> Source:
    """The files' rows. A query that its qrels file does not judge is left out and counted."""
    raise NotImplementedError
