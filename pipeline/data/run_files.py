"""Other systems' run files: how they are read, and one of them as the first stage."""

from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pipeline.data.ids import check_id
from pipeline.data.runs import LARGEST
from pipeline.data.text_files import integer, is_plain, table_lines, words
from pipeline.errors import InputError
from pipeline.notices import Examples, keep, one_line
from pipeline.runtime.work import Progress

if TYPE_CHECKING:
    from pipeline.data.runs import Run

UNKNOWN_SHARE = 0.01
"""Of the rows of known questions may name unknown passages; more means that the two do not belong together."""
BLOCK = 1 << 22
"""Rows that are checked and sorted at once."""
COLUMNS = {6: "question Q0 passage rank score tag", 3: "question passage rank"}

Row = tuple[int, str, str, float, bool]
"""Number of the line, question, passage, score, and whether this is minus the rank."""
Number = Callable[[str], int | None]
"""The number of an id; None where it is not known."""


@dataclass(frozen=True)
class Rows:
    """The rows of known questions and passages, question by question, best first."""

    question_R: np.ndarray
    """Ascending."""
    passage_R: np.ndarray
    score_R: np.ndarray
    """float64, descending within a question, equal ones as the file has them."""
    line_R: np.ndarray
    """Line of the file."""

    def run(self, chosen_R: slice | np.ndarray, first: int = 0) -> "Run":
        """Some of the rows, in their order; questions count from `first`."""
        from pipeline.data.runs import Run

        question_R = self.question_R[chosen_R].astype(np.int64) - first
        return Run(question_R, self.passage_R[chosen_R].astype(np.int64), self.score_R[chosen_R])


def rows(path: Path) -> Iterator[Row]:
    """The lines of a TREC run (six columns), or of one in MS MARCO's three columns, whose score is minus the rank.

    Raises InputError for other lines, a file without any, ids that `ids.check_id` refuses, scores that are no numbers
    from -1e38 to 1e38, ranks that are no integers, and ranks below 1 where they decide.
    """
    width = 0
    for number, line in table_lines(path):
        place = f"{path}:{number}"
        fields = words(line)
        width = width or (3 if len(fields) == 3 else 6)
        if len(fields) != width:
            raise InputError(f"{place}: {width} columns expected ({COLUMNS[width]}), {len(fields)} found")
        query_id, passage_id = fields[0], fields[2 if width == 6 else 1]
        check_id(place, "query", query_id)
        check_id(place, "passage", passage_id)
        rank = integer(place, fields[3 if width == 6 else 2], "rank")
        if width == 6:
            yield number, query_id, passage_id, _score(place, fields[4]), False
        elif rank < 1:
            raise InputError(f"{place}: rank {rank}, but ranks count from 1")
        else:
            yield number, query_id, passage_id, float(-rank), True
    if not width:
        raise InputError(f"{path}: blank lines alone")


def _score(place: str, written: str) -> float:
    try:
        score = float(written)
    except ValueError:
        score = float("nan")
    if not -LARGEST <= score <= LARGEST:
        raise InputError(f"{place}: score '{one_line(written)}' is no number from -{LARGEST:g} to {LARGEST:g}")
    if not is_plain(written):
        raise InputError(f"{place}: score '{one_line(written)}' is not written as a plain number, such as 10 or 0.5")
    return score


def read(
    path: Path, question: Number, passage: Number, progress: Progress, examples: Examples | None = None
) -> tuple[Rows, Counter[str]]:
    """The rows whose question and passage are known, and the counts of all. Memory: 20 bytes a row.

    `examples` gets the first ids that are not known.

    This is the only place that orders equal scores: they keep the order of the file, and stay equal, so that a fusion
    gives them the same. Whoever reads the rows keeps their order.

    Raises InputError as `rows` does, where no question is known, where more than 1 % of the passages are unknown, and
    for a passage or a deciding rank twice under one question.
    """
    counts: Counter[str] = Counter(rows=0, rows_of_other_questions=0, rows_of_unknown_passages=0)
    question_R, passage_R, score_R, line_R = array("i"), array("i"), array("d"), array("I")
    first, by_rank = "", False
    examples = {} if examples is None else examples
    for number, query_id, passage_id, score, is_rank in rows(path):
        counts["rows"] += 1
        by_rank = is_rank
        if counts["rows"] % 1000 == 0:
            progress(counts["rows"], None, "rows")
        asked = question(query_id)
        found = None if asked is None else passage(passage_id)
        if asked is None:
            counts["rows_of_other_questions"] += 1
            keep(examples, "rows_of_other_questions", query_id)
        elif found is None:
            counts["rows_of_unknown_passages"] += 1
            keep(examples, "rows_of_unknown_passages", passage_id)
            first = first or f"{path}:{number}: unknown passage id '{one_line(passage_id)}'"
        else:
            question_R.append(asked)
            passage_R.append(found)
            score_R.append(score)
            line_R.append(number)
    unknown, total = counts["rows_of_unknown_passages"], counts["rows"] - counts["rows_of_other_questions"]
    if total == 0:
        raise InputError(f"{path}: none of its questions is one of the collection's dev, test or judged training ones")
    if unknown > UNKNOWN_SHARE * total:
        raise InputError(f"{first} ({unknown:,} of {total:,} rows name unknown passages, more than 1 %)")
    columns = [np.frombuffer(column, dtype=column.typecode) for column in (question_R, passage_R, score_R, line_R)]
    if (columns[0][1:] < columns[0][:-1]).any():
        by = np.argsort(columns[0], kind="stable")
        columns = [column[by] for column in columns]
    known = Rows(*columns)
    _check_unique(path, known, known.passage_R, "passage")
    if by_rank:
        _check_unique(path, known, -known.score_R.astype(np.int64), "rank")
    _put_in_order(known)
    return known, counts


def _check_unique(path: Path, found: Rows, value_R: np.ndarray, name: str) -> None:
    """Raises InputError where a question has a value twice; its rows stand as the file has them."""
    from pipeline.data.runs import again

    for block in _blocks(found.question_R):
        twice = again(found.question_R[block], value_R[block])
        if twice is not None:
            line = found.line_R[block.start + twice]
            raise InputError(f"{path}:{line}: this {name} appears twice for its question")


def _put_in_order(found: Rows) -> None:
    """Sort the rows of each question, which stand as the file has them, in place."""
    for block in _blocks(found.question_R):
        question_R, score_R = found.question_R[block], found.score_R[block]
        if ((question_R[1:] == question_R[:-1]) & (score_R[1:] > score_R[:-1])).any():
            by = np.lexsort((-score_R, question_R))  # stable
            for column in (found.passage_R, found.score_R, found.line_R):
                column[block] = column[block][by]


def _blocks(question_R: np.ndarray) -> Iterator[slice]:
    """Whole questions, about BLOCK rows of them at a time."""
    start, end = 0, len(question_R)
    while start < end:
        stop = int(np.searchsorted(question_R, question_R[min(start + BLOCK, end) - 1], side="right"))
        yield slice(start, stop)
        start = stop
