"""Which passages a condition in SQL's WHERE syntax is true of, such as `source = 'numpy' AND year >= 2020`.

DuckDB evaluates it over the columns of metadata.parquet, and ids and titles. As it may come from a web page, only what
pipeline/data/filter_syntax.py knows is evaluated, by a database that can open no file but the collection's tables.
"""

import re
from functools import cached_property
from pathlib import Path
from threading import Lock, Timer
from typing import TYPE_CHECKING

import numpy as np

from pipeline.data import metadata
from pipeline.data.collection import PASSAGE_COLUMNS
from pipeline.data.filter_syntax import columns_of, statement
from pipeline.errors import InputError
from pipeline.notices import one_line

if TYPE_CHECKING:
    import duckdb

CHARACTERS = 2000
BRACKETS = 100  # 2,000 open ones take the parser seconds
SECONDS = 20.0  # LIKE with many % and _ can take for ever
MEMORY = "512MB"  # a few thousand rows are held at a time
MASKS = 8  # kept, at a byte a passage
SHOWN = 200  # characters of what DuckDB says
OF_PASSAGES = dict.fromkeys(PASSAGE_COLUMNS[:-1], "text")
"""What can be asked of every collection. Not the text, all of which would be read."""


class Where:
    """Conditions over one collection. Cheap to make: files are opened for the first condition.

    Threads may share one, and wait for each other.
    """

    def __init__(self, collection: Path) -> None:
        self.collection = collection
        self._lock = Lock()
        self._kept: dict[str, np.ndarray] = {}  # the one asked for last is last
        self._keeping = Lock()  # held for moments, the other for as long as a condition takes

    @cached_property
    def columns(self) -> dict[str, str]:
        """{name: boolean, integer, float, date or text}: the collection's further columns, then those of any."""
        return metadata.types(self.collection) | OF_PASSAGES

    def rows(self, expression: str) -> np.ndarray:
        """Of which passages the condition is true: bool [passages], read-only. As in SQL, NULL is not true.

        Raises InputError for what is no condition on the columns, and for one that takes too long.
        """
        condition = expression.strip()
        if not condition:
            raise InputError("where: the condition is empty; leave it out to search all passages")
        if len(condition) > CHARACTERS or condition.count("(") > BRACKETS:
            raise InputError(f"where: the condition has more than {CHARACTERS:,} characters or {BRACKETS} brackets")
        try:
            condition.encode()
        except UnicodeEncodeError:
            raise InputError("where: the condition holds half of a surrogate pair") from None
        mask = self.kept(condition)
        if mask is None:
            mask = self._mask(condition)
            with self._keeping:
                self._kept[condition] = mask
                if len(self._kept) > MASKS:
                    del self._kept[next(iter(self._kept))]
        return mask

    def kept(self, expression: str) -> np.ndarray | None:
        """The mask of a condition that was evaluated lately. Does not wait for one that is evaluated now."""
        condition = expression.strip()
        with self._keeping:
            mask = self._kept.pop(condition, None)
            if mask is not None:
                self._kept[condition] = mask
        return mask

    def interrupt(self) -> None:
        """Ends the condition that is evaluated, by an InputError in its thread."""
        while not self._lock.acquire(timeout=0.1):
            self._connection.interrupt()  # again and again: one that is yet to begin would not notice
        self._lock.release()

    def _mask(self, condition: str) -> np.ndarray:
        import duckdb

        with self._lock:
            used: list[str] = []
            try:
                used = columns_of(self._connection, condition, self.columns)
                return _evaluate(self._connection, condition)
            except (duckdb.FatalException, duckdb.InternalException) as error:
                del self._connection  # it would answer nothing more
                raise InputError(f"where: {_said(error)}") from error
            except duckdb.OutOfMemoryException:
                raise InputError(f"where: the condition takes more than {MEMORY} of memory") from None
            except duckdb.InterruptException:
                raise InputError(f"where: the condition takes more than {SECONDS:g} seconds") from None
            except duckdb.Error as error:
                types = ", ".join(f"{name} is {self.columns[name]}" for name in used)
                raise InputError(f"where: {_said(error)} ({types or 'no column is named'})") from None

    @cached_property
    def _connection(self) -> "duckdb.DuckDBPyConnection":
        return _connect(self.collection)


def _connect(collection: Path) -> "duckdb.DuckDBPyConnection":
    """A database in memory whose view `passages` has a row a passage, in order, and that can open nothing else.

    One thread keeps the order, and leaves the cores to the search. Raises InputError for tables that are damaged.
    """
    import duckdb

    paths = [str((collection / name).resolve()) for name in ("passages.parquet", metadata.FILE)]
    passages, further = patterns = [_quoted(re.sub(r"([*?\[])", r"[\1]", path)) for path in paths]
    source = f"(SELECT {', '.join(OF_PASSAGES)} FROM read_parquet({passages}))"
    if metadata.types(collection):
        source = f"read_parquet({further}) POSITIONAL JOIN {source}"
    database = duckdb.connect(":memory:", config={"threads": 1, "memory_limit": MEMORY, "temp_directory": ""})
    for setting in (
        "python_enable_replacements = false",
        f"allowed_paths = [{', '.join([*map(_quoted, paths), *patterns])}]",
        "enable_external_access = false",
        "lock_configuration = true",
    ):
        database.execute(f"SET {setting}")
    try:
        database.execute(f"CREATE VIEW passages AS SELECT * FROM {source}")
    except duckdb.Error as error:
        raise InputError(f"{collection}: {_said(error)}") from error
    return database


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _evaluate(database: "duckdb.DuckDBPyConnection", condition: str) -> np.ndarray:
    found = database.execute(f"SELECT (\n{condition}\n) FROM passages LIMIT 0").description
    type_ = str(found[0][1]) if found else ""
    if type_ != "BOOLEAN":
        raise InputError(f"where: {type_}, not true or false; a condition compares, as in source = 'numpy'")
    timer = Timer(SECONDS, database.interrupt)
    timer.start()
    try:
        columns = database.execute(statement(condition)).fetchnumpy()
    finally:
        timer.cancel()
    mask = np.asarray(columns["mask"], dtype=bool)
    mask.flags.writeable = False
    return mask


def _said(error: Exception) -> str:
    """The first line of what DuckDB says, without the kind of error and what SQL statements could do about it."""
    line = re.sub(r"^[\w ]+ Error: ", "", str(error).partition("\n")[0])
    return one_line(line.partition(" Use TRY(")[0], SHOWN)
