"""Passages by row, from Parquet and from a memory map."""

import subprocess
import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.data import collection, metadata, passages
from pipeline.data.collection import schemas, write_table
from pipeline.data.passages import Passages, in_memory_map, in_parquet
from pipeline.errors import InputError

ROWS = [(f"p{n}", f"d{n // 3}", f"title {n}", f"text {n} é😀") for n in range(50)]
Open = Callable[[Path], Passages]


@pytest.fixture(params=[in_parquet, in_memory_map])
def open_passages(request) -> Open:
    return request.param


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A collection in row groups of 7."""
    monkeypatch.setattr(collection, "ROWS", 7)
    monkeypatch.setattr(passages, "ROWS", 7)
    write_table(tmp_path / "passages.parquet", schemas()["passages"], ROWS)
    return tmp_path


def test_rows_are_read_in_the_requested_order(open_passages, folder) -> None:
    passages_of_folder = open_passages(folder)
    assert passages_of_folder.count == 50
    rows = [49, 0, 6, 7, 6, 30]
    assert [(*passage.values(),) for passage in passages_of_folder.read(rows)] == [ROWS[row] for row in rows]
    assert passages_of_folder.read([]) == []
    assert passages_of_folder.ids(np.array(rows)) == [ROWS[row][0] for row in rows]
    assert passages_of_folder.ids(np.zeros(0, int)) == []


def test_rows_of_ids(open_passages, folder) -> None:
    opened = open_passages(folder)
    assert opened.rows(["p49", "p0", "p7", "p0"]).tolist() == [49, 0, 7, 0]
    assert opened.rows([]).tolist() == []
    with pytest.raises(
        InputError, match=r"passages\.parquet: has no passage 'q'; the index belongs to another collection"
    ):
        opened.rows(["p1", "q"])


def test_documents_are_distinguished(open_passages, folder) -> None:
    rows = np.random.default_rng(0).permutation(50)
    numbers = open_passages(folder).documents(rows)
    assert np.array_equal(numbers[:, None] == numbers, (rows // 3)[:, None] == rows // 3)
    assert open_passages(folder).documents(rows[:0]).tolist() == []


def test_equal_hashes_are_distinguished(folder, monkeypatch) -> None:
    monkeypatch.setattr(passages, "hash_id", lambda text: len(text))
    opened = in_memory_map(folder)
    assert opened.rows(["p9", "p10", "p49"]).tolist() == [9, 10, 49]
    with pytest.raises(InputError, match="has no passage 'x9'"):
        opened.rows(["x9"])


def test_a_missing_or_invalid_file_is_reported_in_one_line(open_passages, tmp_path) -> None:
    for content, message in ((None, "no such file; "), (b"PAR1 and nothing more", r"cannot be read \(")):
        if content is not None:
            (tmp_path / "passages.parquet").write_bytes(content)
        with pytest.raises(InputError, match=rf"passages\.parquet: {message}"):
            open_passages(tmp_path)


def test_a_damaged_page_is_reported_in_one_line(open_passages, folder) -> None:
    path = folder / "passages.parquet"
    content = bytearray(path.read_bytes())
    content[200:400] = bytes(200)
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"passages\.parquet: cannot be read "):
        open_passages(folder).read(range(50))


def test_a_damaged_page_of_further_columns_is_reported_in_one_line(folder) -> None:
    path = folder / metadata.FILE
    pq.write_table(pa.table({"source": [f"source {n}" for n in range(50)]}), path)
    content = bytearray(path.read_bytes())
    content[4:100] = bytes(96)
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"metadata\.parquet: cannot be read "):
        in_parquet(folder).metadata([3])


def test_the_temporary_copy_is_unlinked_and_a_full_disk_is_reported_in_one_line(folder, tmp_path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    code = (
        "import resource, sys, os\nfrom pathlib import Path\nfrom pipeline.data.passages import in_memory_map\n"
        "opened = in_memory_map(Path(sys.argv[1]))\nprint(len(os.listdir(sys.argv[2])), opened.read([3])[0]['title'])\n"
        "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
        "try: in_memory_map(Path(sys.argv[1]))\nexcept Exception as error: print(type(error).__name__, error)"
    )
    root = Path(__file__).parents[3]
    command = [sys.executable, "-c", code, str(folder), str(temporary)]
    process = subprocess.run(command, cwd=root, env={"TMPDIR": str(temporary)}, capture_output=True, text=True)
    lines = process.stdout.splitlines()
    assert lines[0] == "0 title 3", process.stderr
    assert lines[1].startswith(f"InputError {folder / 'passages.parquet'}: cannot be copied to {temporary} (")


def test_further_columns_are_read_in_the_requested_order(open_passages, folder) -> None:
    assert open_passages(folder).metadata([3, 1]) == [{}, {}]
    days = [date(2024, 1, 1 + n % 28) if n % 5 else None for n in range(50)]
    table = pa.table({"source": [f"source {n}" for n in range(50)], "day": pa.array(days, pa.date32())})
    pq.write_table(table, folder / metadata.FILE, row_group_size=11)
    rows = open_passages(folder).metadata([49, 0, 6, 6])
    assert rows[:2] == [{"source": "source 49", "day": "2024-01-22"}, {"source": "source 0", "day": None}]
    assert rows[2] == rows[3] == {"source": "source 6", "day": "2024-01-07"}
