"""Parquet with a checksum in every page. All Parquet files are written and read by these functions.

The footer has no checksum; the store's hashes cover it (artifacts/store.py).
"""

from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.parquet as pq


def write_parquet(table: "pyarrow.Table", path: Path, **options: Any) -> None:
    """Writes a table. `options`: those of pyarrow, such as `compression`."""
    import pyarrow.parquet as pq

    pq.write_table(table, path, write_page_checksum=True, **options)


def parquet_writer(path: Path | IO[bytes], schema: "pyarrow.Schema", **options: Any) -> "pq.ParquetWriter":
    """Returns a writer for a table that is written in pieces. Close it, or use it as a context manager."""
    import pyarrow.parquet as pq

    return pq.ParquetWriter(path, schema, write_page_checksum=True, **options)


def read_parquet(path: Path, **options: Any) -> "pyarrow.Table":
    """Reads a table. Raises pyarrow's errors, also for a page with a wrong checksum."""
    import pyarrow.parquet as pq

    return pq.read_table(path, page_checksum_verification=True, **options)


def parquet_file(path: Path | IO[bytes]) -> "pq.ParquetFile":
    """Opens a table to read it in pieces, with checksums verified. Close it, or use it as a context manager."""
    import pyarrow.parquet as pq

    return pq.ParquetFile(path, page_checksum_verification=True)
