"""Tables of CSV, TSV and JSON by way of the datasets library, which only finds the files: it would guess types.

Its CSV is that of pandas, to which 007 is 7 and NA is nothing; its JSON takes text that looks like a date for one.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.data.delimited import has_semicolons, records, tab_separated, unquoted
from pipeline.data.metadata import Cell
from pipeline.data.text_files import ENDINGS, Location, json_rows, plain_name
from pipeline.errors import InputError
from pipeline.notices import one_line

if TYPE_CHECKING:
    from datasets import DatasetBuilder

KINDS = ("csv", "json")
"""Builders of the library whose files are read here."""
GROUP = 1000
"""Rows of JSON that are looked through for columns before the first one is given."""
PLAIN = 3
"""csv.QUOTE_NONE: quotes are letters."""
# fmt: off
UNREAD = (
    "comment", "dialect", "doublequote", "encoding", "escapechar", "field", "header", "lineterminator", "nrows",
    "quotechar", "skipfooter", "skipinitialspace", "skiprows",
)
# fmt: on
"""Options that a dataset's card may set, and that would change what is read."""

Row = dict[str, Any]


def rows(builder: "DatasetBuilder", split: str) -> Iterator[tuple[str, Row]]:
    """(file and line, row) of a split, in the order of its files. Cells of CSV and TSV are text as written.

    Raises InputError for a split that is not there and for what is wrong with a file.
    """
    config: Any = builder.config
    _check_options(config)
    paths = _files(builder, split)
    if builder.info.builder_name == "json":
        yield from _with_all_columns(placed for path in paths for placed in json_rows(path))
    else:
        for path in paths:
            yield from _named(path, _cells(path, config), config.names)


def _check_options(config: Any) -> None:
    usual = type(config)()
    for name in UNREAD:
        value = getattr(config, name, None)
        if value not in (getattr(usual, name, None), "utf-8"):
            raise InputError(
                f"its card sets {name}: {value!r}, which is not read here; turn the table into JSONL or Parquet"
            )


def by_splits(builder: "DatasetBuilder", split: str) -> tuple[dict[str, list[str]], list[str]]:
    """({split: its files}, the splits that `split` names: one, several as in `train+dev`, or `all`)."""
    config: Any = builder.config
    found = {str(name): [*map(str, paths)] for name, paths in (config.data_files or {}).items()}
    return found, [*found] if split == "all" else [name.strip() for name in split.split("+")]


def _files(builder: "DatasetBuilder", split: str) -> Iterator[Location]:
    from datasets import DownloadConfig, StreamingDownloadManager

    by_split, wanted = by_splits(builder, split)
    for name in wanted:
        if name not in by_split:
            raise InputError(f"no split {name!r} among {', '.join(by_split)}")
    manager = StreamingDownloadManager(
        base_path=builder.base_path,
        download_config=DownloadConfig(token=builder.token, storage_options=builder.storage_options),
    )
    for given in (given for name in wanted for given in by_split[name]):
        for found in manager.iter_files(manager.download_and_extract(given)):
            local = Path(given if Path(given).suffix in ENDINGS else found)
            yield local if local.is_file() else found


def _name(path: Location) -> str:
    """Of `zip://a/b.tsv::/c.zip` too, the name of the table without the ending of its compression."""
    return plain_name(Path(str(path).split("::")[0]))


def _cells(path: Location, config: Any) -> Iterator[tuple[str, list[str]]]:
    if config.quoting == PLAIN:
        return ((f"{path}:{number}", fields) for number, fields in unquoted(path, config.sep))
    if config.sep == "\t" or (config.sep == "," and _name(path).endswith(".tsv")):
        return tab_separated(path)
    return ((f"{path}:{first}", fields) for first, _, fields in records(path, config.sep))


def _named(
    path: Location, cells: Iterator[tuple[str, list[str]]], names: Sequence[str] | None
) -> Iterator[tuple[str, Row]]:
    """The rows by the columns' `names`; None: those of the first line. A column without a name is left out."""
    if names is None:
        place, names = next(cells, ("", []))
        twice = next((name for n, name in enumerate(names) if name and name in names[:n]), None)
        if twice is not None:
            raise InputError(f"{place}: two columns are called '{one_line(twice)}'")
    for place, fields in cells:
        if len(fields) < len(names) or any(field.strip() for field in fields[len(names) :]):
            raise InputError(f"{place}: {len(names)} columns expected, {len(fields)} found{separator_hint(names)}")
        yield place, {name: Cell(field) for name, field in zip(names, fields, strict=False) if name}


def separator_hint(names: Sequence[str]) -> str:
    """What to do where the columns' names show another separator; else empty."""
    if not has_semicolons(names):
        return ""
    return (
        "; its fields seem to be separated by ;: write `sep: ;` beside `data_files` in the card, or save it with commas"
    )


def _with_all_columns(found: Iterator[tuple[str, Row]]) -> Iterator[tuple[str, Row]]:
    """The rows, null where they lack a column of the first GROUP or of an earlier one."""
    columns: Row = {}
    while group := list(islice(found, GROUP)):
        for _, row in group:
            columns.update(dict.fromkeys(row))
        for place, row in group:
            yield place, columns | row
