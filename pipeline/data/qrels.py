"""Files of relevance judgements in the formats of TREC, BEIR and this project's collections."""

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TypeVar

from pipeline.data import collection
from pipeline.data.ids import check_id
from pipeline.data.text.heading import QRELS, column_positions
from pipeline.data.text.text_files import is_plain, split_line, table_lines
from pipeline.errors import InputError
from pipeline.notices import one_line

Row = TypeVar("Row")
Qrels = Mapping[str, Mapping[str, int]]
"""{question: {passage: grade}}."""
GREATEST = 10_000
"""Largest grade. trec_eval allocates memory by it and silently returns zeros if there is too little."""


def grade(place: str, value: object) -> int:
    """Returns a relevance, given as text or number, as an integer; `1`, `1.0` and `1e0` are the same.

    Raises InputError for another value, such as 0.5, and for one beyond GREATEST.
    """
    text = str(value)
    try:
        number = Decimal(text) if is_plain(text) and not isinstance(value, bool) else Decimal("nan")
    except InvalidOperation:
        number = Decimal("nan")
    if not number.is_finite() or number != number.to_integral_value():
        raise InputError(f"{place}: relevance '{one_line(text)}' is not an integer")
    if not -GREATEST <= number <= GREATEST:
        beyond = f"above {GREATEST:,}" if number > 0 else f"below {-GREATEST:,}"
        raise InputError(f"{place}: relevance '{one_line(text)}' is {beyond}")
    return int(number)


def require_rows(source: object, rows: Iterable[Row]) -> Iterator[Row]:
    """Yields the rows. Raises InputError if there is none."""
    row = None
    for row in rows:
        yield row
    if row is None:
        raise InputError(f"{source}: no judgement")


def read_qrels(path: Path, split: str = "dev") -> Qrels:
    """Reads {question: {passage: grade}} from TREC's four columns, BEIR's three, or a split of a qrels.parquet.

    A heading may change the order of the three columns. Raises InputError for other lines, for grades above GREATEST,
    and if a question's judgements grade a passage differently.
    """
    if path.name == "qrels.parquet":
        return _of_collection(path, split)
    if path.suffix == ".parquet":
        raise InputError(f"{path}: a collection's table of judgements is called qrels.parquet")
    qrels: dict[str, dict[str, int]] = {}
    width, places = 0, [0, -2, -1]
    separator: str | None = None
    for number, line in table_lines(path):
        place = f"{path}:{number}"
        fields = [field for field in line.split("\t") if field.strip()] if separator else split_line(line)
        if not width:
            width = 3 if len(fields) == 3 else 4
            by_heading = column_positions(place, fields, QRELS) if width == 3 else None
            if by_heading:
                places = by_heading
                separator = "\t" if "\t" in line else None  # BEIR's ids may hold spaces
                continue
        if len(fields) != width:
            names = "question passage grade" if width == 3 else "question 0 passage grade"
            raise InputError(f"{place}: {width} columns expected ({names}), {len(fields)} found")
        query_id, passage_id, text = (fields[i] for i in places)
        check_id(place, "query", query_id, spaces=separator == "\t")
        check_id(place, "passage", passage_id, spaces=separator == "\t")
        relevance = grade(place, text)
        before = qrels.setdefault(query_id, {}).setdefault(passage_id, relevance)
        if relevance != before:
            judged = f"passage '{one_line(passage_id)}' of query '{one_line(query_id)}'"
            raise InputError(f"{place}: {judged} has relevance {relevance} here and {before} before")
    return qrels


def _of_collection(path: Path, split: str) -> Qrels:
    try:
        qrels = collection.read_qrels_table(path, [split])
    except ValueError as error:  # other columns
        raise InputError(f"{path}: cannot be read as a collection's table of judgements ({error})") from error
    for query_id, grades in qrels.items():
        check_id(str(path), "query", query_id)
        for passage_id in grades:
            check_id(str(path), "passage", passage_id)
    return qrels
