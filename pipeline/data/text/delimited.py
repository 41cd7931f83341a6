"""CSV and TSV: each field is a string, as written in the file. In TSV a quote is an ordinary character.

Records with only blank fields are skipped.
"""

import csv
import re
from collections.abc import Iterator, Sequence

from pipeline.data.text.text_files import OTHER_ENDS, Location, table_lines
from pipeline.errors import InputError

FIELD_LIMIT = 1 << 27
"""Maximum characters of a CSV field; the default of the csv module is 128 KiB."""
QUOTED = re.compile(r'"[^"]*(?:""[^"]*)*"')
"""A field in quotes, as a CSV writer produces it."""


class UnclosedQuote(InputError):
    """A quoted field that is not closed, or text after its closing quote."""


def tab_separated(path: Location) -> Iterator[tuple[str, list[str]]]:
    """Yields (place, fields) of each line, split only at tabs. The quoting of CSV writers is removed.

    DPR's psgs_w100.tsv and many other TSV tables come from a CSV writer. It quotes a field that holds a quote and
    doubles the quotes inside, or it quotes all fields. Any other quote belongs to the text and stays, so that no field
    extends beyond its tab or its line.
    """
    for number, fields in unquoted(path, "\t"):
        yield f"{path}:{number}", _without_quoting(fields) if any('"' in field for field in fields) else fields


def unquoted(path: Location, separator: str) -> Iterator[tuple[int, list[str]]]:
    """Yields (line number, fields) of each line, split only at separators: a quote is an ordinary character."""
    for number, line in table_lines(path, blank=True, ends=True):
        fields = line.rstrip("\r\n").split(separator)
        if not _is_blank(fields):
            yield number, fields


def has_semicolons(header: Sequence[str]) -> bool:
    """Returns whether the file seems to be separated by semicolons: its only column holds some."""
    return len(header) == 1 and ";" in header[0]


def _is_blank(fields: Sequence[str]) -> bool:
    return not any(field.strip() for field in fields)


def tab_columns(path: Location, count: int) -> Iterator[tuple[str, list[str]]]:
    """Yields the rows of `tab_separated`. Raises InputError for a row without exactly `count` columns."""
    for place, fields in tab_separated(path):
        if len(fields) != count:
            raise InputError(f"{place}: {count} columns expected, {len(fields)} found")
        yield place, fields


def _without_quoting(fields: list[str]) -> list[str]:
    quoted = [QUOTED.fullmatch(field) is not None for field in fields]
    return [
        field[1:-1].replace('""', '"') if is_quoted and (all(quoted) or '""' in field[1:-1]) else field
        for field, is_quoted in zip(fields, quoted, strict=True)
    ]


def records(path: Location, separator: str) -> Iterator[tuple[int, int, list[str]]]:
    """Yields (first line, last line, fields) of each record of a CSV file (RFC 4180).

    Quoted fields may hold separators, line ends (kept unchanged) and doubled quotes. Raises UnclosedQuote, with the
    line where the field begins, also for an odd number of quotes in an unquoted field, which may have been cut.
    """
    csv.field_size_limit(FIELD_LIMIT)
    record: list[tuple[int, str]] = []

    def texts() -> Iterator[str]:
        for number, line in table_lines(path, blank=True, ends=True):
            record.append((number, line))
            yield line

    try:
        for fields in csv.reader(texts(), delimiter=separator, strict=True):
            if any('"' in line for _, line in record):
                _check_quotes(path, record, separator)
            if not _is_blank(fields):
                yield record[0][0], record[-1][0], fields
            record.clear()
    except csv.Error as error:
        if "new-line character" in str(error):
            raise InputError(f"{path}:{record[-1][0]}: holds a CR without LF outside quotes; {OTHER_ENDS}") from None
        _check_quotes(path, record, separator)
        raise InputError(f"{path}:{record[-1][0]}: {error}") from None


def _check_quotes(path: Location, record: list[tuple[int, str]], separator: str) -> None:
    """Raises UnclosedQuote if a field of the record is quoted wrongly. `record`: (line number, line) of its lines."""
    text = "".join(line for _, line in record).rstrip("\r\n") + "\n"
    end, at = re.compile(f"{re.escape(separator)}|\r*\n"), 0
    while at < len(text):
        field = QUOTED.match(text, at)
        stop = end.match(text, field.end()) if field else end.search(text, at)
        if stop is None or (field is None and text.count('"', at, stop.start()) % 2):
            raise UnclosedQuote(
                f"{path}:{record[0][0] + text.count(chr(10), 0, at)}: a quote that is not closed, or text after a "
                "closing quote; put a field that holds a quote in quotes, and double the quote in it"
            )
        at = stop.end()
