"""Headings: a first line that names the columns of a table, which are then found by their names, in any order.

Columns are given as (name, further names of it)... in the order in which they stand where there is no heading.
"""

import re
from collections.abc import Iterator, Sequence

from pipeline.errors import InputError
from pipeline.notices import one_line

Columns = Sequence[Sequence[str]]
Rows = Iterator[tuple[str, list[str]]]
"""(place, fields)."""

_QUERY_IDS = ("query-id", "qid", "queryid", "question-id", "topic-id")
_PASSAGE_IDS = ("passage-id", "corpus-id", "pid", "passageid", "doc-id", "docid", "document-id", "docno")
_QUERIES, _PASSAGES = ("query", "question", "topic"), ("passage", "document", "doc", "corpus")
_TEXTS = ("text", "contents", "content", "body")
_POSITIVES = ("positive", "positive-id", "pos", "pos-id", "positive-passage-id", "positive-pid")
_NEGATIVES = ("negative", "negative-id", "neg", "neg-id", "negative-passage-id", "negative-pid")

QRELS: Columns = (
    _QUERY_IDS + _QUERIES,
    ("corpus-id", *_PASSAGE_IDS, *_PASSAGES),
    ("score", "relevance", "rel", "label", "grade"),
)
NEGATIVES: Columns = (_QUERY_IDS + _QUERIES, _PASSAGE_IDS + _PASSAGES, ("score",))
TRIPLES: Columns = (_QUERY_IDS + _QUERIES, _POSITIVES, _NEGATIVES)
QUESTIONS: Columns = (("id", *_QUERY_IDS), ("text", *_QUERIES, "title"))
ANSWERS: Columns = (("question", "query"), ("answers", "answer"))
PASSAGES: Columns = (("id", *_PASSAGE_IDS), (*_TEXTS, "passage", "document"))
TITLES: Columns = (("id", *_PASSAGE_IDS), ("title",))
DPR: Columns = (*PASSAGES, ("title",))
DOCUMENTS: Columns = (("id", *_PASSAGE_IDS), ("url",), ("title",), ("body", *_TEXTS, "document"))

_SURE = {"id", "score", *_QUERY_IDS, *_PASSAGE_IDS}
"""Names that a line of values does not hold: one of them, and no digit, makes the first line a heading."""
_DIGIT = re.compile(r"\d")


def without_heading(rows: Rows, columns: Columns) -> Rows:
    """The rows, each with as many fields as there are `columns` and in their order, without the heading, if any.

    Raises InputError as `order` does.
    """
    for first in rows:
        found = order(*first, columns)
        if found is None:
            yield first
        if found is None or found == sorted(found):
            yield from rows
        else:
            yield from ((place, [fields[i] for i in found]) for place, fields in rows)


def order(place: str, fields: Sequence[str], columns: Columns) -> list[int] | None:
    """Where each of the `columns` stands by the first line's `fields`; None where that line is no heading.

    Raises InputError for a heading that does not name each column once.
    """
    names = [re.sub(r"[\s_-]+", "-", field.strip(" #\"'").lower()).strip("-") for field in fields]
    known = [next((n for n, of_column in enumerate(columns) if name in of_column), -1) for name in names]
    if sorted(known) == list(range(len(columns))):
        return [known.index(n) for n in range(len(columns))]
    sure = any(name in _SURE and n >= 0 for name, n in zip(names, known, strict=True))
    if not sure or any(_DIGIT.search(name) for name in names):
        return None
    wanted, there = ", ".join(name for name, *_ in columns), ", ".join(map(one_line, fields))
    raise InputError(f"{place}: the first line names the columns {there}; write it with the names {wanted}")
