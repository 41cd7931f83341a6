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
    """In row groups of 7."""
    monkeypatch.setattr(collection, "ROWS", 7)
    monkeypatch.setattr(passages, "ROWS", 7)
    write_table(tmp_path / "passages.parquet", schemas()["passages"], ROWS)
    return tmp_path


def test_rows_are_read_in_the_requested_order(open_passages, folder) -> None:
    found = open_passages(folder)
    assert found.count == 50
    rows = [49, 0, 6, 7, 6, 30]
    assert [(*passage.values(),) for passage in found.read(rows)] == [ROWS[row] for row in rows]
    assert found.read([]) == []
    assert found.ids(np.array(rows)) == [ROWS[row][0] for row in rows]
    assert found.ids(np.zeros(0, int)) == []


def test_rows_of_ids(open_passages, folder) -> None:
    found = open_passages(folder)
    assert found.rows(["p49", "p0", "p7", "p0"]).tolist() == [49, 0, 7, 0]
    assert found.rows([]).tolist() == []
    with pytest.raises(
        InputError, match=r"passages\.parquet: has no passage 'q'; the index belongs to another collection"
    ):
        found.rows(["p1", "q"])


def test_documents_are_distinguished(open_passages, folder) -> None:
    rows = np.random.default_rng(0).permutation(50)
    found = open_passages(folder).documents(rows)
    assert np.array_equal(found[:, None] == found, (rows // 3)[:, None] == rows // 3)
    assert open_passages(folder).documents(rows[:0]).tolist() == []


def test_equal_hashes_are_distinguished(folder, monkeypatch) -> None:
    monkeypatch.setattr(passages, "hash_id", lambda text: len(text))
    found = in_memory_map(folder)
    assert found.rows(["p9", "p10", "p49"]).tolist() == [9, 10, 49]
    with pytest.raises(InputError, match="has no passage 'x9'"):
        found.rows(["x9"])


def test_a_file_that_is_none_is_one_line(open_passages, tmp_path) -> None:
    for content, said in ((None, "no such file; "), (b"PAR1 and nothing more", r"cannot be read \(")):
        if content is not None:
            (tmp_path / "passages.parquet").write_bytes(content)
        with pytest.raises(InputError, match=rf"passages\.parquet: {said}"):
            open_passages(tmp_path)


def test_a_damaged_page_is_one_line(open_passages, folder) -> None:
    path = folder / "passages.parquet"
    content = bytearray(path.read_bytes())
    content[200:400] = bytes(200)
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"passages\.parquet: cannot be read "):
        open_passages(folder).read(range(50))


def test_a_damaged_page_of_further_columns_is_one_line(folder) -> None:
    path = folder / metadata.FILE
    pq.write_table(pa.table({"source": [f"source {n}" for n in range(50)]}), path)
    content = bytearray(path.read_bytes())
    content[4:100] = bytes(96)
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"metadata\.parquet: cannot be read "):
        in_parquet(folder).metadata([3])


def test_the_copy_has_no_name_and_a_disk_without_room_is_one_line(folder, tmp_path) -> None:
    place = tmp_path / "temporary"
    place.mkdir()
    code = (
        "import resource, sys, os\nfrom pathlib import Path\nfrom pipeline.data.passages import in_memory_map\n"
        "found = in_memory_map(Path(sys.argv[1]))\nprint(len(os.listdir(sys.argv[2])), found.read([3])[0]['title'])\n"
        "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
        "try: in_memory_map(Path(sys.argv[1]))\nexcept Exception as error: print(type(error).__name__, error)"
    )
    root = Path(__file__).parents[3]
    command = [sys.executable, "-c", code, str(folder), str(place)]
    ended = subprocess.run(command, cwd=root, env={"TMPDIR": str(place)}, capture_output=True, text=True)
    said = ended.stdout.splitlines()
    assert said[0] == "0 title 3", ended.stderr
    assert said[1].startswith(f"InputError {folder / 'passages.parquet'}: cannot be copied to {place} (")


def test_further_columns_are_read_in_the_requested_order(open_passages, folder) -> None:
    assert open_passages(folder).metadata([3, 1]) == [{}, {}]
    days = [date(2024, 1, 1 + n % 28) if n % 5 else None for n in range(50)]
    table = pa.table({"source": [f"source {n}" for n in range(50)], "day": pa.array(days, pa.date32())})
    pq.write_table(table, folder / metadata.FILE, row_group_size=11)
    found = open_passages(folder).metadata([49, 0, 6, 6])
    assert found[:2] == [{"source": "source 49", "day": "2024-01-22"}, {"source": "source 0", "day": None}]
    assert found[2] == found[3] == {"source": "source 6", "day": "2024-01-07"}
