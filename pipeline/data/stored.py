"""Reads the files of finished artifacts; a missing or damaged one raises a one-line InputError."""

import json
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.data.parquet import parquet_file, read_parquet
from pipeline.errors import InputError

if TYPE_CHECKING:
    import pyarrow

FAULTS = (OSError, ValueError, LookupError, TypeError, NotImplementedError, RecursionError)
"""Errors of the json module for unreadable bytes, and of pyarrow besides its own ArrowException."""


NAME = re.compile(r"[\w./-]+")
"""A recipe's name, which needs no quotes in a shell."""


def rebuild_advice(run: str) -> str:
    """Returns the advice for missing and damaged files. `run`: a run's name, or that of its recipe."""
    command = f"`cocondenser run {run}`" if NAME.fullmatch(run) else f"the command of the run {run!r}"
    return f"`cocondenser artifacts verify` sets what is damaged aside, and {command} builds it again"


AGAIN = rebuild_advice("RECIPE")
"""The advice if the recipe's name is not known."""


@contextmanager
def input_error_on_read(path: Path, again: str = AGAIN) -> Iterator[None]:
    """Replaces an error of reading `path` by an InputError with the path and the advice."""
    try:
        yield
    except PermissionError:
        raise InputError(f"{path}: permission denied") from None
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; {again}") from None
    except MemoryError as error:  # a wrong length may request any amount
        raise InputError(f"{path}: too little memory to read it, or it is damaged; {again}") from error
    except _faults() as error:
        raise InputError(f"{path}: cannot be read ({' '.join(str(error).split())}); {again}") from error


def _faults() -> tuple[type[Exception], ...]:
    """Returns FAULTS, with pyarrow's own error if pyarrow is loaded; reading JSON does not load it."""
    arrow = sys.modules.get("pyarrow")
    return FAULTS if arrow is None else (*FAULTS, arrow.ArrowException)


def read_json(path: Path, *fields: str) -> dict[str, Any]:
    """Reads a JSON object. Raises InputError, also if it lacks one of `fields`."""
    with input_error_on_read(path):
        value = json.loads(path.read_bytes())
        if not isinstance(value, dict):
            raise ValueError("not a JSON object")
        absent = [field for field in fields if field not in value]
        if absent:
            raise ValueError(f"it lacks {absent[0]!r}")
    return value


def read_table(path: Path, columns: Sequence[str] | None = None, filters: Any = None) -> "pyarrow.Table":
    """Reads columns (None: all) of the rows of a Parquet file that pass pyarrow's `filters`. Raises InputError."""
    with input_error_on_read(path):
        return read_parquet(path, columns=columns and list(columns), filters=filters)


def read_batches(path: Path, columns: Sequence[str] | None, rows: int) -> "Iterator[pyarrow.RecordBatch]":
    """Yields the rows of a Parquet file in order, at most `rows` at a time. Memory: one batch. Raises InputError."""
    with input_error_on_read(path), parquet_file(path) as file:
        yield from file.iter_batches(batch_size=rows, columns=columns and list(columns))
