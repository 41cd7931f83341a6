"""A session of judging: which question is open, what the page shows of it, and what each key press does.

The page receives nothing that tells which system found a passage, nor a rank or a score.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from flows.judging.comparison import Comparison, compare
from flows.judging.folder import JudgingFolder, Settings
from flows.judging.questions import WaitingQuestion, check_question_text
from flows.judging.record import Graded, Line, Noted, PooledQuestion, Skipped, Undone, minutes, read_record, replay
from flows.serving.line_log import LineLog
from pipeline.data.text.same_words import same_words
from pipeline.errors import InputError
from pipeline.evaluate.significance.sequential import look_counts
from pipeline.notices import one_line

LONGEST_NOTE = 2000
"""Characters."""
Pool = Callable[[str, str], PooledQuestion]
"""(id, text) -> the question with its passages."""


class Judging:
    """The session of a judge: a person, by the page, or a language model. Its methods may be called from several
    threads. Those that change something return the state that follows, and raise InputError if they cannot.
    """

    def __init__(
        self, folder: JudgingFolder, settings: Settings, log: LineLog, wanted: Sequence[WaitingQuestion], pool: Pool
    ) -> None:
        self._folder = folder
        self._settings = settings
        self._log = log
        self._pool = pool
        self._lines: list[Line] = read_record(folder.record)
        self._judgements = replay(self._lines)
        self._check_rankings()
        self.left_out: list[str] = []
        """A line for each question that the systems could not answer."""
        known = {same_words(asked.text) for asked in self._judgements.questions.values()}
        self._waiting = [one for one in wanted if same_words(one.text) not in known]
        self._lock = threading.Lock()
        self._published: object = None
        self._comparison = self._compare()
        with self._lock:
            self._proceed()

    def state(self) -> dict[str, Any]:
        """What the page shows."""
        with self._lock:
            if self._judgements.open_question is None and self._waiting:
                self._proceed()  # after an error
            return self._state()

    def grade(self, query_id: str, passage_id: str | None, grade: int) -> dict[str, Any]:
        """Grades a passage of the open question; None: all of its passages without a grade."""
        with self._lock:
            asked = self._open(query_id)
            given = self._judgements.grades[query_id]
            passages = [one.passage_id for one in asked.passages]
            if passage_id is not None and passage_id not in passages:
                raise InputError("the passage is not among those of the question")
            graded = [passage_id] if passage_id is not None else [one for one in passages if one not in given]
            return self._add(Graded(query_id=query_id, grades=dict.fromkeys(graded, grade)))

    def skip(self, query_id: str) -> dict[str, Any]:
        """Leaves the open question out of the comparison."""
        with self._lock:
            self._open(query_id)
            return self._add(Skipped(query_id=query_id))

    def undo(self) -> dict[str, Any]:
        """Undoes the last grades or skip that are not undone; without any nothing changes."""
        with self._lock:
            return self._add(Undone()) if self._judgements.can_undo else self._state()

    def note(self, query_id: str, passage_id: str, text: str) -> dict[str, Any]:
        """Replaces the note on a passage of the open question."""
        with self._lock:
            asked = self._open(query_id)
            if passage_id not in {one.passage_id for one in asked.passages}:
                raise InputError("the passage is not among those of the question")
            if len(text) > LONGEST_NOTE:
                raise InputError(f"the note is too long: {len(text):,} characters (maximum {LONGEST_NOTE:,})")
            return self._add(Noted(query_id=query_id, passage_id=passage_id, text=text.strip()))

    def ask(self, text: str) -> dict[str, Any]:
        """Adds a question, after those that wait."""
        text = " ".join(text.split())
        check_question_text("question", text)
        with self._lock:
            known = [asked.text for asked in self._judgements.questions.values()]
            if same_words(text) in {same_words(one) for one in (*known, *(one.text for one in self._waiting))}:
                raise InputError("this question is there already")
            self._waiting.append(WaitingQuestion(text))
            try:
                left_out = self._proceed()
            except InputError:
                self._waiting = [one for one in self._waiting if one.text != text]  # it may be asked again
                raise
            if any(one.text == text for one in left_out):
                raise InputError(self.left_out.pop())
            return self._state()

    def comparison(self) -> Comparison:
        with self._lock:
            return self._comparison

    def has_grades(self) -> bool:
        """Whether any passage has a grade."""
        with self._lock:
            return any(self._judgements.grades.values())

    def _open(self, query_id: str) -> PooledQuestion:
        asked = self._judgements.open_question
        if asked is None or asked.query_id != query_id:
            raise InputError("this question is no longer open; reload the page")
        return asked

    def _add(self, line: Line) -> dict[str, Any]:
        self._append(line)
        self._proceed()
        return self._state()

    def _append(self, line: Line) -> None:
        with self._errors("not saved: solve this and repeat"):
            self._log.append(line.model_dump_json())
        self._lines.append(line)
        self._judgements = replay(self._lines)

    def _proceed(self) -> list[WaitingQuestion]:
        """Opens the next question, if none is open, and writes the files if the complete questions have changed.

        Returns the questions that the systems could not answer.
        """
        left_out = []
        while self._judgements.open_question is None and self._waiting:
            one = self._waiting[0]
            try:
                asked = self._pool(self._new_id(one.query_id), one.text)
            except InputError as error:
                self._waiting.pop(0)  # the same error each time: the others must not wait for it
                self.left_out.append(f"question '{one_line(one.text)}': {error}")
                left_out.append(one)
                continue
            self._append(asked)
            self._waiting.pop(0)
        found = self._judgements
        published = ([*found.complete], sorted(found.skipped), {**found.notes})
        if published != self._published:
            self._comparison = self._compare()
            with self._errors("all judgements are saved; the files made from them are written at the next one"):
                self._folder.publish(found, self._comparison)
            self._published = published
        return left_out

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        """Raises InputError for an error of the disk."""
        try:
            yield
        except OSError as error:
            path = error.filename or self._folder.root
            raise InputError(f"{path}: {str(error.strerror).lower()}; {what}") from error

    def _check_rankings(self) -> None:
        for query_id, asked in self._judgements.questions.items():
            for system in self._settings.systems:
                if system not in asked.rankings:
                    place = f"{self._folder.record}: question '{one_line(query_id)}'"
                    raise InputError(f"{place} has no ranking of {system}; restore the file from a copy")

    def _new_id(self, query_id: str) -> str:
        taken = {*self._judgements.questions, *(one.query_id for one in self._waiting[1:])}
        number = len(self._judgements.questions) + 1
        while not query_id or query_id in taken:
            query_id, number = f"q{number}", number + 1
        return query_id

    def _compare(self) -> Comparison:
        return compare(self._settings.rules, [*self._settings.systems], self._judgements, minutes(self._lines))

    def _state(self) -> dict[str, Any]:
        found, comparison = self._judgements, self._comparison
        asked = found.open_question
        grades = {} if asked is None else found.grades[asked.query_id]
        passages = [] if asked is None else asked.passages
        last = comparison.looks[-1] if comparison.looks else None
        planned = self._settings.rules.planned
        return {
            "question": None if asked is None else {"query_id": asked.query_id, "text": asked.text},
            "passages": [
                {
                    **one.model_dump(),
                    "grade": grades.get(one.passage_id),
                    "note": found.notes.get((asked.query_id if asked else "", one.passage_id), ""),
                }
                for one in passages
            ],
            "number": len(found.questions) + 1 if asked is None else [*found.questions].index(asked.query_id) + 1,
            "total": len(found.questions) + len(self._waiting),
            "counted": comparison.questions,
            "without_relevant": comparison.questions_without_relevant,
            "skipped": comparison.skipped,
            "planned": planned,
            "next_look": next((n for n in look_counts(planned) if n > comparison.questions), None),
            "decided": comparison.is_decided,
            "looked_at": None if last is None else last.questions,
            "needed": None if last is None else last.needed,
            "can_undo": found.can_undo,
            "minutes": round(minutes(self._lines)),
        }
