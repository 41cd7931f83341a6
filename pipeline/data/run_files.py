"""Reads the run files of other systems, also as the first stage."""

from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pipeline.data.ids import check_id
from pipeline.data.runs import LARGEST
from pipeline.data.text.text_files import integer, is_plain, split_line, table_lines
from pipeline.errors import InputError
from pipeline.notices import Examples, keep, one_line
from pipeline.runtime.work import Progress

if TYPE_CHECKING:
    from pipeline.data.runs import Run

UNKNOWN_SHARE = 0.01
"""Largest share of rows with unknown passages; more means that run and collection do not belong together."""
BLOCK = 1 << 22
"""Rows that are checked and sorted at once."""
COLUMNS = {6: "question Q0 passage rank score tag", 3: "question passage rank"}

Row = tuple[int, str, str, float, bool]
"""Line number, question, passage, score, and whether the score is minus the rank."""
Number = Callable[[str], int | None]
"""The number of an id; None: unknown."""


@dataclass(frozen=True)
class RunRows:
    """The rows of known questions and passages, question by question, best first."""

    question_R: np.ndarray
    """Ascending."""
    passage_R: np.ndarray
    score_R: np.ndarray
    """float64, descending within a question; equal scores keep the order of the file."""
    line_R: np.ndarray
    """Line of the file."""

    def run(self, chosen_R: slice | np.ndarray, first: int = 0) -> "Run":
        """Returns some of the rows as a run, in their order; question `first` becomes 0."""
        from pipeline.data.runs import Run

        question_R = self.question_R[chosen_R].astype(np.int64) - first
        return Run(question_R, self.passage_R[chosen_R].astype(np.int64), self.score_R[chosen_R])


def run_file_rows(path: Path) -> Iterator[Row]:
    """Yields the lines of a TREC run (six columns) or of MS MARCO's three columns, whose score is minus the rank.

    Raises InputError for other lines, a blank file, ids that `ids.check_id` rejects, scores that are not numbers from
    -1e38 to 1e38, ranks that are not integers, and ranks below 1 in three columns.
    """
    width = 0
    for number, line in table_lines(path):
        place = f"{path}:{number}"
        fields = split_line(line)
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
        raise InputError(f"{path}: only blank lines")


def _score(place: str, text: str) -> float:
    try:
        score = float(text)
    except ValueError:
        score = float("nan")
    if not -LARGEST <= score <= LARGEST:
        raise InputError(f"{place}: score '{one_line(text)}' is not a number from -{LARGEST:g} to {LARGEST:g}")
    if not is_plain(text):
        raise InputError(f"{place}: score '{one_line(text)}' is not written as a plain number, such as 10 or 0.5")
    return score


def read_run_file(
    path: Path, question: Number, passage: Number, progress: Progress, examples: Examples | None = None
) -> tuple[RunRows, Counter[str]]:
    """Reads the rows with known question and passage, and counts all rows. Memory: 20 bytes per row.

    `examples` gets the first unknown ids.

    This is the only place that orders equal scores: they keep the order of the file and stay equal, so that a fusion
    gives them equal scores. All users of the rows keep their order.

    Raises InputError as `run_file_rows` does, if no question is known, if more than 1 % of the rows name unknown
    passages, and for a passage (in three columns also a rank) that appears twice under one question.
    """
    counts: Counter[str] = Counter(rows=0, rows_of_other_questions=0, rows_of_unknown_passages=0)
    question_R, passage_R, score_R, line_R = array("i"), array("i"), array("d"), array("I")
    first, by_rank = "", False
    examples = {} if examples is None else examples
    for number, query_id, passage_id, score, is_rank in run_file_rows(path):
        counts["rows"] += 1
        by_rank = is_rank
        if counts["rows"] % 1000 == 0:
            progress(counts["rows"], None, "rows")
        question_number = question(query_id)
        row_number = None if question_number is None else passage(passage_id)
        if question_number is None:
            counts["rows_of_other_questions"] += 1
            keep(examples, "rows_of_other_questions", query_id)
        elif row_number is None:
            counts["rows_of_unknown_passages"] += 1
            keep(examples, "rows_of_unknown_passages", passage_id)
            first = first or f"{path}:{number}: unknown passage id '{one_line(passage_id)}'"
        else:
            question_R.append(question_number)
            passage_R.append(row_number)
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
    known = RunRows(*columns)
    _check_unique(path, known, known.passage_R, "passage")
    if by_rank:
        _check_unique(path, known, -known.score_R.astype(np.int64), "rank")
    _put_in_order(known)
    return known, counts


def _check_unique(path: Path, known: RunRows, value_R: np.ndarray, name: str) -> None:
    """Raises InputError if a question has a value twice. A question's rows are in the order of the file."""
    from pipeline.data.runs import first_repeated

    for block in _blocks(known.question_R):
        twice = first_repeated(known.question_R[block], value_R[block])
        if twice is not None:
            line = known.line_R[block.start + twice]
            raise InputError(f"{path}:{line}: this {name} appears twice for its question")


def _put_in_order(known: RunRows) -> None:
    """Sorts the rows of each question by score, in place; equal scores keep the order of the file."""
    for block in _blocks(known.question_R):
        question_R, score_R = known.question_R[block], known.score_R[block]
        if ((question_R[1:] == question_R[:-1]) & (score_R[1:] > score_R[:-1])).any():
            by = np.lexsort((-score_R, question_R))  # stable
            for column in (known.passage_R, known.score_R, known.line_R):
                column[block] = column[block][by]


def _blocks(question_R: np.ndarray) -> Iterator[slice]:
    """Yields slices of whole questions, of about BLOCK rows each."""
    start, end = 0, len(question_R)
    while start < end:
        stop = int(np.searchsorted(question_R, question_R[min(start + BLOCK, end) - 1], side="right"))
        yield slice(start, stop)
        start = stop
