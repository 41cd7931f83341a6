"""Files of relevance judgements, as TREC, BEIR and this project's collections have them."""

from pathlib import Path

from pipeline import collection
from pipeline.errors import InputError
from pipeline.files import integer, lines

Qrels = dict[str, dict[str, int]]


def read_qrels(path: Path, split: str = "dev") -> Qrels:
    """{question: {passage: grade}} of TREC's four columns, BEIR's three with a heading, or a split of a qrels.parquet.

    Raises InputError for other lines and for a passage that a question's judgements give two grades.
    """
    if path.name == "qrels.parquet":
        try:
            return collection.read_qrels(path.parent, [split])
        except (OSError, ValueError) as error:
            raise InputError(f"{path}: cannot be read: {error}") from error
    found: Qrels = {}
    width = 0
    for number, line in lines(path):
        fields = line.split()
        if not width:
            width = 3 if len(fields) == 3 else 4
            if width == 3 and fields[2] == "score":
                continue
        if len(fields) != width:
            names = "question passage grade" if width == 3 else "question 0 passage grade"
            raise InputError(f"{path}:{number}: {width} columns expected ({names}), {len(fields)} found")
        grade = integer(f"{path}:{number}", fields[-1])
        before = found.setdefault(fields[0], {}).setdefault(fields[-2], grade)
        if grade != before:
            judged = f"passage {fields[-2]!r} of query {fields[0]!r}"
            raise InputError(f"{path}:{number}: {judged} has relevance {grade} here and {before} before")
    return found
