"""Files of finished artifacts, read so that one that is missing or damaged is told in a line."""

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
"""What the json module raises for bytes that it cannot read, and pyarrow beside its own ArrowException."""


NAME = re.compile(r"[\w./-]+")
"""Of a recipe, as a shell takes it."""


def again(run: str) -> str:
    """What to do about any of them. `run`: a run's name, its recipe's if a shell takes it as one word."""
    command = f"`cocondenser run {run}`" if NAME.fullmatch(run) else f"the command of the run {run!r}"
    return f"`cocondenser artifacts verify` sets what is damaged aside, and {command} builds it again"


AGAIN = again("RECIPE")
"""Where the recipe's name is not known."""


@contextmanager
def told(path: Path, again: str = AGAIN) -> Iterator[None]:
    """Raises InputError, naming `path` and what to do, in the place of what reading it raises."""
    try:
        yield
    except PermissionError:
        raise InputError(f"{path}: permission denied") from None
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; {again}") from None
    except MemoryError as error:  # a wrong length may ask for any
        raise InputError(f"{path}: too little memory to read it, or it is damaged; {again}") from error
    except _faults() as error:
        raise InputError(f"{path}: cannot be read ({' '.join(str(error).split())}); {again}") from error


def _faults() -> tuple[type[Exception], ...]:
    """With pyarrow's own where it is loaded, which it is not to read JSON."""
    arrow = sys.modules.get("pyarrow")
    return FAULTS if arrow is None else (*FAULTS, arrow.ArrowException)


def read_json(path: Path, *fields: str) -> dict[str, Any]:
    """The JSON object in a file. Raises InputError, also where it lacks one of `fields`."""
    with told(path):
        found = json.loads(path.read_bytes())
        if not isinstance(found, dict):
            raise ValueError("no JSON object")
        absent = [field for field in fields if field not in found]
        if absent:
            raise ValueError(f"it lacks {absent[0]!r}")
    return found


def read_table(path: Path, columns: Sequence[str] | None = None, filters: Any = None) -> "pyarrow.Table":
    """A Parquet file, with these columns (None: all) and of the rows that pass `filters` (pyarrow's). InputError."""
    with told(path):
        return read_parquet(path, columns=columns and list(columns), filters=filters)


def read_batches(path: Path, columns: Sequence[str] | None, rows: int) -> "Iterator[pyarrow.RecordBatch]":
    """A Parquet file in order, at most `rows` at a time. InputError. Memory: one batch."""
    with told(path), parquet_file(path) as file:
        yield from file.iter_batches(batch_size=rows, columns=columns and list(columns))
