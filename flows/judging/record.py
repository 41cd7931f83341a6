"""The record of judgements: a file of JSON lines to which each key press appends one.

An undo is a line too, so that nothing is lost, and the same command resumes after any end.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from pipeline.data.text.text_files import json_lines
from pipeline.errors import InputError
from pipeline.notices import one_line

HIGHEST = 3
"""The highest grade; the lowest is 0 (the scale of TREC's Deep Learning tracks)."""
PAUSE_SECONDS = 120
"""A longer time between two lines is a pause and counts as no work."""


class Entry(BaseModel):
    """A line of the record."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    time: AwareDatetime = Field(default_factory=lambda: datetime.now(UTC))


class PooledPassage(BaseModel):
    """A passage as it is shown, of whichever system."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    passage_id: str
    title: str
    text: str
    excerpt: str
    highlights: list[tuple[int, int]]
    """(start, end) of words of the excerpt, in characters."""


class PooledQuestion(Entry):
    """A question, with the passages to judge, in the order in which they are shown."""

    entry: Literal["question"] = "question"
    query_id: str
    text: str
    passages: list[PooledPassage]
    rankings: dict[str, list[str]]
    """{system: ids of its first passages, best first}."""


class Graded(Entry):
    """One key press: grades of passages of a question."""

    entry: Literal["grades"] = "grades"
    query_id: str
    grades: dict[str, Annotated[int, Field(ge=0, le=HIGHEST)]]


class Skipped(Entry):
    """A question that makes no sense to the judge; it does not count."""

    entry: Literal["skip"] = "skip"
    query_id: str


class Undone(Entry):
    """Undoes the last grades or skip that no line has undone yet."""

    entry: Literal["undo"] = "undo"


class Noted(Entry):
    """Replaces the note on a passage of a question; an empty text removes it."""

    entry: Literal["note"] = "note"
    query_id: str
    passage_id: str
    text: str


Line = Annotated[PooledQuestion | Graded | Skipped | Undone | Noted, Field(discriminator="entry")]
LINE: TypeAdapter[Line] = TypeAdapter(Line)


@dataclass
class Judgements:
    """What the lines of a record say together."""

    questions: dict[str, PooledQuestion] = field(default_factory=dict)
    """In the order in which they were asked."""
    grades: dict[str, dict[str, int]] = field(default_factory=dict)
    """{question: {passage: grade}} of each question."""
    skipped: set[str] = field(default_factory=set)
    notes: dict[tuple[str, str], str] = field(default_factory=dict)
    """{(question, passage): text}."""
    can_undo: bool = False

    def is_open(self, query_id: str) -> bool:
        """Whether passages of a question wait for a grade."""
        return query_id not in self.skipped and len(self.grades[query_id]) < len(self.questions[query_id].passages)

    @property
    def open_question(self) -> PooledQuestion | None:
        """The first question that is open."""
        return next((one for query_id, one in self.questions.items() if self.is_open(query_id)), None)

    @property
    def complete(self) -> list[str]:
        """The questions whose passages all have grades."""
        return [one for one in self.questions if one not in self.skipped and not self.is_open(one)]


def replay(lines: Sequence[Line]) -> Judgements:
    """What the lines say together. Raises ValueError, with the line's number, for one that fits no earlier line."""
    undoable: list[int] = []
    undone: set[int] = set()
    for n, line in enumerate(lines):
        if isinstance(line, Graded | Skipped):
            undoable.append(n)
        elif isinstance(line, Undone) and undoable:
            undone.add(undoable.pop())
    found = Judgements(can_undo=bool(undoable))
    for n, line in enumerate(lines):
        if isinstance(line, PooledQuestion):
            if line.query_id in found.questions:
                raise ValueError(f"{n + 1}: question '{one_line(line.query_id)}' appears twice")
            found.questions[line.query_id] = line
            found.grades[line.query_id] = {}
        elif not isinstance(line, Undone) and n not in undone:
            _apply(found, line, n + 1)
    return found


def _apply(found: Judgements, line: Graded | Skipped | Noted, number: int) -> None:
    if line.query_id not in found.questions:
        raise ValueError(f"{number}: question '{one_line(line.query_id)}' was not asked before")
    known = {passage.passage_id for passage in found.questions[line.query_id].passages}
    named = line.grades if isinstance(line, Graded) else [line.passage_id] if isinstance(line, Noted) else []
    for passage_id in named:
        if passage_id not in known:
            raise ValueError(f"{number}: passage '{one_line(passage_id)}' is not among those of the question")
    if isinstance(line, Graded):
        found.grades[line.query_id].update(line.grades)
    elif isinstance(line, Skipped):
        found.skipped.add(line.query_id)
    elif line.text:
        found.notes[line.query_id, line.passage_id] = line.text
    else:
        found.notes.pop((line.query_id, line.passage_id), None)


def minutes(lines: Iterable[Line]) -> float:
    """Returns the minutes of work on the lines; longer gaps than PAUSE_SECONDS are pauses."""
    times = [line.time for line in lines]
    gaps = [(after - before).total_seconds() for before, after in pairwise(times)]
    return sum(gap for gap in gaps if 0 < gap <= PAUSE_SECONDS) / 60


def read_record(path: Path) -> list[Line]:
    """Returns the lines of a record; none if it is missing or empty.

    Raises InputError, with file and line, for lines that cannot be read or do not fit together.
    """
    if not path.exists() or not path.stat().st_size:
        return []
    lines: list[Line] = []
    for place, row in json_lines(path):
        try:
            lines.append(LINE.validate_python(row))
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(map(str, first["loc"][1:]))
            raise InputError(f"{place}: {field or 'entry'}: {first['msg']}") from None
    try:
        replay(lines)
    except ValueError as error:
        raise InputError(f"{path}:{error}") from None
    return lines
