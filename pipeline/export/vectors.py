"""Writes the passages with their vectors as one Parquet table, for databases (docs/databases.md).

Shapes: N passages, B passages of a row group, D dimension of a vector.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from pipeline.data import metadata
from pipeline.data.collection import ROWS, passage_count
from pipeline.data.parquet import parquet_file, parquet_writer
from pipeline.data.passages import columns_of
from pipeline.data.stored import AGAIN, input_error_on_read, read_batches
from pipeline.dense.index_files import open_index
from pipeline.errors import InputError
from pipeline.runtime.work import Progress

if TYPE_CHECKING:
    import pyarrow

FILE = "passages.parquet"
OWN = ("id", "document", "title", "text", "vector")
"""The columns besides the metadata; the metadata stand before `vector`."""
VectorType = Literal["float32", "float16"]
"""Of a vector's numbers. Encoders write float16, so both types have equal values."""


def write_vectors(collection: Path, index: Path, folder: Path, vector_type: VectorType, progress: Progress) -> None:
    """Writes FILE: a row per passage, in passage order. Memory: one row group of ROWS passages.

    `document` is the id of the result that `cocondenser search` shows for the passage. Dates, numbers and booleans
    of the metadata keep their types. `vector` is a fixed-size list, whose inner product with a question's vector is
    the score. Raises InputError if the index has another number of passages, or a table is lost or damaged.
    """
    import pyarrow as pa

    vectors_ND = open_index(index).vectors_ND
    passages = passage_count(collection)
    if len(vectors_ND) != passages:
        raise InputError(f"{index}: {len(vectors_ND):,} vectors for {passages:,} passages; {AGAIN}")
    kept = metadata.types(collection)
    names = column_names([*kept])
    numbers = pa.float32() if vector_type == "float32" else pa.float16()
    kinds = [pa.type_for_alias(metadata.ALIASES[kept[name]]) for name in kept]
    schema = pa.schema(
        [
            *((name, pa.string()) for name in OWN[:-1]),
            *zip(names, kinds, strict=True),
            ("vector", pa.list_(numbers, vectors_ND.shape[1])),
        ]
    )
    folder.mkdir()
    repeated = ["document", *names]
    with parquet_writer(folder / FILE, schema, compression="zstd", use_dictionary=repeated) as writer:
        done = 0
        for texts, values in zip(_texts(collection), _metadata(collection, [*kept], passages), strict=True):
            vectors_BD = vectors_ND[done : done + len(texts[0])]
            flat = pa.array(np.ascontiguousarray(vectors_BD, vector_type).ravel(), numbers)
            vectors = pa.FixedSizeListArray.from_arrays(flat, vectors_ND.shape[1])
            writer.write_table(pa.Table.from_arrays([*texts, *values, vectors], schema=schema), row_group_size=ROWS)
            done += len(vectors_BD)
            progress(done, passages, "passages")


def vector_type_of(folder: Path) -> VectorType | None:
    """Returns the type of the numbers that `write_vectors` wrote; None if `folder` has no table.

    Raises InputError if the table is damaged.
    """
    import pyarrow as pa

    if not (folder / FILE).is_file():
        return None
    with input_error_on_read(folder / FILE, "export it again"), parquet_file(folder / FILE) as table:
        return "float16" if pa.types.is_float16(table.schema_arrow.field("vector").type.value_type) else "float32"


def column_names(names: Iterable[str]) -> list[str]:
    """Returns the columns' names for these names of metadata: `metadata_id` for `id`, as others of OWN are taken.

    SQL does not distinguish upper and lower case.
    """
    taken, new = {*OWN, *(name.lower() for name in names)}, []
    for name in names:
        free = name
        while free.lower() in OWN or (free != name and free.lower() in taken):
            free = f"metadata_{free}"
        taken.add(free.lower())
        new.append(free)
    return new


def table_bytes(collection: Path, index: Path, vector_type: VectorType) -> int:
    """Returns an upper estimate of the bytes of the table: those of all vectors, and of the collection's own tables."""
    tables = [path for name in ("passages.parquet", metadata.FILE) if (path := collection / name).is_file()]
    vectors_ND = open_index(index).vectors_ND
    return vectors_ND.size * np.dtype(vector_type).itemsize + sum(path.stat().st_size for path in tables)


def _texts(collection: Path) -> "Iterator[list[pyarrow.Array]]":
    """Yields id, document, title and text of each row group."""
    columns = columns_of(collection)
    for batch in read_batches(collection / "passages.parquet", columns, ROWS):
        yield [batch.column(name) for name in columns]


def _metadata(collection: Path, names: list[str], passages: int) -> "Iterator[list[pyarrow.Array]]":
    """Yields the further columns of each row group; empty lists if there are none."""
    if not names:
        yield from ([] for _ in range(0, passages, ROWS))
        return
    for batch in read_batches(collection / metadata.FILE, names, ROWS):
        yield [batch.column(name) for name in names]
