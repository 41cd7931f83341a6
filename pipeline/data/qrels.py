"""Files of relevance judgements, as TREC, BEIR and this project's collections have them."""

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TypeVar

from pipeline.data import collection
from pipeline.data.heading import QRELS, order
from pipeline.data.ids import check_id
from pipeline.data.text_files import is_plain, table_lines, words
from pipeline.errors import InputError
from pipeline.notices import one_line

Row = TypeVar("Row")
Qrels = Mapping[str, Mapping[str, int]]
"""{question: {passage: grade}}."""
GREATEST = 10_000
"""Grade. trec_eval's code takes memory by it, and without a word gives zeros where there is too little."""


def grade(place: str, value: object) -> int:
    """A relevance, as text or as a number, whose value is an integer: `1`, `1.0` and `1e0` alike.

    Raises InputError for any other, such as 0.5, and for one beyond GREATEST.
    """
    written = str(value)
    try:
        number = Decimal(written) if is_plain(written) and not isinstance(value, bool) else Decimal("nan")
    except InvalidOperation:
        number = Decimal("nan")
    if not number.is_finite() or number != number.to_integral_value():
        raise InputError(f"{place}: relevance '{one_line(written)}' is not an integer")
    if not -GREATEST <= number <= GREATEST:
        beyond = f"above {GREATEST:,}" if number > 0 else f"below {-GREATEST:,}"
        raise InputError(f"{place}: relevance '{one_line(written)}' is {beyond}")
    return int(number)


def some(source: object, rows: Iterable[Row]) -> Iterator[Row]:
    """The rows. Raises InputError where there is none."""
    row = None
    for row in rows:
        yield row
    if row is None:
        raise InputError(f"{source}: no judgement")


def read_qrels(path: Path, split: str = "dev") -> Qrels:
    """{question: {passage: grade}} of TREC's four columns, BEIR's three, or a split of a qrels.parquet.

    A heading of the three gives their order. Raises InputError for other lines, grades above GREATEST and a passage
    that a question's judgements give two grades.
    """
    if path.name == "qrels.parquet":
        return _of_collection(path, split)
    if path.suffix == ".parquet":
        raise InputError(f"{path}: a collection's table of judgements is called qrels.parquet")
    found: dict[str, dict[str, int]] = {}
    width, places = 0, [0, -2, -1]
    separator: str | None = None
    for number, line in table_lines(path):
        place = f"{path}:{number}"
        fields = [field for field in line.split("\t") if field.strip()] if separator else words(line)
        if not width:
            width = 3 if len(fields) == 3 else 4
            named = order(place, fields, QRELS) if width == 3 else None
            if named:
                places = named
                separator = "\t" if "\t" in line else None  # BEIR's ids may hold spaces
                continue
        if len(fields) != width:
            names = "question passage grade" if width == 3 else "question 0 passage grade"
            raise InputError(f"{place}: {width} columns expected ({names}), {len(fields)} found")
        query_id, passage_id, written = (fields[i] for i in places)
        check_id(place, "query", query_id, spaces=separator == "\t")
        check_id(place, "passage", passage_id, spaces=separator == "\t")
        relevance = grade(place, written)
        before = found.setdefault(query_id, {}).setdefault(passage_id, relevance)
        if relevance != before:
            judged = f"passage '{one_line(passage_id)}' of query '{one_line(query_id)}'"
            raise InputError(f"{place}: {judged} has relevance {relevance} here and {before} before")
    return found


def _of_collection(path: Path, split: str) -> Qrels:
    try:
        found = collection.read_qrels_table(path, [split])
    except ValueError as error:  # other columns
        raise InputError(f"{path}: cannot be read as a collection's table of judgements ({error})") from error
    for query_id, grades in found.items():
        check_id(str(path), "query", query_id)
        for passage_id in grades:
            check_id(str(path), "passage", passage_id)
    return found
