"""Conditions select exactly the passages that filtering afterwards would keep, and give access to nothing else."""

import math
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from described import described
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.data import filter, filter_syntax
from pipeline.data.filter import Where
from pipeline.errors import InputError

ROWS = [
    {"source": "numpy", "year": 2020, "score": 0.5, "open": True, "day": "2024-01-31"},
    {"source": "scipy", "year": 2021, "score": -1.0, "open": False, "day": "2024-02-01"},
    {"source": "NumPy", "year": None, "score": None, "open": None, "day": None},
    {"source": None, "year": 2020, "score": 1e300, "open": True, "day": "1999-12-31"},
    {"source": 'it\'s "ünï"', "year": -5, "score": 0.0, "open": False, "day": "2024-02-29"},
]


@pytest.fixture(scope="module")
def described_collection(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("described")
    described(folder, ROWS)
    return folder


@pytest.fixture(scope="module")
def where(described_collection):
    """A function from a condition to the rows of which it is true."""
    whole = Where(described_collection)
    return lambda expression: np.flatnonzero(whole.rows(expression)).tolist()


@pytest.mark.parametrize(
    ("expression", "rows"),
    [
        ("source = 'numpy'", [0]),
        (" SOURCE = 'numpy' AND \"Year\" >= 2000 -- so", [0]),
        ("source <> 'numpy'", [1, 2, 4]),  # for NULL neither the condition nor its negation is true
        ("not source <> 'numpy'", [0]),
        ("source is null", [3]),
        ("source is distinct from 'numpy'", [1, 2, 3, 4]),
        ("source in ('scipy', 'numpy')", [0, 1]),
        ("source not in ('scipy', 'numpy')", [2, 4]),
        ("source in ('scipy', null)", [1]),
        ("source = 'it''s \"ünï\"'", [4]),
        ("source like 'num%'", [0]),
        ("source ilike '_umpy'", [0, 2]),
        ("lower(source) = 'numpy' or year < 0", [0, 2, 4]),
        ("source ~ '^n.*y$'", [0]),
        ("starts_with(source, 'it')", [4]),
        ("year between 2020 and 2021 and not open", [1]),
        ("year = '2020'", [0, 3]),
        ("year + 1 > 2021.5", [1]),
        ("coalesce(year, 0) = 0", [2]),
        ("case when open then year = 2020 else score = 0 end", [0, 3, 4]),
        ("open", [0, 3]),
        ("open is not true", [1, 2, 4]),
        ("score > 1e299 or score < -.5", [1, 3]),
        ("day >= '2024-02-01'", [1, 4]),
        ("day < date '2024-02-01' + interval 3 day and year(day) = 2024", [0, 1]),
        ("extract(month from day) = 2", [1, 4]),
        ("cast(day as varchar) like '2024-%'", [0, 1, 4]),
        ("try_cast(source as integer) is null", [0, 1, 2, 3, 4]),
        ("doc_id = 'd1'", [2, 3]),
        ("title = 'Title 3' or passage_id = 'p1'", [1, 3]),
        ("title like '% 4' and source is not null", [4]),
        ("true", [0, 1, 2, 3, 4]),
        ("open) or (year < 0", [0, 3, 4]),  # brackets that close and open again are harmless
        ("year = null", []),
    ],
)
def test_conditions(where, expression, rows):
    assert where(expression) == rows


TYPE_MISMATCH = r"\((\w+ is \w+(, )?)+\)$"
BAD = {
    "empty": ("  \n", "the condition is empty; leave it out to search all passages$"),
    "unknown column": (
        "sorce = 'a'",
        r"no column 'sorce' among source \(text\), year \(integer\), .*; did you mean so",
    ),
    "far from any": ("language = 'a'", r"no column 'language' among .*; the recipe's ingest.metadata names further"),
    "double quotes": ('source = "numpy1"', r"no column 'numpy1' among .*; .* single quotes: 'numpy1'$"),
    "the texts": ("text = 'text'", "no column 'text' among"),
    "syntax": ("source = 'numpy' und", "syntax error at character 18: und$"),
    "syntax after other letters": ("'ü' = 'ü' und", "syntax error at character 11: und$"),
    "cut short": ("source =", "syntax error at the end of the condition$"),
    "open quote": ("source = 'numpy", r"unterminated string literal at character 10: 'numpy$"),
    "a list": ("open, open", "one condition is expected, not a list$"),
    "only a comment": ("-- open", "one condition is expected, not a list$"),
    "no condition": ("source", "the value is VARCHAR, not true or false"),
    "a number": ("1", "the value is INTEGER, not true or false"),
    "text and number": ("source = 3", "source is text: compare it with '3', in single quotes$"),
    "text among numbers": ("source in ('a', 3)", "source is text: compare it with '3'"),
    "text between numbers": ("source between 1 and 2", "source is text: compare it with '1'"),
    "number and text": ("year = 'abc'", "Could not convert string 'abc' to INT64 " + TYPE_MISMATCH),
    "a text that is no number": ("cast(source as integer) = 1", "Could not convert string 'numpy'.*" + TYPE_MISMATCH),
    "no date": ("day > 'yesterday'", "invalid date field format.*" + TYPE_MISMATCH),
    "function of another type": ("lower(year) = 'a'", r"No function matches .*lower\(BIGINT\).*" + TYPE_MISMATCH),
    "no pattern": ("source ~ '('", r"missing \).*" + TYPE_MISMATCH),
    "remainder of nothing": ("year % 0 = 1", r"Division by zero in expression \(year % 0\)\. " + TYPE_MISMATCH),
    "too long": ("open or " * 300 + "open", "the condition has more than 2,000 characters or 100 brackets$"),
    "too many brackets": ("(" * 101 + "open" + ")" * 101, "the condition has more than 2,000 characters or 100 br"),
    "too deep": ("+ " * 990 + "1 = 1", "the condition is nested too deeply$"),
    "too deep next to it": (
        "true), false), coalesce((" + "+ " * 200 + "year",
        "(the condition is nested too deeply|one condition is expected, .*)$",
    ),
    "half a surrogate pair": ("source = '\ud800'", "the condition holds half of a surrogate pair$"),
    "a null byte": ("open\0", r"no column 'open.x00' among"),
}
if sys.version_info >= (3, 12):  # whose recursion goes deeper than 2,000 characters can nest
    del BAD["too deep"]


@pytest.mark.parametrize("name", BAD)
def test_a_wrong_condition_is_refused_in_one_line(where, name):
    expression, message = BAD[name]
    with pytest.raises(InputError, match=f"^where: {message}") as caught:
        where(expression)
    assert "\n" not in str(caught.value)


ATTACKS = [
    "true; DROP VIEW passages",
    "true; COPY passages TO '{out}'",
    "true); COPY passages TO '{out}'; SELECT (true",
    "true) UNION SELECT (true",
    "true) UNION ALL SELECT true FROM read_text('{secret}') WHERE (true",
    "true), (true",
    "true), false) AS mask, coalesce((true",
    "true), false) AS mask FROM passages UNION SELECT coalesce((true",
    "true), false) AS mask FROM passages; SELECT coalesce((true",
    "true) GROUP BY (1",
    "true) ORDER BY (1",
    "true) LIMIT (1",
    "true) /*",
    "true) --",
    "*/ true",
    "source IN (SELECT content FROM read_text('{secret}'))",
    "EXISTS (FROM read_csv('{secret}'))",
    "(SELECT true)",
    "(FROM duckdb_settings()) IS NOT NULL",
    "source = ANY(SELECT 'a')",
    "source = any(['a'])",
    "(COPY passages TO '{out}')",
    "PRAGMA database_list",
    "ATTACH '{out}'",
    "INSTALL httpfs",
    "LOAD httpfs",
    "SET memory_limit = '1TB'",
    "read_text('{secret}') IS NOT NULL",
    "getenv('HOME') = 'x'",
    "getvariable('x') IS NULL",
    "current_setting('memory_limit') <> ''",
    "random() < 0.5",
    "now() > '2000-01-01'",
    "current_date > '2000-01-01'",
    "current_user = 'x'",
    "uuid() <> ''",
    "nextval('s') = 1",
    "error('x')",
    "length(repeat('a', 1000000000)) > 1",
    "length(rpad('a', 1000000000, 'b')) > 1",
    "len(range(1000000000)) > 1",
    "length(source || source) > 1",
    "length(format('{{:>1000000000}}', 'a')) > 1",
    "list_filter([1], x -> x > 0) = [1]",
    "count(*) > 1",
    "sum(year) OVER () > 1",
    "unnest([true])",
    "COLUMNS(*) = 1",
    "* = 1",
    "passages.open",
    "memory.main.passages.open",
    "main.lower(source) = 'numpy'",
    "lower(DISTINCT source) = 'numpy'",
    "lower(source) FILTER (WHERE true) = 'numpy'",
    "$1",
    "?",
    "#1",
    "source COLLATE nocase = 'numpy'",
    "source::json = '1'",
    "source::varchar[] IS NULL",
    "open::main.boolean",
    "DEFAULT",
    "rowid = 0",
    "file_row_number = 0",
    "filename = '{secret}'",
    "FROM passages",
    "",
    ";",
]


@pytest.mark.parametrize("attack", ATTACKS)
def test_only_conditions_are_accepted(where, tmp_path, attack):
    secret, out = tmp_path / "secret", tmp_path / "out"
    secret.write_text("numpy")
    with pytest.raises(InputError, match=r"^where: ") as caught:
        where(attack.format(secret=secret, out=out))
    assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["secret"]
    assert where("source = 'numpy'") == [0]


def test_the_database_itself_is_locked_too(described_collection, tmp_path):
    """The second line of defence: a statement that is mistaken for a condition fails."""
    import duckdb

    database = filter._connect(described_collection)
    (tmp_path / "secret").write_text("x")
    table = described_collection / "passages.parquet"
    before = table.read_bytes()
    for statement in (
        f"SELECT * FROM read_text('{tmp_path}/secret')",
        f"FROM glob('{tmp_path}/*')",
        f"COPY passages TO '{tmp_path}/out'",
        f"COPY passages TO '{table}'",
        f"ATTACH '{tmp_path}/out.db'",
        f"EXPORT DATABASE '{tmp_path}/out'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "SET memory_limit = '1TB'",
        "SET threads = 8",
        "RESET allowed_paths",
        "SET python_enable_replacements = true",
        "SELECT * FROM before",  # a variable of this function
    ):
        with pytest.raises(duckdb.Error):
            database.execute(statement).fetchall()
    assert [path.name for path in tmp_path.iterdir()] == ["secret"]
    assert table.read_bytes() == before


def test_all_listed_functions_exist():
    import duckdb

    functions = duckdb.sql(
        "SELECT function_name, stability FROM duckdb_functions() WHERE function_type = 'scalar'"
    ).fetchall()
    consistent = {name for name, stability in functions if stability == "CONSISTENT"}
    from_parser = {"date_part", "nullif"}  # implemented by the parser, or overloaded
    assert set(filter_syntax.FUNCTIONS) | filter_syntax.SIGNS <= consistent | from_parser


def test_random_conditions_give_a_mask_or_a_message_of_one_line(where):
    """Neither a crash nor another exception, whatever the parser accepts."""
    pieces = ["source", "year", "open", "day", "'a'", "1", "(", ")", ",", "=", "<", "and", "or", "not", "is null", "in"]
    pieces += ["between", "like", "lower(", "cast(", "as", "date", "case", "when", "then", "end", "::", "-", "null"]
    pieces += ["interval", "select", "from", "->", "{", "}", ":", ".", "*", '"', "exists", "array", ";", "--", "["]
    rng = random.Random(1)
    messages: list[str] = []
    for _ in range(2000):
        try:
            where(" ".join(rng.choices(pieces, k=rng.randint(1, 12))))
        except InputError as error:
            messages.append(str(error))
    assert 1000 < len(messages) < 2000
    assert not [line for line in messages if not line.startswith("where: ") or "\n" in line]


def test_a_condition_that_takes_too_long_is_stopped(tmp_path, monkeypatch):
    described(tmp_path, [{"x": f"{'ab' * 40}{i}"} for i in range(40_000)])
    slow = " or ".join(f"regexp_matches(lower(x), 'a.{{{i}}}c')" for i in range(30, 70))
    where = Where(tmp_path)
    where.rows("x = ''")
    monkeypatch.setattr(filter, "SECONDS", 0.05)
    with pytest.raises(InputError, match=r"^where: the condition takes more than 0\.05 seconds$"):
        where.rows(slow)
    monkeypatch.undo()
    assert where.rows("x like '%9999'").sum() == 4


def test_a_condition_can_be_interrupted(tmp_path):
    described(tmp_path, [{"x": f"{'ab' * 40}{i}"} for i in range(40_000)])
    slow = " or ".join(f"regexp_matches(lower(x), 'a.{{{i}}}c')" for i in range(30, 70))
    where = Where(tmp_path)
    where.interrupt()  # no query is running
    assert where.rows("x like '%9999'").sum() == 4
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(where.rows, slow)
        time.sleep(0.1)
        start = time.monotonic()
        where.interrupt()
        assert time.monotonic() - start < 1
        with pytest.raises(InputError):
            running.result()
    assert where.rows("x like '%9999'").sum() == 4


def test_masks_are_kept_and_cannot_be_changed(described_collection):
    where = Where(described_collection)
    assert where.kept("open") is None
    mask = where.rows("open")
    assert where.rows(" open\n") is where.kept(" open") is mask
    with pytest.raises(ValueError, match="read-only"):
        mask[0] = False
    for i in range(filter.MASKS - 1):
        where.rows(f"year = {i}")
    assert where.rows("open") is mask
    for i in range(filter.MASKS):
        where.rows(f"year = {i}")
    again = where.rows("open")
    assert again is not mask
    assert again.dtype == bool
    assert again.tolist() == mask.tolist()


def test_threads_can_share_one_filter(described_collection):
    where = Where(described_collection)
    with ThreadPoolExecutor(8) as pool:
        masks = list(pool.map(lambda i: where.rows(f"year = {2018 + i % 5}").tolist(), range(60)))
    expected = [[row["year"] == 2018 + i % 5 for row in ROWS] for i in range(60)]
    assert masks == expected


def test_a_collection_without_further_columns(tmp_path):
    described(tmp_path, [{}, {}, {}])
    where = Where(tmp_path)
    assert where.columns == {"passage_id": "text", "doc_id": "text", "title": "text"}
    assert where.rows("title = 'Title 1'").tolist() == [False, True, False]
    with pytest.raises(
        InputError, match=r"no column 'source' among passage_id .*ingest.metadata names further columns"
    ):
        where.rows("source = 'numpy'")


def test_columns_and_folders_whose_names_need_quotes(tmp_path):
    folder = tmp_path / "it's [a] *? {b}"
    described(folder, [{"of year": 1, 'a "b"': "x", "select": True, "file_row_number": 3, "größe": 4}])
    where = Where(folder)
    assert list(where.columns)[:5] == ["of year", 'a "b"', "select", "file_row_number", "größe"]
    expression = '"of year" = 1 and "a ""b""" = \'x\' and "select" and file_row_number = 3 and GRößE = 4'
    assert where.rows(expression).tolist() == [True]


def test_mismatched_and_damaged_tables_are_refused(tmp_path):
    described(tmp_path / "two", [{"x": 1}, {"x": 2}])
    described(tmp_path / "one", [{"x": 1}])
    table = tmp_path / "one" / "metadata.parquet"
    table.write_bytes((tmp_path / "two" / "metadata.parquet").read_bytes())
    with pytest.raises(InputError, match=r"metadata.parquet: 2 rows for 1 passages; `cocondenser artifacts verify` "):
        Where(tmp_path / "one").rows("x = 1")
    table.write_bytes(table.read_bytes()[:-9])
    with pytest.raises(InputError, match=r"metadata.parquet: cannot be read \(") as caught:
        Where(tmp_path / "one").rows("x = 1")
    assert "\n" not in str(caught.value)


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=3) | st.sampled_from("ab")
INTEGERS = st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1)
FLOATS = st.sampled_from([0.0, -0.0, 0.1, 0.5, 2.0]) | st.floats(allow_nan=False, allow_infinity=False)
DAYS = st.dates().map(str) | st.sampled_from(["2024-01-01", "2024-02-29"])
VALUES = {"text": TEXTS, "whole": INTEGERS, "real": FLOATS, "yes": st.booleans(), "day": DAYS}
TABLES = st.lists(st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items()}), min_size=1)
COMPARED = {
    "=": lambda a, b: a == b,
    "<>": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def literal(value: object) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return f"{value!r}::double" if isinstance(value, float) else str(value).lower()


@st.composite
def leaves(draw):
    """(SQL of one comparison, function from a row to its value: True, False or None)."""
    name = draw(st.sampled_from(sorted(VALUES)))
    kind = draw(st.sampled_from(["compare", "null", "in", "between", "columns"]))
    values = [draw(VALUES[name]) for _ in range(2)]
    low, high = map(literal, values)
    if kind == "null":
        return f"{name} IS NULL", lambda row: row[name] is None
    if kind == "in":
        return f"{name} IN ({low}, {high})", lambda row: None if row[name] is None else row[name] in values
    if kind == "between":
        sql = f"{name} BETWEEN {low} AND {high}"
        return sql, lambda row: None if row[name] is None else values[0] <= row[name] <= values[1]
    sign = draw(st.sampled_from(sorted(COMPARED)))
    if kind == "columns":
        return f"{name} {sign} {name}", lambda row: None if row[name] is None else COMPARED[sign](row[name], row[name])
    sql = f"{name} {sign} {low}"
    return sql, lambda row: None if row[name] is None else COMPARED[sign](row[name], values[0])


def joined(children):
    """NOT, AND and OR in three-valued logic (SQL-92, section 8.12)."""
    number_of = {True: 1.0, None: 0.5, False: 0.0}
    truth_of = {value: truth for truth, value in number_of.items()}

    def negated(child):
        sql, truth = child
        return f"NOT ({sql})", lambda row: truth_of[1 - number_of[truth(row)]]

    def both(pair):
        (left, first), (right, second), word = pair
        pick = min if word == "AND" else max
        return f"({left}) {word} ({right})", lambda row: truth_of[pick(number_of[first(row)], number_of[second(row)])]

    return children.map(negated) | st.tuples(children, children, st.sampled_from(["AND", "OR"])).map(both)


@settings(max_examples=30, deadline=None)
@given(TABLES, st.lists(st.recursive(leaves(), joined, max_leaves=6), min_size=1, max_size=5))
def test_conditions_match_filtering_afterwards(tmp_path_factory, rows, conditions):
    folder = tmp_path_factory.mktemp("filtered")
    typed = {"text": "a", "whole": 1, "real": 0.5, "yes": True, "day": "2024-01-01"}  # gives each column its type
    rows = [*rows, typed | {"text": "1a"}]
    described(folder, rows, list(VALUES))
    where = Where(folder)
    assert list(where.columns.values())[:5] == ["text", "integer", "float", "boolean", "date"]
    for sql, truth in conditions:
        if len(sql) <= filter.CHARACTERS and sql.count("(") <= filter.BRACKETS:
            assert where.rows(sql).tolist() == [truth(row) is True for row in rows], sql


def test_conditions_match_filtering_afterwards_over_row_groups(tmp_path):
    """More rows than a row group or a DuckDB vector holds, with conditions on metadata and titles together."""
    rng = random.Random(1)
    sources = ["numpy", "scipy", None]
    rows = [{"source": rng.choice(sources), "number": rng.randrange(100)} for _ in range(20_000)]
    described(tmp_path, rows)
    where = Where(tmp_path)
    mask = where.rows("source = 'numpy' and number < 30 and title like '%7'")
    expected = [r["source"] == "numpy" and r["number"] < 30 and i % 10 == 7 for i, r in enumerate(rows)]
    assert mask.tolist() == expected
    assert math.isclose(mask.mean(), 0.01, abs_tol=0.003)
    assert np.flatnonzero(where.rows("doc_id = 'd9999'")).tolist() == [19_998, 19_999]
