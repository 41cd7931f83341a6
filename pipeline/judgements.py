"""Files of relevance judgements, as TREC, BEIR and this project's collections have them."""

from collections.abc import Mapping
from pathlib import Path

from pipeline import collection
from pipeline.errors import InputError
from pipeline.files import integer, lines

Qrels = Mapping[str, Mapping[str, int]]
"""{question: {passage: grade}}."""
GREATEST = 10_000
"""Grade. trec_eval's code takes memory by it, and without a word gives zeros where there is too little."""


def read_qrels(path: Path, split: str = "dev") -> Qrels:
    """{question: {passage: grade}} of TREC's four columns, BEIR's three with a heading, or a split of a qrels.parquet.

    Raises InputError for other lines, grades above GREATEST and a passage that a question's judgements give two grades.
    """
    if path.name == "qrels.parquet":
        try:
            return collection.read_judgements(path, [split])
        except ValueError as error:  # other columns
            raise InputError(f"{path}: cannot be read as a collection's table of judgements ({error})") from error
    if path.suffix == ".parquet":
        raise InputError(f"{path}: a collection's table of judgements is called qrels.parquet")
    found: dict[str, dict[str, int]] = {}
    width = 0
    separator: str | None = None
    for number, line in lines(path):
        if "\0" in line:  # where trec_eval's code would end the id
            raise InputError(f"{path}:{number}: holds a NUL character")
        fields = [field for part in line.split(separator) if (field := part.strip())]
        if not width:
            width = 3 if len(fields) == 3 else 4
            if width == 3 and fields[2] == "score":
                separator = "\t" if "\t" in line else None  # BEIR's ids may hold spaces
                continue
        if len(fields) != width:
            names = "question passage grade" if width == 3 else "question 0 passage grade"
            raise InputError(f"{path}:{number}: {width} columns expected ({names}), {len(fields)} found")
        grade = integer(f"{path}:{number}", fields[-1])
        if grade > GREATEST:
            raise InputError(f"{path}:{number}: relevance {grade:,} is above {GREATEST:,}")
        before = found.setdefault(fields[0], {}).setdefault(fields[-2], grade)
        if grade != before:
            judged = f"passage {fields[-2]!r} of query {fields[0]!r}"
            raise InputError(f"{path}:{number}: {judged} has relevance {grade} here and {before} before")
    return found
