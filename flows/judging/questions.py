"""Questions to judge: from a file, or from a log of searches."""

import random
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from flows.serving.question import LONGEST
from pipeline.data.ids import check_id
from pipeline.data.search_log import read_searches, texts_of
from pipeline.data.text.plain_text import check_text
from pipeline.data.text.same_words import same_words
from pipeline.data.text.text_files import json_lines, plain_name, table_lines, text_of
from pipeline.errors import InputError
from pipeline.notices import one_line


class WaitingQuestion(NamedTuple):
    """A question that waits."""

    text: str
    query_id: str = ""
    """Empty: it gets one with its passages."""


def read_questions(path: Path) -> list[WaitingQuestion]:
    """Returns `all_questions`, equal ones once."""
    return distinct(all_questions(path))


def all_questions(path: Path) -> list[WaitingQuestion]:
    """Returns the questions of a file: one per line, or BEIR's queries.jsonl.

    Raises InputError, with file and line, for what cannot be read, for a table, for a file without a question, for a
    question that is too long and for an id that appears twice.
    """
    found: list[WaitingQuestion] = []
    places: dict[str, str] = {}
    for place, one in _rows(path):
        check_question_text(place, one.text)
        if one.query_id in places:
            raise InputError(f"{place}: query '{one_line(one.query_id)}' is already at {places[one.query_id]}")
        if one.query_id:
            check_id(place, "query", one.query_id, spaces=True)
            places[one.query_id] = place
        found.append(one)
    if not found:
        raise InputError(f"{path}: has no question")
    return found


def _rows(path: Path) -> Iterable[tuple[str, WaitingQuestion]]:
    ending = Path(plain_name(path)).suffix.lower()
    if ending in (".csv", ".tsv"):
        raise InputError(f"{path}: a table; one question per line is expected, or BEIR's queries.jsonl")
    _, first = next(table_lines(path), (0, ""))
    if ending != ".jsonl" and not first.lstrip().startswith("{"):
        return ((f"{path}:{number}", WaitingQuestion(line.strip())) for number, line in table_lines(path))
    return (
        (place, WaitingQuestion(text_of(place, row, "text").strip(), text_of(place, row, "_id", required=False)))
        for place, row in json_lines(path)
    )


def check_question_text(place: str, text: str) -> None:
    """Raises InputError for an empty question and for one that is too long."""
    if not text.strip():
        raise InputError(f"{place}: the question is empty")
    check_text(f"{place}: the question", text)
    if len(text) > LONGEST:
        raise InputError(f"{place}: the question is too long: {len(text):,} characters (maximum {LONGEST:,})")


def sample_questions(log: Path, seed: int) -> list[WaitingQuestion]:
    """Returns the distinct questions of a log of searches in random order: those of a random sample of its searches, so
    that frequent questions tend to come first.

    Searches with a condition are left out: the judged systems search all passages. Raises InputError as `read_searches`
    does, and for a log without questions.
    """
    searches = read_searches([log]).searches
    unconditional = [search for search in searches if search.where is None]
    texts = texts_of(unconditional)
    random.Random(seed).shuffle(unconditional)
    forms = dict.fromkeys(same_words(search.question) for search in unconditional)
    if not texts:
        raise InputError(f"{log}: has no question without a condition")
    return [WaitingQuestion(texts[form]) for form in forms if form in texts]


def distinct(questions: Iterable[WaitingQuestion]) -> list[WaitingQuestion]:
    """Returns the first of equal questions."""
    found: dict[str, WaitingQuestion] = {}
    for one in questions:
        found.setdefault(same_words(one.text), one)
    return [*found.values()]
