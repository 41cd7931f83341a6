"""Filters passages by a condition in SQL's WHERE syntax, such as `source = 'numpy' AND year >= 2020`.

DuckDB evaluates it over the columns of metadata.parquet, ids and titles. A condition may come from a web page, so only
the syntax that pipeline/data/filter_syntax.py lists is evaluated, and the database can open only the collection's
tables.
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
BRACKETS = 100  # the parser needs seconds for 2,000 open ones
SECONDS = 20.0  # LIKE with many % and _ may never finish
MEMORY = "512MB"  # a few thousand rows are held at a time
MASKS = 8  # cached masks, one byte per passage each
SHOWN = 200  # characters of DuckDB's message
OF_PASSAGES = dict.fromkeys(PASSAGE_COLUMNS[:-1], "text")
"""Columns of every collection. The text is left out, because a condition on it would read all of it."""


class Where:
    """Conditions over one collection. Cheap to create: the first condition opens the files.

    Threads may share one object; they wait for each other.
    """

    def __init__(self, collection: Path) -> None:
        self.collection = collection
        self._lock = Lock()
        self._cache: dict[str, np.ndarray] = {}  # the most recently used one is last
        self._cache_lock = Lock()  # held only briefly; the other one while a condition is evaluated

    @cached_property
    def columns(self) -> dict[str, str]:
        """{name: boolean, integer, float, date or text}: the collection's further columns, then OF_PASSAGES."""
        return metadata.types(self.collection) | OF_PASSAGES

    def rows(self, expression: str) -> np.ndarray:
        """Returns for which passages the condition is true: bool [passages], read-only. As in SQL, NULL is not true.

        Raises InputError for text that is not a condition on the columns, and for one that takes too long.
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
            with self._cache_lock:
                self._cache[condition] = mask
                if len(self._cache) > MASKS:
                    del self._cache[next(iter(self._cache))]
        return mask

    def kept(self, expression: str) -> np.ndarray | None:
        """Returns the cached mask of a condition, or None. Does not wait for a running evaluation."""
        condition = expression.strip()
        with self._cache_lock:
            mask = self._cache.pop(condition, None)
            if mask is not None:
                self._cache[condition] = mask
        return mask

    def interrupt(self) -> None:
        """Stops the running evaluation; its thread raises InputError."""
        while not self._lock.acquire(timeout=0.1):
            self._connection.interrupt()  # repeated: an evaluation that has not yet started ignores it
        self._lock.release()

    def _mask(self, condition: str) -> np.ndarray:
        import duckdb

        with self._lock:
            used: list[str] = []
            try:
                used = columns_of(self._connection, condition, self.columns)
                return _evaluate(self._connection, condition)
            except (duckdb.FatalException, duckdb.InternalException) as error:
                del self._connection  # it is unusable after such an error
                raise InputError(f"where: {_message(error)}") from error
            except duckdb.OutOfMemoryException:
                raise InputError(f"where: the condition takes more than {MEMORY} of memory") from None
            except duckdb.InterruptException:
                raise InputError(f"where: the condition takes more than {SECONDS:g} seconds") from None
            except duckdb.Error as error:
                types = ", ".join(f"{name} is {self.columns[name]}" for name in used)
                raise InputError(f"where: {_message(error)} ({types or 'no column is named'})") from None

    @cached_property
    def _connection(self) -> "duckdb.DuckDBPyConnection":
        return _connect(self.collection)


def _connect(collection: Path) -> "duckdb.DuckDBPyConnection":
    """Opens a database in memory with a view `passages`, one row per passage in order, and no access to other files.

    A single thread keeps the order and leaves the other cores to the search. Raises InputError for damaged tables.
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
        raise InputError(f"{collection}: {_message(error)}") from error
    return database


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _evaluate(database: "duckdb.DuckDBPyConnection", condition: str) -> np.ndarray:
    description = database.execute(f"SELECT (\n{condition}\n) FROM passages LIMIT 0").description
    type_ = str(description[0][1]) if description else ""
    if type_ != "BOOLEAN":
        raise InputError(f"where: the value is {type_}, not true or false; compare it, as in source = 'numpy'")
    timer = Timer(SECONDS, database.interrupt)
    timer.start()
    try:
        columns = database.execute(statement(condition)).fetchnumpy()
    finally:
        timer.cancel()
    mask = np.asarray(columns["mask"], dtype=bool)
    mask.flags.writeable = False
    return mask


def _message(error: Exception) -> str:
    """Returns the first line of DuckDB's message, without the kind of error and without advice on SQL statements."""
    line = re.sub(r"^[\w ]+ Error: ", "", str(error).partition("\n")[0])
    return one_line(line.partition(" Use TRY(")[0], SHOWN)
