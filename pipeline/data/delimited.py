"""CSV and TSV: fields as the file has them, each a text. TSV is not CSV: there a quote is a letter like others.

Records all of whose fields are blank are passed over.
"""

import csv
import re
from collections.abc import Iterator, Sequence

from pipeline.data.text_files import OTHER_ENDS, Location, table_lines
from pipeline.errors import InputError

FIELD_LIMIT = 1 << 27
"""Characters of one CSV field; the csv module's own limit is 128 KiB."""
QUOTED = re.compile(r'"[^"]*(?:""[^"]*)*"')
"""A field as a CSV writer quotes it."""


class UnclosedQuote(InputError):
    """A quote that does not close, or text after one that does."""


def tab_separated(path: Location) -> Iterator[tuple[str, list[str]]]:
    """(place, fields) of each line, split at tabs alone. What a CSV writer has quoted is freed of that.

    DPR's psgs_w100.tsv and many a TSV table were written by one: such a writer quotes a field that holds a quote, and
    doubles those within, or else quotes all fields. Any other quote was in the text and stays there, so that no field
    reaches beyond its tab and its line.
    """
    for number, fields in unquoted(path, "\t"):
        yield f"{path}:{number}", _freed(fields) if any('"' in field for field in fields) else fields


def unquoted(path: Location, separator: str) -> Iterator[tuple[int, list[str]]]:
    """(line, fields) of each line, split at separators alone: a quote is a letter."""
    for number, line in table_lines(path, blank=True, ends=True):
        fields = line.rstrip("\r\n").split(separator)
        if not _is_blank(fields):
            yield number, fields


def has_semicolons(header: Sequence[str]) -> bool:
    """Whether the file's separator is another than it was read by: there is one column, which holds semicolons."""
    return len(header) == 1 and ";" in header[0]


def _is_blank(fields: Sequence[str]) -> bool:
    return not any(field.strip() for field in fields)


def tab_columns(path: Location, count: int) -> Iterator[tuple[str, list[str]]]:
    """`tab_separated`, of `count` columns. Raises InputError for another number."""
    for place, fields in tab_separated(path):
        if len(fields) != count:
            raise InputError(f"{place}: {count} columns expected, {len(fields)} found")
        yield place, fields


def _freed(fields: list[str]) -> list[str]:
    quoted = [QUOTED.fullmatch(field) is not None for field in fields]
    return [
        field[1:-1].replace('""', '"') if is_quoted and (all(quoted) or '""' in field[1:-1]) else field
        for field, is_quoted in zip(fields, quoted, strict=True)
    ]


def records(path: Location, separator: str) -> Iterator[tuple[int, int, list[str]]]:
    """(first line, last line, fields) of each record of a CSV file (RFC 4180).

    Fields in quotes may hold separators, ends of lines (kept as they are) and, doubled, quotes. Raises UnclosedQuote,
    with the line where the field begins; so it does for an odd number of quotes within a field without them, which may
    have been cut.
    """
    csv.field_size_limit(FIELD_LIMIT)
    begun: list[tuple[int, str]] = []

    def texts() -> Iterator[str]:
        for number, line in table_lines(path, blank=True, ends=True):
            begun.append((number, line))
            yield line

    try:
        for fields in csv.reader(texts(), delimiter=separator, strict=True):
            if any('"' in line for _, line in begun):
                _check_quotes(path, begun, separator)
            if not _is_blank(fields):
                yield begun[0][0], begun[-1][0], fields
            begun.clear()
    except csv.Error as error:
        if "new-line character" in str(error):
            raise InputError(f"{path}:{begun[-1][0]}: holds a CR alone outside quotes; {OTHER_ENDS}") from None
        _check_quotes(path, begun, separator)
        raise InputError(f"{path}:{begun[-1][0]}: {error}") from None


def _check_quotes(path: Location, record: list[tuple[int, str]], separator: str) -> None:
    """Raises UnclosedQuote for the (number, line) of a record where a field's quotes are wrong."""
    text = "".join(line for _, line in record).rstrip("\r\n") + "\n"
    end, at = re.compile(f"{re.escape(separator)}|\r*\n"), 0
    while at < len(text):
        field = QUOTED.match(text, at)
        stop = end.match(text, field.end()) if field else end.search(text, at)
        if stop is None or (field is None and text.count('"', at, stop.start()) % 2):
            raise UnclosedQuote(
                f"{path}:{record[0][0] + text.count(chr(10), 0, at)}: a quote that does not close, or text after one "
                "that does; write a field that holds a quote in quotes, and double the quote in it"
            )
        at = stop.end()
