"""Records the questions, results and clicks of `serve-search`, if the user wants it.

Two kinds of JSON lines (pipeline/data/search_log.py reads them): a search, with the passages of its answers best first,
and a click on one of them. Nothing says who searched: no address, no browser, no session. The id of a search is random.
"""

import logging
import secrets
from collections import OrderedDict
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from flows.serving.answers import Answer
from flows.serving.line_log import LineLog
from flows.serving.question import Question
from pipeline.errors import InputError
from tasks.printable import json_text

RECENT = 10_000
"""Searches whose clicks are accepted: older ones are forgotten, so that memory is limited."""


class SearchLog:
    """Writes to an open file; other processes may append to it at the same time."""

    def __init__(self, lines: LineLog, recipe: str) -> None:
        self._lines = lines
        self._recipe = recipe
        self._results: OrderedDict[str, int] = OrderedDict()

    def search(self, question: Question, answers: Sequence[Answer]) -> str | None:
        """Records a search. Returns its id for clicks; None if it cannot be written."""
        search = secrets.token_hex(8)
        written = self._write(
            search=search,
            recipe=self._recipe,
            by=question.by,
            question=question.text,
            where=question.where,
            results=[answer.passage_id for answer in answers],
        )
        if not written:
            return None
        self._results[search] = len(answers)
        if len(self._results) > RECENT:
            self._results.popitem(last=False)
        return search

    def click(self, search: str, position: int) -> None:
        """Records a click on the answer at a position, from 1. Raises InputError for an unknown search or position."""
        if not 1 <= position <= self._results.get(search, 0):
            raise InputError("search, position: no such answer among the recent searches")
        self._write(search=search, click=position)

    def _write(self, **fields: Any) -> bool:
        """Whether the line is written. A full disk ends no search; the server's log has the error."""
        try:
            self._lines.append(json_text({"time": datetime.now(UTC).isoformat(timespec="seconds"), **fields}))
        except OSError as error:
            why = str(error.strerror).lower()
            log = logging.getLogger(__name__)
            log.error("--log %s: %s; nothing is recorded until this is solved", self._lines.path, why)
            return False
        return True
