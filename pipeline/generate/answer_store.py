"""The answers of language models, kept by request: none is sent twice, by any run of a store.

One SQLite file. Every answer is written when it arrives, so an interruption loses none of them.
"""

import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from pipeline.errors import InputError, reason
from pipeline.language_model.chat_completion import Answer

FILE = "answers.sqlite"
SECONDS = 60.0
"""How long a run waits for another one that is writing."""
MOVE = "move it away: its answers are lost, unless you have a copy"
ADVICE = {
    **dict.fromkeys((sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR), MOVE),
    sqlite3.SQLITE_BUSY: "another process writes to it: repeat the command later",
    sqlite3.SQLITE_FULL: "make room, and repeat the command: the answers so far are kept",
}
"""{SQLite's code of an error: what to do}. Only the first three say that the file is no usable database."""
TABLE = """CREATE TABLE IF NOT EXISTS answers (
    request TEXT PRIMARY KEY, answer TEXT NOT NULL, input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL
) WITHOUT ROWID"""


class MeanTokens(NamedTuple):
    """Tokens of the stored answers, on average."""

    input_tokens: float
    output_tokens: float


def request_key(*parts: Any) -> str:
    """Returns the SHA-256 of everything that an answer depends on, JSON values."""
    return sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


class AnswerStore:
    """The file in `folder`. With `writes` false nothing is created, and a missing file holds no answers."""

    def __init__(self, folder: Path, writes: bool = True) -> None:
        self.path = folder / FILE
        with self._errors():
            if writes:
                folder.mkdir(parents=True, exist_ok=True)
                self._database = sqlite3.connect(self.path, timeout=SECONDS)
            else:
                there = self.path.is_file()
                place = f"{self.path.absolute().as_uri()}?mode=ro" if there else ":memory:"
                self._database = sqlite3.connect(place, timeout=SECONDS, uri=there)
            if writes or not self.path.is_file():
                with self._database:
                    self._database.execute(TABLE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._database.close()

    def __contains__(self, key: str) -> bool:
        return bool(self._rows("SELECT 1 FROM answers WHERE request = ?", (key,)))

    def get(self, key: str) -> Answer | None:
        """Returns the answer to a request; None if it has none."""
        rows = self._rows("SELECT answer, input_tokens, output_tokens FROM answers WHERE request = ?", (key,))
        return Answer(*rows[0]) if rows else None

    def add(self, answers: Iterable[tuple[str, Answer]]) -> None:
        """Stores (request, answer). An answer that is there already stays."""
        with self._errors(), self._database:
            rows = [(key, *answer) for key, answer in answers]
            self._database.executemany("INSERT OR IGNORE INTO answers VALUES (?, ?, ?, ?)", rows)

    def means(self, keys: Iterable[str]) -> MeanTokens | None:
        """Returns the mean tokens of those requests that have an answer; None without one."""
        found = [answer for answer in map(self.get, keys) if answer is not None]
        if not found:
            return None
        return MeanTokens(*(sum(values) / len(found) for values in list(zip(*found, strict=True))[1:]))

    def _rows(self, statement: str, values: tuple[str, ...]) -> list[tuple[Any, ...]]:
        with self._errors():
            return self._database.execute(statement, values).fetchall()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            advice = ADVICE.get(getattr(error, "sqlite_errorcode", 0) & 0xFF)
            raise InputError(f"{self.path}: {reason(error)}{f'; {advice}' if advice else ''}") from error
