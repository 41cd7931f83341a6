"""Further columns of the passages, such as source, language or date: written by ingest, read by row number.

`metadata.parquet` has one row per passage, in passage order. The type of a column is known only at the end of the
source: values are first written as text and then cast. Neither step needs more memory than a row group.
"""

import math
import re
import tempfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from itertools import islice
from pathlib import Path
from typing import IO, Annotated, TypeVar

from pydantic import AfterValidator

from pipeline.data.collection import PASSAGE_COLUMNS, ROWS, Passage, at_rows, passage_count
from pipeline.data.parquet import parquet_file, parquet_writer
from pipeline.data.stored import AGAIN, input_error_on_read, read_json
from pipeline.errors import InputError
from pipeline.notices import one_line
from pipeline.runtime.work import Metrics

FILE = "metadata.parquet"
EXACT = 2**53  # float64 holds every integer up to here
ISO_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
SHOWN = 30  # names in a message
ALIASES = {"boolean": "bool", "integer": "int64", "float": "double", "date": "date32", "text": "string"}
"""{type of a column: pyarrow's name for it}."""
HOLDS = {"boolean": {"boolean"}, "date": {"date"}, "integer": {"integer", "long"}, "float": {"integer", "float"}}
"""{type of a column: kinds of values that it may hold}. A column of text holds all kinds."""
NUMBER = re.compile(r"-?(?:(?:0|[1-9][0-9]*)(\.[0-9]*)?|(\.[0-9]+))([eE][+-]?[0-9]+)?")
"""A number as written in a cell. 007 is not a number."""
BOOLEANS = {"true", "false", "True", "False", "TRUE", "FALSE"}
ABSENT = ("NA", "N/A", "n/a", "<NA>", "#N/A", "NaN", "nan", "NULL", "null", "None")
"""Cells that mean a missing value, in columns of other types than text."""

Value = bool | int | float | str | None
"""Dates are text: YYYY-MM-DD."""


class UntypedCell(str):
    """A value of an untyped file (CSV, TSV), as written."""

    __slots__ = ()

    @property
    def kind(self) -> str:
        """The kind of value that it looks like."""
        number = NUMBER.fullmatch(self)
        if number and any(number.groups()):
            return "float"
        if number:
            return "text" if len(self) > 20 else _integer(int(self))  # 64 bits have 19 digits
        if self in ABSENT:
            return "absent"
        return "boolean" if self in BOOLEANS else "date" if _is_day(self) else "text"


Strings = TypeVar("Strings", bound=tuple[str, ...])


def distinct(names: Strings) -> Strings:
    """Raises ValueError for names that SQL cannot distinguish from each other or from PASSAGE_COLUMNS."""
    folded = [name.lower() for name in names]
    for name, lower in zip(names, folded, strict=True):
        if not name.strip() or not name.isprintable():
            raise ValueError(f"{name!r} is not a valid column name")
        if lower in PASSAGE_COLUMNS:
            raise ValueError(f"{name!r} is a column of every collection, as are {', '.join(PASSAGE_COLUMNS)}")
        if folded.count(lower) > 1:
            raise ValueError(f"names {name!r} twice (upper and lower case are the same)")
    return names


Names = Annotated[tuple[str, ...], AfterValidator(distinct)]
"""Names of further columns."""


@dataclass
class _Column:
    name: str
    kinds: set[str] = field(default_factory=set)
    nulls: int = 0
    absent: int = 0
    """Cells of ABSENT."""

    def text(self, place: str, value: object) -> str | None:
        """Returns the value as text. Raises InputError for a value that is not text, a number or a date."""
        if (
            value is None
            or (isinstance(value, UntypedCell) and not value)
            or (isinstance(value, float) and not math.isfinite(value))
        ):
            self.nulls += 1
            return None
        kind, text = _written(value)
        if not kind:
            what = type(value).__name__
            name = one_line(self.name)
            raise InputError(f"{place}: ingest.metadata: '{name}' is neither text, number nor date, but a {what}")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InputError(f"{place}: '{one_line(self.name)}' holds half of a surrogate pair") from None
        if kind == "absent":
            self.absent += 1
        else:
            self.kinds.add(kind)
        return text

    @property
    def missing(self) -> int:
        """Number of missing values. A cell of ABSENT is one, unless the column's type is text."""
        return self.nulls + (self.absent if self.type != "text" else 0)

    @property
    def type(self) -> str:
        return next((type_ for type_, kinds in HOLDS.items() if self.kinds and self.kinds <= kinds), "text")


def _written(value: object) -> tuple[str, str]:
    """Returns (kind, text) of a value; ("", "") if a column cannot hold it."""
    if isinstance(value, UntypedCell):
        return value.kind, str(value)
    if isinstance(value, str):
        return ("date" if _is_day(value) else "text"), value
    if isinstance(value, bool):
        return "boolean", str(value).lower()
    if isinstance(value, int):
        return _integer(value), str(value)
    if isinstance(value, float):
        return "float", repr(value)
    if isinstance(value, datetime):
        return "text", value.isoformat()
    return ("date", value.isoformat()) if isinstance(value, date) else ("", "")


def _integer(value: int) -> str:
    return "integer" if abs(value) <= EXACT else "long" if -(2**63) <= value < 2**63 else "text"


def _is_day(text: str) -> bool:
    if not ISO_DATE.fullmatch(text):
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def demand(place: str, names: Iterable[str], there: Collection[str]) -> None:
    """Raises InputError for a name that is not in `there`, and lists those that are."""
    for name in names:
        if name not in there:
            listed = [*islice(sorted(there), SHOWN), *(["..."] if len(there) > SHOWN else [])]
            among = f"among {', '.join(listed)}" if listed else "besides the text"
            raise InputError(f"{place}: ingest.metadata: no column '{one_line(name)}' {among}")


def keep_metadata(
    placed: Iterable[tuple[str, Passage]], names: Sequence[str], folder: Path, counts: Metrics
) -> Iterator[Passage]:
    """Yields the passages, and writes `names` of their metadata into `folder` by the end. No names: no file.

    Absent values, nulls and numbers that are not finite become null. A column of 64-bit integers is integer; with other
    numbers among them it is float, if float64 holds them all exactly; true and false give boolean; YYYY-MM-DD gives
    date; everything else, and any mixture, is text. A Cell has the type that it looks like; in a column of text it
    stays as written. `counts` gets the types of the columns, and the number of passages without each.
    Raises InputError for a nested value and for a name that no passage has.
    """
    if not names:
        yield from (passage for _, passage in placed)
        return
    import pyarrow as pa

    columns, stream = [_Column(name) for name in names], iter(placed)
    unseen, there = set(names), set[str]()
    schema = pa.schema([(name, pa.string()) for name in names])
    with tempfile.TemporaryFile(dir=folder) as file:
        with parquet_writer(file, schema, compression="zstd") as writer:
            while group := list(islice(stream, ROWS)):
                texts = [[c.text(place, row.metadata.get(c.name)) for place, row in group] for c in columns]
                writer.write_table(pa.Table.from_arrays([pa.array(c, pa.string()) for c in texts], schema=schema))
                for _, row in group:
                    if unseen:
                        unseen.difference_update(row.metadata)
                        there.update(row.metadata if len(there) <= SHOWN else ())
                    yield row
        demand("the source", [name for name in names if name in unseen], there)
        _cast(file, columns, folder / FILE)
    counts.update({f"without_{column.name}": column.missing for column in columns})
    counts["metadata"] = ", ".join(f"{column.name}: {column.type}" for column in columns)


def _cast(file: IO[bytes], columns: Sequence[_Column], path: Path) -> None:
    """Casts the text columns of `file` to their types, one row group at a time."""
    import pyarrow as pa
    import pyarrow.compute as pc

    schema = pa.schema([(column.name, pa.type_for_alias(ALIASES[column.type])) for column in columns])
    with parquet_file(file) as text, parquet_writer(path, schema, compression="zstd") as writer:
        for group in range(text.num_row_groups):
            table = text.read_row_group(group)
            for n, column in enumerate(columns):
                if column.absent and column.type != "text":
                    absent = pc.is_in(table[n], value_set=pa.array(ABSENT))
                    table = table.set_column(n, column.name, pc.if_else(absent, pa.scalar(None, pa.string()), table[n]))
            writer.write_table(table.cast(schema))


def types(collection: Path) -> dict[str, str]:
    """Returns {name: boolean, integer, float, date or text} of the further columns; empty if there are none.

    Raises InputError for a table that is lost, damaged or belongs to other passages.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = collection / FILE
    if not _keeps(collection):
        return {}
    with input_error_on_read(path):
        footer = pq.read_metadata(path)
    passages = passage_count(collection)
    if footer.num_rows != passages:
        raise InputError(f"{path}: {footer.num_rows:,} rows for {passages:,} passages; {AGAIN}")
    names = {pa.type_for_alias(alias): name for name, alias in ALIASES.items()}
    return {column.name: names[column.type] for column in footer.schema.to_arrow_schema()}


def _keeps(collection: Path) -> bool:
    """Returns whether there are further columns. If the table is absent, ingest.json shows whether it was lost."""
    counts = collection / "ingest.json"
    return (collection / FILE).exists() or (counts.exists() and "metadata" in read_json(counts))


def read_metadata(collection: Path, rows: Sequence[int]) -> list[dict[str, Value]]:
    """Reads the metadata of the passages with these row numbers, in this order; {} for each if the collection has none.

    Reads only the row groups that hold them. Raises InputError for a table that is lost or damaged.
    """
    if not _keeps(collection):
        return [{} for _ in rows]
    records = at_rows(collection / FILE, rows).to_pylist()
    return [{name: plain(value) for name, value in record.items()} for record in records]


def plain(value: Value | date) -> Value:
    """Returns the value as JSON can hold it: dates as text."""
    return value.isoformat() if isinstance(value, date) else value
