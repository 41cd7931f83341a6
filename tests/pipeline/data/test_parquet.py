"""Every page of a Parquet file has a checksum, whatever code writes it, and all readers check it."""

import random
import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.data.collection import at_rows, passage_batches, read_qrels, schemas, write_table
from pipeline.data.parquet import parquet_file, parquet_writer, read_parquet, write_parquet
from pipeline.data.stored import read_batches, read_table
from pipeline.errors import InputError

ROOT = Path(__file__).parents[3]
TABLE = pa.table({"query_id": [f"q{n}" for n in range(300)], "score": [n / 7 for n in range(300)]})


def by_writer(path: Path) -> None:
    with parquet_writer(path, TABLE.schema, compression="zstd") as writer:
        writer.write_table(TABLE)


WRITERS: dict[str, Callable[[Path], None]] = {
    "whole": lambda path: write_parquet(TABLE, path),
    "uncompressed": lambda path: write_parquet(TABLE, path, compression="none"),
    "by pieces": by_writer,
}
READERS: dict[str, Callable[[Path], pa.Table]] = {
    "whole": read_parquet,
    "filtered": lambda path: read_table(path, filters=[("score", ">=", 0)]),
    "by batches": lambda path: pa.Table.from_batches(read_batches(path, None, 100)),
    "by row groups": lambda path: parquet_file(path).read_row_group(0),
    "by rows": lambda path: at_rows(path, range(300)),
}


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("read", READERS)
def test_a_flipped_bit_of_a_page_is_never_read(tmp_path: Path, write: str, read: str) -> None:
    path = tmp_path / "table.parquet"
    WRITERS[write](path)
    assert READERS[read](path).equals(TABLE)
    whole, group = path.read_bytes(), pq.read_metadata(path).row_group(0)
    first = min(group.column(n).dictionary_page_offset or group.column(n).data_page_offset for n in range(2))
    last = first + sum(group.column(n).total_compressed_size for n in range(2))
    rng = random.Random(0)
    for _ in range(60):
        at = rng.randrange(first, last)
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << rng.randrange(8)]) + whole[at + 1 :])
        try:
            assert READERS[read](path).equals(TABLE)  # a bit of a header that does not affect the values
        except (OSError, pa.ArrowException, InputError):
            continue


def test_a_flipped_bit_of_an_id_is_reported_in_one_line(tmp_path: Path) -> None:
    judged = [("dev", f"q{n}", f"passage-{n}", 1) for n in range(50)]
    write_table(tmp_path / "qrels.parquet", schemas()["qrels"], judged)
    write_table(tmp_path / "passages.parquet", schemas()["passages"], [(f"p{n}", "d", "", "text") for n in range(50)])
    for name in ("qrels", "passages"):
        path = tmp_path / f"{name}.parquet"
        data = bytearray(path.read_bytes())
        column = pq.read_metadata(path).row_group(0).column(2)
        data[column.data_page_offset + column.total_compressed_size // 2] ^= 4
        path.write_bytes(data)
    for read in (read_qrels, lambda folder: list(passage_batches(folder, ["title"]))):
        with pytest.raises(InputError, match=r"\.parquet: cannot be read .*; `cocondenser artifacts verify`"):
            read(tmp_path)


def test_no_code_writes_or_reads_parquet_without_checksums() -> None:
    direct_call = re.compile(
        r"\b(pq|parquet)\.(write_table|read_table|ParquetWriter|ParquetFile)\(|\b(pd|pandas)\.read_parquet\("
    )
    folders = ("pipeline", "artifacts", "tasks", "flows")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.py") if path.name != "parquet.py"]
    assert len(files) > 100
    assert [path.name for path in files if direct_call.search(path.read_text("utf-8"))] == []
