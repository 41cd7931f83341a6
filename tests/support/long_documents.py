"""A collection of documents that are cut into passages, as ingest writes it. Used by several test files."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from searched import write_collection

from pipeline.data.documents import passage_id

Judgements = Sequence[tuple[str, str, str, int]]
"""Rows of qrels.parquet; the third column names documents."""


def cut_rows(documents: Mapping[str, Sequence[str]]) -> list[tuple[str, str, str, str, str]]:
    """Rows of passages.parquet from {document: texts of its passages}."""
    return [
        (passage_id(name, i), name, f"Title of {name}", text, name)
        for name, texts in documents.items()
        for i, text in enumerate(texts)
    ]


def write_documents(
    folder: Path,
    documents: Mapping[str, Sequence[str]],
    queries: Sequence[tuple[str, str, str]],
    judged: Judgements,
) -> Path:
    return write_collection(folder, cut_rows(documents), queries, judged)
