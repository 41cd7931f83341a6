"""Passages by row: read from the collection's row groups, or from a memory map for a server with many requests.

Shapes: N passages, R requested rows.
"""

import mmap
import tempfile
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.data import metadata
from pipeline.data.arrow import integers, text_array
from pipeline.data.collection import PASSAGE_COLUMNS, ROWS, at_rows, passage_count
from pipeline.data.documents import COLUMN, are_cut
from pipeline.data.ids import hash_id
from pipeline.data.stored import input_error_on_read, read_batches, read_json
from pipeline.errors import InputError
from pipeline.notices import one_line


@dataclass(frozen=True)
class Passages:
    count: int
    """N."""
    read: Callable[[Sequence[int]], list[dict[str, str]]]
    """Rows -> {column: value} of each, in the requested order; `doc_id` is the result's (`result_column`)."""
    metadata: Callable[[Sequence[int]], list[dict[str, metadata.Value]]]
    """Rows -> the further columns of each, in the requested order."""
    ids: Callable[[np.ndarray], list[str]]
    """Rows -> passage ids, in the requested order."""
    rows: Callable[[Sequence[str]], np.ndarray]
    """Passage ids -> their rows, int64 [R]. Raises InputError for an id that is not in the collection."""
    documents: Callable[[np.ndarray], np.ndarray]
    """Rows -> numbers of results, int64 [R]: within a call, equal only for passages of the same result. The rows, if
    each passage is a result of its own."""


def result_column(collection: Path) -> str:
    """Returns the column of passages.parquet whose values are the results of a search, each by its best passage.

    Where documents are cut, results are what judgements name, as in an evaluation. Otherwise judgements name passages,
    and a search shows the document of several passages once.
    """
    return COLUMN if are_cut(collection) else "doc_id"


def columns_of(collection: Path) -> list[str]:
    """Returns the columns that are read as PASSAGE_COLUMNS: `doc_id` is the result's."""
    passage_id, _, *texts = PASSAGE_COLUMNS
    return [passage_id, result_column(collection), *texts]


def in_parquet(collection: Path) -> Passages:
    """Returns readers of the Parquet files. Opens at once; each requested row may read a whole row group."""
    path = collection / "passages.parquet"
    count, columns = passage_count(collection), columns_of(collection)
    counts = collection / "ingest.json"
    are_documents = counts.is_file() and read_json(counts).get("documents") == count

    def rows(ids: Sequence[str]) -> np.ndarray:
        all_ids = text_array(ids)
        unique_ids = all_ids.unique()
        row_U, start = np.full(len(unique_ids), -1, np.int64), 0
        for batch in read_batches(path, ["passage_id"], 8 * ROWS):
            place = pc.index_in(batch.column(0), unique_ids)
            row_U[integers(place.drop_null())] = start + integers(pc.indices_nonzero(place.is_valid()))
            start += len(batch)
        return known_rows(row_U[integers(pc.index_in(all_ids, unique_ids))], ids, path)

    def documents(row_R: np.ndarray) -> np.ndarray:
        if are_documents:
            return row_R.astype(np.int64)
        encoded = at_rows(path, row_R, [columns[1]]).column(0).combine_chunks().dictionary_encode()
        return integers(encoded.indices)

    return Passages(
        count=count,
        read=lambda rows: at_rows(path, rows, columns).rename_columns(PASSAGE_COLUMNS).to_pylist(),
        metadata=partial(metadata.read_metadata, collection),
        ids=lambda row_R: at_rows(path, row_R, ["passage_id"]).column(0).to_pylist(),
        rows=rows,
        documents=documents,
    )


def in_memory_map(collection: Path) -> Passages:
    """Returns readers of uncompressed copies on disk, which need microseconds. Memory: 20 bytes per passage.

    The copies are unnamed files in the folder for temporary files (TMPDIR): they disappear with the process, even if it
    is killed. Raises InputError if there is no space for them.
    """
    path, columns = collection / "passages.parquet", columns_of(collection)
    hashes, starts = array("Q"), [np.zeros(0, bool)]
    before = None

    def look(batch: pa.RecordBatch) -> None:
        nonlocal before
        hashes.extend(map(hash_id, batch.column("passage_id").to_pylist()))
        documents = pa.concat_arrays([pa.array([before], pa.string()), batch.column(columns[1])])
        starts.append(np.asarray(pc.not_equal(documents[1:], documents[:-1]).fill_null(True)))
        before = batch.column(columns[1])[-1].as_py()

    count, value = _mapped(path, columns, look)
    document_N = np.concatenate(starts).cumsum(dtype=np.int32)
    hash_N = np.frombuffer(hashes, np.uint64)
    order_N = np.argsort(hash_N, kind="stable")
    hash_N = hash_N[order_N]

    def row_of(passage_id: str) -> int:
        hashed = np.uint64(hash_id(passage_id))
        equal = order_N[np.searchsorted(hash_N, hashed) : np.searchsorted(hash_N, hashed, side="right")].tolist()
        return next((row for row in equal if value(row, 0) == passage_id), -1)

    further = [*metadata.types(collection)]
    _, further_value = _mapped(collection / metadata.FILE, further) if further else (0, value)
    return Passages(
        count=count,
        read=lambda rows: [{name: value(int(row), n) for n, name in enumerate(PASSAGE_COLUMNS)} for row in rows],
        metadata=lambda rows: [
            {name: metadata.plain(further_value(int(row), n)) for n, name in enumerate(further)} for row in rows
        ],
        ids=lambda row_R: [value(row, 0) for row in row_R.tolist()],
        rows=lambda ids: known_rows(np.array([row_of(one) for one in ids], np.int64), ids, path),
        documents=lambda row_R: document_N[row_R].astype(np.int64),
    )


def _mapped(
    path: Path, columns: list[str], look: Callable[[pa.RecordBatch], None] = lambda batch: None
) -> tuple[int, Callable[[int, int], Any]]:
    """Returns (number of rows, function from row and column to the value) of a table; calls `look` on each batch."""
    with input_error_on_read(path):
        whole = pq.read_schema(path)
        schema = pa.schema([whole.field(name) for name in columns])
    with input_error_on_write(path), tempfile.TemporaryFile() as copy:
        with pa.ipc.new_file(copy, schema) as writer:
            for batch in read_batches(path, columns, ROWS):
                batch = batch.select(columns)
                writer.write_batch(batch)
                look(batch)
        copy.flush()
        reader = pa.ipc.open_file(pa.py_buffer(mmap.mmap(copy.fileno(), 0, access=mmap.ACCESS_READ)))
        batches = [reader.get_batch(n) for n in range(reader.num_record_batches)]
    edges = [*accumulate(map(len, batches), initial=0)]

    def value(row: int, column: int) -> Any:
        number = bisect_right(edges, row) - 1
        return batches[number].column(column)[row - edges[number]].as_py()

    return edges[-1], value


@contextmanager
def input_error_on_write(path: Path) -> Iterator[None]:
    """Raises InputError instead of an OSError, such as that of a full disk."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{path}: cannot be copied to {tempfile.gettempdir()} ({error})") from None


def known_rows(row_R: np.ndarray, ids: Sequence[str], path: Path) -> np.ndarray:
    """Returns the rows. Raises InputError if one is -1."""
    if (row_R < 0).any():
        raise InputError(
            f"{path}: has no passage '{one_line(ids[int(row_R.argmin())])}'; the index belongs to another collection"
        )
    return row_R
