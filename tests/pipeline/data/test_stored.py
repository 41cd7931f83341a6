"""Each missing or damaged file of an artifact is reported in one line."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.data.stored import input_error_on_read, read_batches, read_json, read_table
from pipeline.errors import InputError

ROWS = pa.table({"a": ["x" * n for n in range(500)], "b": range(500)})


def line_of(read: Callable[[], object]) -> str:
    with pytest.raises(InputError) as raised:
        read()
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_json_is_read_unchanged(tmp_path):
    path = tmp_path / "x.json"
    path.write_text('{"ä": 1, "b": null}', "utf-8")
    assert read_json(path, "ä", "b") == {"ä": 1, "b": None}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such file"),
        (b"", r"cannot be read \(Expecting value"),
        (b'{"a": 1', r"cannot be read \(Expecting"),
        (b"{\xff\x00", r"cannot be read \('utf-8' codec"),
        (b"[]", r"cannot be read \(not a JSON object"),
        (b"{}", r"cannot be read \(it lacks 'a'"),
    ],
)
def test_missing_and_invalid_json_is_reported(tmp_path, content, message):
    path = tmp_path / "x.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=rf"x\.json: {message}.*; `cocondenser artifacts verify` .* `cocondenser run"):
        read_json(path, "a")


def test_a_table_is_read_unchanged(tmp_path):
    path = tmp_path / "x.parquet"
    pq.write_table(ROWS, path)
    assert read_table(path) == ROWS
    assert read_table(path, ["b"], [("b", "<", 3)]).to_pydict() == {"b": [0, 1, 2]}
    parts = [*read_batches(path, ["a"], 200)]
    assert [len(part) for part in parts] == [200, 200, 100]
    assert pa.Table.from_batches(parts) == ROWS.select(["a"])


@pytest.mark.parametrize("damage", ["gone", "empty", "cut", "overwritten", "pages"])
def test_a_missing_or_damaged_table_is_reported(tmp_path, damage):
    path: Path = tmp_path / "x.parquet"
    pq.write_table(ROWS, path, compression="zstd", write_page_checksum=True)
    content = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        broken = {"empty": b"", "cut": content[:-9], "overwritten": b"\x15" * len(content)}
        path.write_bytes(broken.get(damage, content[:4] + b"\x15" * 400 + content[404:]))
    for read in (lambda: read_table(path), lambda: [*read_batches(path, None, 100)]):
        assert line_of(read).startswith(f"{path}: {'no such file' if damage == 'gone' else 'cannot be read ('}")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (pa.ArrowCapacityError("too\nlarge"), "cannot be read (too large); `cocondenser artifacts verify` "),
        (pa.ArrowSerializationError("no"), "cannot be read (no); `cocondenser artifacts verify` "),
        (RecursionError("too deep"), "cannot be read (too deep); `cocondenser artifacts verify` "),
        (MemoryError(), "too little memory to read it, or it is damaged; `cocondenser artifacts verify` "),
        (pa.ArrowMemoryError("no"), "too little memory to read it, or it is damaged; `cocondenser artifacts verify` "),
        (PermissionError(13, "Permission denied"), "permission denied"),
    ],
)
def test_errors_of_reading_become_input_errors(error: Exception, message: str):
    def read() -> None:
        with input_error_on_read(Path("x")):
            raise error

    line = line_of(read)
    assert line.startswith(f"x: {message}")
    assert ("artifacts verify" in line) == ("artifacts verify" in message)


def test_an_error_that_is_not_about_a_file_is_not_caught():
    with pytest.raises(ZeroDivisionError), input_error_on_read(Path("x")):
        raise ZeroDivisionError


def test_a_table_without_the_requested_columns_is_reported(tmp_path):
    path = tmp_path / "x.parquet"
    pq.write_table(ROWS, path)
    assert line_of(lambda: read_table(path, ["a"], [("c", "=", "x")])).startswith(f"{path}: cannot be read (")
