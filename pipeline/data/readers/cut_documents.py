"""Cuts the documents of a reader's source into passages."""

from collections.abc import Iterator
from dataclasses import replace

from pipeline.data.collection import Negative, Passage, Source
from pipeline.data.documents import passage_id
from pipeline.data.readers.cut import cut_text
from pipeline.data.readers.reader_config import ReaderConfig


def cut_documents(source: Source, config: ReaderConfig, judged: bool) -> Source:
    """Returns the source with its rows cut into passages, if `passage_words` says so.

    `judged`: whether the source has judgements; they then name documents. A title is that of all passages. A document
    without text is one passage. A negative that the source provides becomes the first passage of its document.
    """
    if config.passage_words is None:
        return source
    negatives = source.negatives
    return replace(
        source,
        passages=lambda: _passages(source, config),
        negatives=(lambda: _negatives(negatives())) if negatives else None,
        judges_documents=judged,
    )


def _passages(source: Source, config: ReaderConfig) -> Iterator[tuple[str, Passage]]:
    for place, row in source.passages():
        pieces = cut_text(row.text, config.passage_words, config.passage_overlap) or [""]
        for i, text in enumerate(pieces):
            yield (
                place,
                row._replace(
                    passage_id=passage_id(row.passage_id, i),
                    doc_id=row.doc_id or row.passage_id,
                    text=text,
                    document=row.passage_id,
                ),
            )


def _negatives(rows: Iterator[tuple[str, Negative]]) -> Iterator[tuple[str, Negative]]:
    for place, row in rows:
        yield place, row._replace(passage_id=passage_id(row.passage_id, 0))
