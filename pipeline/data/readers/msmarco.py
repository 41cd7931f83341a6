"""MS MARCO's official TSV files."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from pipeline.data.collection import Judgement, Negative, Passage, Query, Source
from pipeline.data.ids import first_distinct
from pipeline.data.metadata import distinct
from pipeline.data.qrels import grade, require_rows
from pipeline.data.readers.cut_documents import cut_documents
from pipeline.data.readers.reader_config import ReaderConfig
from pipeline.data.text import text_files
from pipeline.data.text.heading import DOCUMENTS, PASSAGES, QUESTIONS, TITLES, TRIPLES, without_heading
from pipeline.errors import InputError
from pipeline.notices import Examples, keep, one_line
from pipeline.runtime.work import Progress

OFFICIAL = "https://msmarco.z22.web.core.windows.net/msmarcoranking"
TREC = "https://trec.nist.gov/data/deep"
COMMANDS = {
    "collection.tsv": [f"wget {OFFICIAL}/collection.tar.gz", "tar xzf collection.tar.gz"],
    "msmarco-docs.tsv": [f"wget {OFFICIAL}/msmarco-docs.tsv.gz"],
    "queries.train.tsv": [f"wget {OFFICIAL}/queries.tar.gz", "tar xzf queries.tar.gz"],
    "queries.dev.tsv": [f"wget {OFFICIAL}/queries.tar.gz", "tar xzf queries.tar.gz"],
    "queries.dev.small.tsv": [f"wget {OFFICIAL}/collectionandqueries.tar.gz", "tar xzf collectionandqueries.tar.gz"],
    "qrels.train.tsv": [f"wget {OFFICIAL}/qrels.train.tsv"],
    "qrels.dev.tsv": [f"wget {OFFICIAL}/qrels.dev.tsv"],
    "qrels.dev.small.tsv": [f"wget {OFFICIAL}/collectionandqueries.tar.gz", "tar xzf collectionandqueries.tar.gz"],
    "qidpidtriples.train.full.2.tsv": [f"wget {OFFICIAL}/qidpidtriples.train.full.2.tsv.gz"],
    "msmarco-test2019-queries.tsv": [f"wget {OFFICIAL}/msmarco-test2019-queries.tsv.gz"],
    "msmarco-test2020-queries.tsv": [f"wget {OFFICIAL}/msmarco-test2020-queries.tsv.gz"],
    "2019qrels-pass.txt": [f"wget {TREC}/2019qrels-pass.txt"],
    "2020qrels-pass.txt": [f"wget {TREC}/2020qrels-pass.txt"],
    "2019qrels-docs.txt": [f"wget {TREC}/2019qrels-docs.txt"],
    "msmarco-doctrain-queries.tsv": [f"wget {OFFICIAL}/msmarco-doctrain-queries.tsv.gz"],
    "msmarco-doctrain-qrels.tsv": [f"wget {OFFICIAL}/msmarco-doctrain-qrels.tsv.gz"],
    "msmarco-docdev-queries.tsv": [f"wget {OFFICIAL}/msmarco-docdev-queries.tsv.gz"],
    "msmarco-docdev-qrels.tsv": [f"wget {OFFICIAL}/msmarco-docdev-qrels.tsv.gz"],
    "para.title.txt": [
        "wget https://rocketqa.bj.bcebos.com/corpus/marco.tar.gz",
        "tar xzf marco.tar.gz --wildcards --strip-components=1 '*/para.title.txt'",
    ],
}


class MarcoConfig(ReaderConfig):
    """Official files of MS MARCO passages or documents, and TREC files of the same layouts; plain or compressed."""

    reader: Literal["msmarco"]
    """Selects this reader."""
    collection: Path
    """collection.tsv (id, text) or msmarco-docs.tsv (id, url, title, body)."""
    layout: Literal["passages", "documents"]
    """Columns of `collection`: two, or four."""
    metadata: Annotated[tuple[Literal["url"], ...], AfterValidator(distinct)]
    """`url`: keep the documents' addresses, to filter by. Empty: nothing."""
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
    """Number of negatives kept per query: the first distinct ones (code: 30)."""

    @model_validator(mode="after")
    def _has_metadata(self) -> Self:
        if self.metadata and self.layout == "passages":
            raise ValueError("metadata: the layout passages has no further columns")
        return self


def missing(config: MarcoConfig) -> list[str]:
    """Returns a line for each absent path, with the commands to download it."""
    paths = [value for _, value in config if isinstance(value, Path)]
    return text_files.missing(paths, COMMANDS, folders=False)


def read(config: MarcoConfig, progress: Progress) -> Source:
    """Reads the files' rows. A query without judgements is left out and counted."""
    pairs = {
        "train": (config.train_queries, config.train_qrels),
        "dev": (config.dev_queries, config.dev_qrels),
        "test": (config.test_queries, config.test_qrels),
    }
    for split, (queries, qrels) in pairs.items():
        if (queries is None) != (qrels is None):
            raise InputError(f"ingest.{split}_queries and ingest.{split}_qrels: set both or neither")
    files = {split: (queries, qrels) for split, (queries, qrels) in pairs.items() if queries and qrels}
    counts: Counter[str] = Counter()
    examples: Examples = {}
    negatives = config.negatives
    source = Source(
        passages=lambda: _passages(config),
        queries=lambda: _queries(files, counts, examples),
        qrels=lambda: (row for split, (_, path) in files.items() for row in _qrels(split, path)),
        negatives=(lambda: _negatives(negatives, config.negatives_per_query)) if negatives else None,
        counts=counts,
        examples=examples,
    )
    return cut_documents(source, config, judged=bool(files))


def _passages(config: MarcoConfig) -> Iterator[tuple[str, Passage]]:
    if config.layout == "documents":
        for place, (document_id, url, title, body) in without_heading(
            text_files.columns(config.collection, 4), DOCUMENTS
        ):
            yield place, Passage(document_id, "", title, body, {"url": url})
        return
    titles = without_heading(text_files.columns(config.titles, 2) if config.titles else iter(()), TITLES)
    title_place, (title_id, title) = next(titles, ("", ["", ""]))
    for place, (passage_id, text) in without_heading(text_files.columns(config.collection, 2), PASSAGES):
        if title_place and title_id == passage_id:
            yield place, Passage(passage_id, "", title.strip(), text)
            title_place, (title_id, title) = next(titles, ("", ["", ""]))
        else:
            yield place, Passage(passage_id, "", "", text)
    if title_place:
        raise InputError(f"{title_place}: passage '{one_line(title_id)}' is unknown or not in the collection's order")


def _queries(
    files: dict[str, tuple[Path, Path]], counts: Counter[str], examples: Examples
) -> Iterator[tuple[str, Query]]:
    """Yields the judged queries. Memory grows with their number."""
    counts["unjudged_queries"] = 0
    examples.pop("unjudged_queries", None)
    for split, (queries, qrels) in files.items():
        judged = {row.query_id for _, row in _qrels(split, qrels)}
        for place, (query_id, text) in without_heading(text_files.columns(queries, 2), QUESTIONS):
            if query_id in judged:
                yield place, Query(query_id, split, text.strip(), [])
            else:
                counts["unjudged_queries"] += 1
                keep(examples, "unjudged_queries", query_id)


def _qrels(split: str, path: Path) -> Iterator[tuple[str, Judgement]]:
    for place, (query_id, _, passage_id, relevance) in require_rows(path, text_files.columns(path, 4, separator=None)):
        yield place, Judgement(split, query_id, passage_id, grade(place, relevance))


def _negatives(path: Path, most: int) -> Iterator[tuple[str, Negative]]:
    rows = without_heading(text_files.columns(path, 3), TRIPLES)
    triples = ((place, query_id, negative) for place, (query_id, _, negative) in rows)
    for place, query_id, negative in first_distinct(triples, most):
        yield place, Negative(query_id, negative)
