"""Further columns: their types, their rows, and the values that are refused."""

import json
from datetime import date, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from described import described
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from pipeline.data import collection, metadata
from pipeline.errors import InputError

TYPES = {
    "integer": [1, -(2**63), 2**63 - 1, None, 0],
    "float": [1.5, 2, -(2**53), None, 1e300, -0.0],
    "boolean": [True, None, False],
    "date": ["2024-02-29", None, date(1, 1, 1), "9999-12-31"],
    "text": ["a", None, "", "ünï\n'\""],
}
MIXED = {
    "number and text": ([1, "one", 1.5, True], ["1", "one", "1.5", "true"]),
    "booleans and numbers": ([True, 1], ["true", "1"]),
    "an integer beyond 64 bits": ([1, 2**63], ["1", "9223372036854775808"]),
    "an integer that float64 does not hold": ([0.5, 2**53 + 1], ["0.5", "9007199254740993"]),
    "a date and another": (["2024-02-29", "2023-02-29"], ["2024-02-29", "2023-02-29"]),
    "a time": ([date(2024, 1, 2), datetime(2024, 1, 2, 3)], ["2024-01-02", "2024-01-02T03:00:00"]),
    "digits of another script": (["٢٠٢٤-٠١-٠١"], ["٢٠٢٤-٠١-٠١"]),
}


def column(folder: Path) -> list:
    return [row["x"] for row in metadata.read_metadata(folder, range(collection.passage_count(folder)))]


@pytest.mark.parametrize("kind", TYPES)
def test_a_column_of_one_kind(tmp_path, kind):
    metrics = described(tmp_path, [{"x": value} for value in TYPES[kind]])
    assert metadata.types(tmp_path) == {"x": kind}
    assert metrics == {"metadata": f"x: {kind}", "without_x": 1}
    expected = [value.isoformat() if isinstance(value, date) else value for value in TYPES[kind]]
    assert column(tmp_path) == expected
    expected_type = {"boolean": bool, "integer": int, "float": float, "date": str, "text": str}[kind]
    assert {type(value) for value in column(tmp_path)} == {expected_type, type(None)}


@pytest.mark.parametrize("name", MIXED)
def test_a_mixture_is_text(tmp_path, name):
    values, texts = MIXED[name]
    described(tmp_path, [{"x": value} for value in values])
    assert metadata.types(tmp_path) == {"x": "text"}
    assert column(tmp_path) == texts


@given(
    st.lists(st.none() | st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53), 2**53), min_size=1)
)
def test_no_number_changes(tmp_path_factory, values):
    folder = tmp_path_factory.mktemp("numbers")
    described(folder, [{"x": value} for value in values])
    assert column(folder) == values


@given(st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"])), min_size=1))
def test_no_text_changes(tmp_path_factory, values):
    folder = tmp_path_factory.mktemp("texts")
    described(folder, [{"x": value} for value in values])
    assert column(folder) == values


def test_numbers_that_are_not_finite_are_missing_values(tmp_path):
    assert described(tmp_path, [{"x": v} for v in (float("nan"), float("inf"), 1.0, None)])["without_x"] == 3
    assert column(tmp_path) == [None, None, 1.0, None]


def test_an_absent_key_is_a_missing_value_and_columns_keep_the_requested_order(tmp_path):
    described(tmp_path, [{"b": 1}, {"a": "x"}, {}], ["b", "a"])
    assert metadata.read_metadata(tmp_path, [2, 0, 1, 0]) == [
        {"b": None, "a": None},
        {"b": 1, "a": None},
        {"b": None, "a": "x"},
        {"b": 1, "a": None},
    ]


@pytest.mark.parametrize("value", [["a"], {"a": 1}, (1, 2), b"a"])
def test_a_nested_value_is_refused_by_name(tmp_path, value):
    with pytest.raises(InputError, match=r"line 1: ingest.metadata: 'x' is neither text, number nor date, but a \w+$"):
        described(tmp_path, [{"x": 1}, {"x": value}])


def test_half_a_surrogate_pair_is_refused(tmp_path):
    with pytest.raises(InputError, match="line 1: 'x' holds half of a surrogate pair"):
        described(tmp_path, [{"x": "a"}, {"x": "\ud800"}])


def test_an_unknown_column_is_refused_with_the_names_of_the_existing_ones(tmp_path):
    with pytest.raises(InputError, match=r"ingest.metadata: no column 'sorce' among language, source$"):
        described(tmp_path, [{"source": "a"}, {"language": "en"}], ["source", "sorce"])
    many = [{f"key{i}-{j}": 1 for j in range(20)} for i in range(100)]
    with pytest.raises(InputError, match=r"no column 'x' among (\S+, ){30}\.\.\.$"):
        described(tmp_path, many, ["x"])


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["source", "Source"], "names 'source' twice"),
        (["Title"], "'Title' is a column of every collection"),
        ([" "], "' ' is not a valid column name"),
        (["a\nb"], "is not a valid column name"),
        (["\ud800"], "is not a valid column name"),
    ],
)
def test_names_that_are_invalid_or_ambiguous_in_sql_are_refused(names, message):
    with pytest.raises(ValidationError, match=message):
        TypeAdapter(metadata.Names).validate_python(names)


def test_without_names_no_file_is_written(tmp_path):
    assert described(tmp_path, [{"x": 1}], []) == {}
    assert [path.name for path in tmp_path.iterdir()] == ["passages.parquet"]
    assert metadata.types(tmp_path) == {}
    assert metadata.read_metadata(tmp_path, [0, 0]) == [{}, {}]
    (tmp_path / "ingest.json").write_text('{"passages": 1}')
    assert metadata.types(tmp_path) == {}


def test_a_lost_table_is_distinguished_from_one_that_never_existed(tmp_path):
    (tmp_path / "ingest.json").write_text(json.dumps(described(tmp_path, [{"x": 1}])))
    assert metadata.types(tmp_path) == {"x": "integer"}
    (tmp_path / metadata.FILE).unlink()
    for read in (lambda: metadata.types(tmp_path), lambda: metadata.read_metadata(tmp_path, [0])):
        with pytest.raises(InputError, match=r"metadata\.parquet: no such file; `cocondenser artifacts verify` "):
            read()


def test_row_groups_are_written_one_by_one_and_read_separately(tmp_path, monkeypatch):
    rows = 2 * collection.ROWS + 5
    group_starts: list[int] = []

    def passages():
        for i in range(rows):
            if i % collection.ROWS == 0:
                group_starts.append(i)
            yield f"line {i}", collection.Passage(f"p{i}", "", "", "t", {"x": i, "y": f"y{i}"})

    stream = metadata.keep_metadata(passages(), ["x", "y"], tmp_path, {})
    next(stream)
    assert group_starts == [0]  # the second group is read only after the first is written
    assert sum(1 for _ in stream) == rows - 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["metadata.parquet"]
    file = pq.read_metadata(tmp_path / "metadata.parquet")
    assert [file.row_group(i).num_rows for i in range(file.num_row_groups)] == [8192, 8192, 5]

    read_groups: list[int] = []
    read_row_group = pq.ParquetFile.read_row_group
    monkeypatch.setattr(
        pq.ParquetFile, "read_row_group", lambda f, i, **k: read_groups.append(i) or read_row_group(f, i, **k)
    )
    requested = [rows - 1, 8191, 8192, 0, rows - 1]
    assert metadata.read_metadata(tmp_path, requested) == [{"x": i, "y": f"y{i}"} for i in requested]
    assert read_groups == [0, 1, 2]


def test_equal_inputs_give_equal_bytes(tmp_path):
    rows = [{"x": i % 7, "y": f"{i}"} for i in range(100)]
    for name in "ab":
        described(tmp_path / name, rows)
    assert (tmp_path / "a/metadata.parquet").read_bytes() == (tmp_path / "b/metadata.parquet").read_bytes()
