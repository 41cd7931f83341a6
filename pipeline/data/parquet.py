"""Parquet with a checksum in every page, written and verified: the one way to write it and to read it.

The footer has none; the store's hashes cover it (artifacts/store.py).
"""

from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.parquet as pq


def write_parquet(table: "pyarrow.Table", path: Path, **options: Any) -> None:
    """`options`: pyarrow's, such as `compression`."""
    import pyarrow.parquet as pq

    pq.write_table(table, path, write_page_checksum=True, **options)


def parquet_writer(path: Path | IO[bytes], schema: "pyarrow.Schema", **options: Any) -> "pq.ParquetWriter":
    """For a table that is written piece by piece; to be closed, as a context manager is."""
    import pyarrow.parquet as pq

    return pq.ParquetWriter(path, schema, write_page_checksum=True, **options)


def read_parquet(path: Path, **options: Any) -> "pyarrow.Table":
    """Raises what pyarrow does, also for a page that is not as it was written."""
    import pyarrow.parquet as pq

    return pq.read_table(path, page_checksum_verification=True, **options)


def parquet_file(path: Path | IO[bytes]) -> "pq.ParquetFile":
    """For a table that is read piece by piece, as `read_parquet` reads it; to be closed, as a context manager is."""
    import pyarrow.parquet as pq

    return pq.ParquetFile(path, page_checksum_verification=True)
