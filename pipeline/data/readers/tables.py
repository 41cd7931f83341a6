"""Reads tables of CSV, TSV and JSON. The datasets library only finds the files, because its parsers guess types.

It reads CSV with pandas, which turns 007 into 7 and NA into a missing value; in JSON it turns text into dates.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.data.metadata import UntypedCell
from pipeline.data.text.delimited import has_semicolons, records, tab_separated, unquoted
from pipeline.data.text.text_files import ENDINGS, Location, json_rows, plain_name
from pipeline.errors import InputError
from pipeline.notices import one_line

if TYPE_CHECKING:
    from datasets import DatasetBuilder

KINDS = ("csv", "json")
"""Builders of the library whose files are read here."""
GROUP = 1000
"""Rows of JSON that are searched for columns before the first one is returned."""
PLAIN = 3
"""csv.QUOTE_NONE: quotes are ordinary characters."""
# fmt: off
UNREAD = (
    "comment", "dialect", "doublequote", "encoding", "escapechar", "field", "header", "lineterminator", "nrows",
    "quotechar", "skipfooter", "skipinitialspace", "skiprows",
)
# fmt: on
"""Unsupported options of a dataset's card, which would change the rows."""

Row = dict[str, Any]


def table_rows(builder: "DatasetBuilder", split: str) -> Iterator[tuple[str, Row]]:
    """Yields (file and line, row) of a split, in the order of its files. Cells of CSV and TSV are text as written.

    Raises InputError for an unknown split and for a faulty file.
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
                f"its card sets {name}: {value!r}, which is not supported; convert the table to JSONL or Parquet"
            )


def by_splits(builder: "DatasetBuilder", split: str) -> tuple[dict[str, list[str]], list[str]]:
    """Returns ({split: its files}, the splits that `split` names: one, several as in `train+dev`, or `all`)."""
    config: Any = builder.config
    files = {str(name): [*map(str, paths)] for name, paths in (config.data_files or {}).items()}
    return files, [*files] if split == "all" else [name.strip() for name in split.split("+")]


def _files(builder: "DatasetBuilder", split: str) -> Iterator[Location]:
    from datasets import DownloadConfig, StreamingDownloadManager

    by_split, splits = by_splits(builder, split)
    for name in splits:
        if name not in by_split:
            raise InputError(f"no split {name!r} among {', '.join(by_split)}")
    manager = StreamingDownloadManager(
        base_path=builder.base_path,
        download_config=DownloadConfig(token=builder.token, storage_options=builder.storage_options),
    )
    for source in (source for name in splits for source in by_split[name]):
        for file in manager.iter_files(manager.download_and_extract(source)):
            local = Path(source if Path(source).suffix in ENDINGS else file)
            yield local if local.is_file() else file


def _name(path: Location) -> str:
    """Returns the table's name without the ending of its compression, also from `zip://a/b.tsv::/c.zip`."""
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
    """Yields the rows by column name. `names` None: read from the first line. A column without a name is left out."""
    if names is None:
        place, names = next(cells, ("", []))
        twice = next((name for n, name in enumerate(names) if name and name in names[:n]), None)
        if twice is not None:
            raise InputError(f"{place}: two columns are called '{one_line(twice)}'")
    for place, fields in cells:
        if len(fields) < len(names) or any(field.strip() for field in fields[len(names) :]):
            raise InputError(f"{place}: {len(names)} columns expected, {len(fields)} found{separator_hint(names)}")
        yield place, {name: UntypedCell(field) for name, field in zip(names, fields, strict=False) if name}


def separator_hint(names: Sequence[str]) -> str:
    """Returns advice if the columns' names show another separator, otherwise an empty text."""
    if not has_semicolons(names):
        return ""
    return "; its separator seems to be ;: write `sep: ;` next to `data_files` in the card, or save it with commas"


def _with_all_columns(placed: Iterator[tuple[str, Row]]) -> Iterator[tuple[str, Row]]:
    """Yields the rows with null for absent columns. Columns are those of the first GROUP rows and of earlier ones."""
    columns: Row = {}
    while group := list(islice(placed, GROUP)):
        for _, row in group:
            columns.update(dict.fromkeys(row))
        for place, row in group:
            yield place, columns | row
