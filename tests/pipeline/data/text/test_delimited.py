"""CSV and TSV, which have different rules for quotes."""

import csv
import io

import pytest
from writing import put

from pipeline.data.text.delimited import UnclosedQuote, has_semicolons, records, tab_separated, unquoted
from pipeline.errors import InputError

TEXTS = [
    '"Once upon a time, said the miller.',
    'once upon a time"',
    '"To be or not to be."',
    'He said "no" and 5" of rain',
    '"a" and "b"',
    "007",
    "",
    '""',
    " spaces ",
    "it's",
]
"""Texts as print() writes them, with any quotes inside."""


@pytest.mark.parametrize("text", TEXTS)
def test_a_line_is_split_only_at_tabs(tmp_path, text):
    path = put(tmp_path, "p.tsv", f"1\t{text}\tThe mill", "2\tother\ttitle")
    assert [*tab_separated(path)] == [(f"{path}:1", ["1", text, "The mill"]), (f"{path}:2", ["2", "other", "title"])]


@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
@pytest.mark.parametrize("text", ['Aaron ( or ; "Aharon") is', '"', '"To be."', '"a" "b"', "plain", "", "it's, or not"])
def test_quotes_of_a_csv_writer_are_removed(tmp_path, text, quoting):
    written = io.StringIO()
    csv.writer(written, delimiter="\t", quoting=quoting, lineterminator="\n").writerow(["1", text, "Aaron"])
    (tmp_path / "p.tsv").write_text(written.getvalue())
    assert [fields for _, fields in tab_separated(tmp_path / "p.tsv")] == [["1", text, "Aaron"]]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (["a,b", "1,2"], [(1, 1, ["a", "b"]), (2, 2, ["1", "2"])]),
        (['a,"b', "", 'c"",d"', "e,f"], [(1, 3, ["a", 'b\n\nc",d']), (4, 4, ["e", "f"])]),
        (['"5"" pipe",it is 3\' long'], [(1, 1, ['5" pipe', "it is 3' long"])]),
        (['"a","b"', "", '"","NA"'], [(1, 1, ["a", "b"]), (3, 3, ["", "NA"])]),
        (['say "no", and go,x'], [(1, 1, ['say "no"', " and go", "x"])]),
    ],
)
def test_records(tmp_path, rows, expected):
    assert [*records(put(tmp_path, "t.csv", *rows), ",")] == expected


@pytest.mark.parametrize("inside", ["\r\n", "\n", "\r", "\r\n\r\n", "\n\r\n", "\r\r\n", " \r\n"])
@pytest.mark.parametrize("end", ["\r\n", "\n"])
def test_line_ends_in_quotes_are_kept_unchanged(tmp_path, inside, end):
    path = put(tmp_path, "t.csv", "id,text,more", f'1,"a{inside}b",c', f'2,c,"{inside}"', end=end)
    rows = [fields for _, _, fields in records(path, ",")]
    assert rows == [["id", "text", "more"], ["1", f"a{inside}b", "c"], ["2", "c", inside]]
    path.write_bytes(path.read_bytes().removesuffix(end.encode()))
    assert [fields for _, _, fields in records(path, ",")] == rows


BLANK = ["", " ", "{0}", " {0} ", "\u3000{0}{0}"]


@pytest.mark.parametrize("blank", BLANK)
@pytest.mark.parametrize("end", ["\r\n", "\n"])
def test_every_reader_skips_rows_of_blank_fields(tmp_path, blank, end):
    def lines(separator):
        row = separator.join
        return [row("ab"), blank.format(separator), row(["", "1"]), blank.format(separator)]

    comma, tab = (put(tmp_path, f"t.{name}", *lines(sign), end=end) for name, sign in (("csv", ","), ("tsv", "\t")))
    assert [*records(comma, ",")] == [(1, 1, ["a", "b"]), (3, 3, ["", "1"])]
    assert [*unquoted(comma, ",")] == [(1, ["a", "b"]), (3, ["", "1"])]
    assert [*tab_separated(tab)] == [(f"{tab}:1", ["a", "b"]), (f"{tab}:3", ["", "1"])]


READERS = {
    "csv": lambda path: records(path, ","),
    "tsv": tab_separated,
    "plain": lambda path: unquoted(path, ","),
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("text", ["a,b\r1,2\r", "a,b\r1,2", '"a","b"\r"1","2"\r', "a\tb\r1\t2\r"])
def test_lines_that_end_with_cr_only_are_refused_with_advice(tmp_path, name, text):
    path = put(tmp_path, "t", text, end="")
    with pytest.raises(InputError, match=r"t: its lines end with CR only; save it with LF or CRLF"):
        list(READERS[name](path))


@pytest.mark.parametrize("row", ["1,a\rb", '1,"a"\r2,b', "1,\ra"])
def test_a_cr_without_lf_outside_quotes_is_reported_with_its_line(tmp_path, row):
    with pytest.raises(InputError, match=r"t\.csv:2: holds a CR without LF outside quotes; save it with LF or CRLF"):
        list(records(put(tmp_path, "t.csv", "id,text", row, "3,c"), ","))


@pytest.mark.parametrize(
    ("header", "expected"), [("a;b", True), ("a; b;c", True), ("a", False), ("a,b", False), ("a;b,c", False)]
)
def test_semicolons_are_detected_from_the_header(header, expected):
    assert has_semicolons(header.split(",")) == expected


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        (["id,text", '1,"Once upon a time', "2,more", "3,end"], 2),  # swallows the rest of the file
        (["id,text", '1,"Once upon', '2,"a time"'], 2),  # closes where the next field opens
        (["id,text", '1,"a" b', "2,c"], 2),
        (["id,text,title", '1,"a', 'b","c', "2,d,e"], 3),  # the second field of the record
        (["id,text", "1,a", '2,"', ""], 3),
        (['"id,text', "1,a"], 1),
        (["id,text", '1,5" pipe', "2,b"], 2),  # or the line is cut
        (["id,text", '1, "a, b"'], 2),
        (["id,text", '1,"a"" ', "2,b"], 2),
    ],
)
def test_an_unclosed_quote_is_reported_at_the_line_where_its_field_begins(tmp_path, rows, line):
    path = put(tmp_path, "t.csv", *rows)
    with pytest.raises(UnclosedQuote, match=rf"t\.csv:{line}: a quote that is not closed"):
        list(records(path, ","))
    semicolons = put(tmp_path, "t.csv", *(row.replace(",", ";") for row in rows))
    with pytest.raises(UnclosedQuote, match=rf"t\.csv:{line}: "):
        list(records(semicolons, ";"))
