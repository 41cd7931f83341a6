"""The collection: the rows that readers yield, its Parquet tables, and the functions that read them."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pipeline.data.arrow import integer_array
from pipeline.data.documents import COLUMN, judged_passages
from pipeline.data.parquet import parquet_file, parquet_writer
from pipeline.data.stored import AGAIN, input_error_on_read, read_batches, read_table
from pipeline.errors import InputError
from pipeline.notices import Examples, one_line

if TYPE_CHECKING:
    import numpy as np
    import pyarrow

SPLITS = ("train", "dev", "test")
PASSAGE_COLUMNS = ("passage_id", "doc_id", "title", "text")
ROWS = 8192  # rows of a row group: the most that a writer holds in memory
PLACES = 64
"""Places of a sample, evenly spread over the collection; also the most row groups that are read."""
NEIGHBOURS = 16
"""Consecutive passages at each place of a sample."""


class Passage(NamedTuple):
    """`doc_id` empty: the passage is a document of its own."""

    passage_id: str
    doc_id: str
    title: str
    text: str
    metadata: Mapping[str, Any] = MappingProxyType({})
    """Further fields of the source, by name; ingest keeps those that its configuration names (data/metadata.py)."""
    document: str = ""
    """The document that it was cut from, if judgements refer to documents (data/documents.py)."""


class Query(NamedTuple):
    """`answers`: strings, one of which a correct passage contains; empty if the source has none."""

    query_id: str
    split: str
    text: str
    answers: list[str]


class Judgement(NamedTuple):
    """One line of the qrels. A passage is a positive of its query if `relevance` > 0.

    Where documents are cut into passages, `passage_id` is the id of a document (data/documents.py).
    """

    split: str
    query_id: str
    passage_id: str
    relevance: int


class Negative(NamedTuple):
    """A negative passage that the source provides."""

    query_id: str
    passage_id: str


@dataclass(frozen=True)
class Source:
    """The data of a reader: each function starts a new stream of (place, row); the place names file and line."""

    passages: Callable[[], Iterator[tuple[str, Passage]]]
    queries: Callable[[], Iterator[tuple[str, Query]]] = lambda: iter(())
    qrels: Callable[[], Iterator[tuple[str, Judgement]]] = lambda: iter(())
    negatives: Callable[[], Iterator[tuple[str, Negative]]] | None = None
    counts: Counter[str] = field(default_factory=Counter)
    """Figures for ingest.json that only the reader knows; complete once the streams have been read."""
    examples: Examples = field(default_factory=dict)
    """The first examples of some of these counts: ids, or names in the source."""
    notices: Sequence[str] = ()
    """Further lines for the user."""
    judges_documents: bool = False
    """Whether passages have a `document`, which the judgements name."""


def schemas(judges_documents: bool = False) -> dict[str, "pyarrow.Schema"]:
    """Returns the columns of each table of a collection. `judges_documents`: see `Source`."""
    import pyarrow as pa

    text = pa.string()
    passage_columns = (*PASSAGE_COLUMNS, COLUMN) if judges_documents else PASSAGE_COLUMNS
    return {
        "passages": pa.schema([(name, text) for name in passage_columns]),
        "queries": pa.schema([("query_id", text), ("split", text), ("text", text), ("answers", pa.list_(text))]),
        "qrels": pa.schema([("split", text), ("query_id", text), ("passage_id", text), ("relevance", pa.int32())]),
        "negatives": pa.schema([("query_id", text), ("passage_id", text)]),
    }


def write_table(path: Path, schema: "pyarrow.Schema", rows: Iterable[Sequence]) -> int:
    """Writes `rows` (tuples in the schema's order) as a stream, one row group at a time. Returns their number."""
    import pyarrow as pa

    stream, written = iter(rows), 0
    with parquet_writer(
        path, schema, compression="zstd", use_dictionary=["split", "doc_id", COLUMN, "query_id"]
    ) as writer:
        while group := list(islice(stream, ROWS)):
            columns = [
                pa.array(values, kind) for values, kind in zip(zip(*group, strict=True), schema.types, strict=True)
            ]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema), row_group_size=ROWS)
            written += len(group)
    return written


def passage_batches(collection: Path, columns: Sequence[str], rows: int = ROWS) -> Iterator[dict[str, list[str]]]:
    """Yields the passages in order, at most `rows` at a time: {column: values}. Memory: one batch."""
    for batch in read_batches(collection / "passages.parquet", columns, rows):
        yield {name: batch.column(name).to_pylist() for name in columns}


def at_rows(path: Path, rows: "Sequence[int] | np.ndarray", columns: Sequence[str] | None = None) -> "pyarrow.Table":
    """Returns rows of a Parquet file by number, in the requested order, with these columns (None: all).

    Reads only the row groups that hold them. Memory: one row group, and the rows. Raises InputError for a damaged file.
    """
    import numpy as np
    import pyarrow as pa

    row_R = np.asarray(rows, np.int64)
    with input_error_on_read(path), parquet_file(path) as file:
        edges = np.cumsum([0, *(file.metadata.row_group(n).num_rows for n in range(file.num_row_groups))])
        group_R = np.searchsorted(edges, row_R, side="right") - 1
        names = file.schema_arrow.names if columns is None else list(columns)
        parts, place_R = [], np.empty(len(row_R), np.int64)
        done = 0
        for group in np.unique(group_R):
            at = np.flatnonzero(group_R == group)
            table = file.read_row_group(int(group), columns=names).select(names)
            parts.append(table.take(integer_array(row_R[at] - edges[group])))
            place_R[at] = done + np.arange(len(at))
            done += len(at)
        if not parts:
            parts.append(file.schema_arrow.empty_table().select(names))
    return pa.concat_tables(parts).take(integer_array(place_R))


def passage_ids(collection: Path) -> list[str]:
    """Returns the passage ids in passage order: index = row number."""
    return [i for batch in passage_batches(collection, ["passage_id"]) for i in batch["passage_id"]]


def passage_id_array(collection: Path) -> "pyarrow.StringArray":
    """Returns the passage ids in passage order: index = row number. Memory: their bytes, and 4 bytes per id."""
    return read_table(collection / "passages.parquet", columns=["passage_id"])["passage_id"].combine_chunks()


def passage_count(collection: Path) -> int:
    """Returns the number of passages, from the file's footer."""
    import pyarrow.parquet as pq

    path = collection / "passages.parquet"
    with input_error_on_read(path):
        return pq.read_metadata(path).num_rows


def sample_rows(passages: int) -> list[int]:
    """Returns row numbers of a sample, ascending; all rows of a small collection. `passages`: their total number."""
    if passages <= PLACES * NEIGHBOURS:
        return list(range(passages))
    return [place * (passages - NEIGHBOURS) // (PLACES - 1) + i for place in range(PLACES) for i in range(NEIGHBOURS)]


def read_queries(collection: Path, splits: Sequence[str] = SPLITS) -> list[Query]:
    """Reads the queries of `splits`, in the table's order."""
    columns = read_table(collection / "queries.parquet").to_pydict()
    return [q for q in map(Query._make, zip(*columns.values(), strict=True)) if q.split in splits]


def read_query_ids(collection: Path, splits: Sequence[str] = SPLITS) -> list[str]:
    """Reads the ids of the queries of `splits`, in the table's order."""
    columns = read_table(collection / "queries.parquet", columns=["query_id", "split"]).to_pydict()
    return [query_id for query_id, split in zip(*columns.values(), strict=True) if split in splits]


def read_qrels(
    collection: Path, splits: Sequence[str] = SPLITS, query_ids: Sequence[str] | None = None
) -> dict[str, dict[str, int]]:
    """Reads {query_id: {passage_id: relevance}} of `splits`, in the table's order (DPR: the best positive first).

    Where documents are cut, their ids stand for passage ids (data/documents.py). Judgements of dev and test may name
    passages that the collection lacks. `query_ids`: the result of
    `read_query_ids`, if the caller has it. Raises InputError for a question that is not in the collection.
    """
    path = collection / "qrels.parquet"
    qrels = read_qrels_table(path, splits)
    known = set(read_query_ids(collection, splits) if query_ids is None else query_ids)
    for query_id in qrels:
        if query_id not in known:
            raise unknown_question(path, query_id)
    return qrels


def unknown_question(path: Path, query_id: str) -> InputError:
    """Returns the error for a table that names a question which the collection's queries.parquet lacks."""
    return InputError(
        f"{path}: names the question '{one_line(query_id)}', which queries.parquet does not have; {AGAIN}"
    )


def read_qrels_table(path: Path, splits: Sequence[str]) -> dict[str, dict[str, int]]:
    """Reads a qrels.parquet in any folder, as `read_qrels` does, but without checking its questions."""
    qrels: dict[str, dict[str, int]] = {}
    columns = read_table(path).to_pydict()
    for split, query_id, passage_id, relevance in zip(*columns.values(), strict=True):
        if split in splits:
            qrels.setdefault(query_id, {})[passage_id] = relevance
    return qrels


def train_positives(collection: Path) -> dict[str, tuple[str, ...]]:
    """Reads {training question: its positives, in the order of qrels.parquet}; questions without one are left out.

    Of a relevant document that was cut these are all passages.
    """
    positives = {
        query: [judged_id for judged_id, relevance in judged.items() if relevance > 0]
        for query, judged in read_qrels(collection, ["train"]).items()
    }
    passages = judged_passages(collection, (judged_id for judged in positives.values() for judged_id in judged))
    return {
        query: tuple(passage for judged_id in judged for passage in passages.get(judged_id, ()))
        for query, judged in positives.items()
        if judged
    }
