"""Headings: a first line that names the columns of a table, so that they may come in any order.

`Columns` lists (name, alternative names) of each column, in the order of a file without a heading.
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
"""Names that a line of values never holds: a first line with one of them and without a digit is a heading."""
_DIGIT = re.compile(r"\d")


def without_heading(rows: Rows, columns: Columns) -> Rows:
    """Yields the rows without the heading, if there is one, their fields in the order of `columns`.

    Raises InputError as `column_positions` does.
    """
    for first in rows:
        places = column_positions(*first, columns)
        if places is None:
            yield first
        if places is None or places == sorted(places):
            yield from rows
        else:
            yield from ((place, [fields[i] for i in places]) for place, fields in rows)


def column_positions(place: str, fields: Sequence[str], columns: Columns) -> list[int] | None:
    """Returns the position of each of the `columns` in the first line's `fields`; None if it is not a heading.

    Raises InputError for a heading that does not name each column once.
    """
    names = [re.sub(r"[\s_-]+", "-", field.strip(" #\"'").lower()).strip("-") for field in fields]
    known = [next((n for n, of_column in enumerate(columns) if name in of_column), -1) for name in names]
    if sorted(known) == list(range(len(columns))):
        return [known.index(n) for n in range(len(columns))]
    sure = any(name in _SURE and n >= 0 for name, n in zip(names, known, strict=True))
    if not sure or any(_DIGIT.search(name) for name in names):
        return None
    expected, found = ", ".join(name for name, *_ in columns), ", ".join(map(one_line, fields))
    raise InputError(f"{place}: the first line names the columns {found}; write it with the names {expected}")
