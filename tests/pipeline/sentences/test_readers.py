"""Reading tables of sentences: an error names the file and the line."""

from collections import Counter

import pytest
from pydantic import ValidationError
from sentences import COMMA, LABELS, TAB

from pipeline.errors import InputError
from pipeline.sentences.readers import LabelledConfig, Layout, ScoredConfig, TripletConfig, read_rows

STSB = {"kind": "scored", "layout": TAB, "score": 5, "sentence1": 6, "sentence2": 7, "highest": 5}
NAMED = {"kind": "scored", "layout": COMMA, "score": "score", "sentence1": "a", "sentence2": "b", "highest": 1}
NLI = {"kind": "labelled", "dev": None, "layout": COMMA, "labels": LABELS, "left_out": ["-"],
       "sentence1": "a", "sentence2": "b", "label": "gold"}  # fmt: skip


@pytest.fixture
def read(tmp_path):
    """read(text, base=NAMED, class_=ScoredConfig): the rows of a file of that text."""

    def call(text: str | bytes, base=NAMED, class_=ScoredConfig, counts=None, **fields):
        path = tmp_path / "table.csv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        paths = {"train": path, "dev": path, "test": path}
        config = class_(**{**({} if class_ is LabelledConfig else paths), **base, **fields, "train": path})
        return list(read_rows(config, "train", Counter() if counts is None else counts))

    return call


def test_stsb_is_read_in_its_original_format(read) -> None:
    """Quotes that never close, CRLF, two columns of sources on some lines, blank lines."""
    text = (
        'main-forum\tdeft\t2014\t0001\t0.8\t"Then the captain was gone.\tThen the captain came back.\r\n'
        "\r\n"
        "main-news\theadlines\t2016\t0012\t4\tDriver, drives off\tDriver drives off\tEMM (http://a)\tEMM (http://b)\r\n"
        'main-captions\timages\t2015\t0096\t5.000\tA "superman" shirt \t Ärmel\n'
    )
    assert read(text, STSB) == [
        (1, '"Then the captain was gone.', "Then the captain came back.", pytest.approx(0.16)),
        (3, "Driver, drives off", "Driver drives off", 0.8),
        (4, 'A "superman" shirt', "Ärmel", 1.0),
    ]


def test_quoted_fields_may_contain_separators_and_line_breaks(read) -> None:
    text = '\ufeffb,other,a,score\n"one, two",x,"he said ""no""",0\n"first\n\nthird",x,two,0.5\n'
    assert read(text) == [(2, 'he said "no"', "one, two", 0.0), (5, "two", "first\n\nthird", 0.5)]


def test_columns_may_be_numbers_under_a_header(read) -> None:
    assert read("x,y,z\n1,a,b\n", score=1, sentence1=2, sentence2=3) == [(2, "a", "b", 1.0)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b,score\nx,y,2\n", r"table\.csv:2: score '2' is not between 0 and 1"),
        ("a,b,score\nx,y,-0.1\n", r"table\.csv:2: score '-0\.1' is not between"),
        ("a,b,score\nx,y,1\nx,y,nan\n", r"table\.csv:3: score 'nan' is not between"),
        ("a,b,score\nx,y,inf\n", r"table\.csv:2: score 'inf' is not between"),
        ("a,b,score\nx,y,\n", r"table\.csv:2: score '' is not a number"),
        ("a,b,score\nx,y,high\n", r"table\.csv:2: score 'high' is not a number"),
        ("a,b,score\nx,y,0_1\n", r"table\.csv:2: score '0_1' is not a number"),
        ("a,b,score\nx,y,\u0661\n", r"table\.csv:2: score '\u0661' is not a number"),
        ("a,b,score\nx, ,1\n", r"table\.csv:2: sentence2 is empty"),
        ("a,b,score\nx,y\n", r"table\.csv:2: 2 fields, but score is in column 3"),
        ("a,b,score\nx,y,z,1\n", r"table\.csv:2: 4 fields, but the first line names 3; .* in double quotes"),
        ("a,b,scores\nx,y,1\n", r"table\.csv:1: no column 'score' for score; known are a, b, scores"),
        ("a,b,score,a\nx,y,1,z\n", r"table\.csv:1: more than one column 'a' for sentence1"),
        ('a,b,score\n"x,y,1\nx,y,1\n', r"table\.csv:2: a quote that is not closed.*set layout\.quotes to false"),
        ('a,b,score\n"x" z,y,1\n', r"table\.csv:2: .*set layout\.quotes to false"),
        ("a;b;score\nx;y;1\n", r"table\.csv:1: no column 'a' .*separated by ;: set layout\.separator to semicolon"),
        ("a,b,score\rx,y,1\r", r"table\.csv: its lines end with CR only"),
        (b"a,b,score\nx,\xff,1\n", r"table\.csv:2: invalid UTF-8"),
        ("", r"table\.csv: empty file"),
    ],
)
def test_an_error_is_reported_with_its_line(read, text, message) -> None:
    with pytest.raises(InputError, match=message):
        read(text)


def test_labels_are_read_as_numbers(read) -> None:
    left_out: Counter[str] = Counter()
    text = "gold,a,b\nneutral,x,y\n-,x,y\n contradiction ,x,z\n"
    assert read(text, NLI, LabelledConfig, left_out) == [(2, "x", "y", 2), (4, "x", "z", 0)]
    assert left_out == {"-": 1}
    with pytest.raises(InputError, match=r"table\.csv:2: label 'hidden' is none of contradiction, entailment, neutral"):
        read("gold,a,b\nhidden,x,y\n", NLI, LabelledConfig)


def test_triplets_are_read(read) -> None:
    fields = {"kind": "triplets", "layout": COMMA, "anchor": 3, "positive": 1, "negative": 2}
    assert read("p,n,a\none,two,three\n", fields, TripletConfig) == [(2, "three", "one", "two")]
    assert read("p,n,a\none,two,three,\n", fields, TripletConfig) == [(2, "three", "one", "two")]
    with pytest.raises(InputError, match=r"table\.csv:2: 4 fields, but the first line names 3"):
        read("p,n,a\none, then,two,three\n", fields, TripletConfig)


@pytest.mark.parametrize(
    ("base", "class_", "fields", "message"),
    [
        (STSB, ScoredConfig, {"score": "score"}, "layout.header is false"),
        (STSB, ScoredConfig, {"score": 6}, "must be different columns"),
        (STSB, ScoredConfig, {"highest": 0}, "greater than 0"),
        (NLI, LabelledConfig, {"labels": ["a", "b"]}, "at least 3"),
        (NLI, LabelledConfig, {"labels": ["a", "b", "a"]}, "duplicate label"),
        (NLI, LabelledConfig, {"left_out": ["neutral"]}, "duplicate label"),
    ],
)
def test_invalid_configurations_are_refused(read, base, class_, fields, message) -> None:
    with pytest.raises(ValidationError, match=message):
        read("", base, class_, **fields)


def test_one_column_by_name_and_by_number_is_refused(read) -> None:
    with pytest.raises(InputError, match="two of them are the same column"):
        read("a,b,score\nx,y,1\n", sentence2=1)


def test_a_semicolon_separates_where_the_recipe_says_so(read) -> None:
    layout = Layout(separator="semicolon", quotes=True, header=True)
    assert read("a;b;score\nx, y;z;1\n", layout=layout) == [(2, "x, y", "z", 1.0)]
