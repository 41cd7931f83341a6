"""Reads passages and questions of other systems in pyserini's formats: expanded text, or terms with weights.

A file has one JSON object per line, or one list of objects: {"id", "contents"} (docT5query, DeepCT: text with added
words) or {"id", "vector": {term: weight}} (DeepImpact, uniCOIL, SPLADE). Questions may also be Anserini's topics.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pipeline.data.ids import check_id
from pipeline.data.text.heading import QUESTIONS, without_heading
from pipeline.data.text.text_files import columns, json_rows, plain_name, text_of
from pipeline.errors import InputError
from pipeline.notices import one_line

JSON = (".json", ".jsonl")
WEIGHT = 65_535
"""Largest weight: a term is indexed as many times as its weight."""
TERM_CHARACTERS = 127
"""Maximum characters of a term. Lucene's white-space analyser cuts at 255 UTF-16 units."""

Content = str | dict[str, int]
"""Text, or terms with their weights."""
Row = tuple[str, str, Content]
"""Place (file and line), id, content."""


def passages(path: Path) -> Iterator[Row]:
    """Yields the rows of a file, or of all JSON files of a folder, sorted by path.

    Raises InputError for a mix of both kinds and for a faulty row, with file and line.
    """
    return _one_kind(row for file in _files(path) for row in _json(file))


def topics(path: Path) -> Iterator[Row]:
    """Yields the questions of a JSON file (see `passages`) or of lines of id, tab, text or terms. Raises InputError."""
    if Path(plain_name(path)).suffix in JSON:
        return _one_kind(_json(path))
    rows = without_heading(columns(path, 2), QUESTIONS)
    return ((place, _checked(place, query_id), text) for place, (query_id, text) in rows)


def counted(content: Content) -> dict[str, int]:
    """Returns terms with their weights. Text is split at white space, and a term's weight is its count."""
    return content if isinstance(content, dict) else Counter(content.split())


def repeated(weights: Mapping[str, int]) -> str:
    """Returns a text that repeats each term by its weight, so that Lucene's term frequencies are the weights."""
    return " ".join(" ".join([term] * weight) for term, weight in weights.items() if weight)


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(p for p in path.rglob("*") if p.is_file() and Path(plain_name(p)).suffix in JSON)
    if not found:
        raise InputError(f"{path}: no .json or .jsonl file in this folder")
    return found


def _json(path: Path) -> Iterator[Row]:
    for place, row in json_rows(path):
        content = _vector(place, row["vector"]) if "vector" in row else text_of(place, row, "contents")
        try:
            "".join(content).encode()
        except UnicodeEncodeError:
            raise InputError(f"{place}: holds half of a surrogate pair") from None
        yield place, _checked(place, text_of(place, row, "id")), content


def _checked(place: str, row_id: str) -> str:
    check_id(place, "row", row_id)
    return row_id


def _vector(place: str, value: Any) -> dict[str, int]:
    if not isinstance(value, dict):
        raise InputError(f"{place}: field 'vector' is not an object of terms and weights")
    for term, weight in value.items():
        if term.split() != [term] or len(term) > TERM_CHARACTERS:
            raise InputError(f"{place}: term '{one_line(term)}' is empty, holds white space or is too long")
        if type(weight) is not int or not 0 <= weight <= WEIGHT:
            shown = one_line(str(weight))
            raise InputError(f"{place}: weight {shown} of '{one_line(term)}' is not an integer from 0 to {WEIGHT:,}")
    return value


def _one_kind(rows: Iterable[Row]) -> Iterator[Row]:
    """Yields the rows. Raises InputError if one is of another kind than the first."""
    kind = None
    for row in rows:
        kind = kind or type(row[2])
        if type(row[2]) is not kind:
            raise InputError(f"{row[0]}: 'contents' in some rows and 'vector' in others")
        yield row
