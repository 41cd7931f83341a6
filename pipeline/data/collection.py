"""The collection: the rows that readers yield, its tables in Parquet, and how the later stages read them."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pipeline.data.parquet import parquet_file, parquet_writer
from pipeline.data.stored import AGAIN, read_batches, read_table, told
from pipeline.errors import InputError
from pipeline.notices import Examples, one_line

if TYPE_CHECKING:
    import numpy as np
    import pyarrow

SPLITS = ("train", "dev", "test")
PASSAGE_COLUMNS = ("passage_id", "doc_id", "title", "text")
ROWS = 8192  # rows of a row group: all that a writer holds at a time
PLACES = 64
"""Places of a sample, evenly over the collection; so many row groups are read at most."""
NEIGHBOURS = 16
"""Passages at each place of a sample, one after another."""


class Passage(NamedTuple):
    """`doc_id` empty: the passage is a document of its own."""

    passage_id: str
    doc_id: str
    title: str
    text: str
    metadata: Mapping[str, Any] = MappingProxyType({})
    """What else the source says of it, by name; ingest keeps what its configuration names (data/metadata.py)."""


class Query(NamedTuple):
    """`answers` are strings that a right passage holds; empty where the source has none."""

    query_id: str
    split: str
    text: str
    answers: list[str]


class Judgement(NamedTuple):
    """One line of the qrels. A passage is a positive of its query if `relevance` > 0."""

    split: str
    query_id: str
    passage_id: str
    relevance: int


class Negative(NamedTuple):
    """A negative passage that came with the collection."""

    query_id: str
    passage_id: str


@dataclass(frozen=True)
class Source:
    """What a reader offers: each field starts a fresh stream of (place, row), the place naming file and line."""

    passages: Callable[[], Iterator[tuple[str, Passage]]]
    queries: Callable[[], Iterator[tuple[str, Query]]] = lambda: iter(())
    qrels: Callable[[], Iterator[tuple[str, Judgement]]] = lambda: iter(())
    negatives: Callable[[], Iterator[tuple[str, Negative]]] | None = None
    counts: Counter[str] = field(default_factory=Counter)
    """Figures for ingest.json that only the reader knows; complete once the streams have been read."""
    examples: Examples = field(default_factory=dict)
    """The first of what some of these count: ids, or names in the source."""


def schemas() -> dict[str, "pyarrow.Schema"]:
    """Columns of each table of a collection."""
    import pyarrow as pa

    text = pa.string()
    return {
        "passages": pa.schema([(name, text) for name in PASSAGE_COLUMNS]),
        "queries": pa.schema([("query_id", text), ("split", text), ("text", text), ("answers", pa.list_(text))]),
        "qrels": pa.schema([("split", text), ("query_id", text), ("passage_id", text), ("relevance", pa.int32())]),
        "negatives": pa.schema([("query_id", text), ("passage_id", text)]),
    }


def write_table(path: Path, schema: "pyarrow.Schema", rows: Iterable[Sequence]) -> int:
    """Writes `rows` (tuples in the schema's order) as they come, a row group at a time. Returns their number."""
    import pyarrow as pa

    stream, written = iter(rows), 0
    with parquet_writer(path, schema, compression="zstd", use_dictionary=["split", "doc_id", "query_id"]) as writer:
        while group := list(islice(stream, ROWS)):
            columns = [
                pa.array(values, kind) for values, kind in zip(zip(*group, strict=True), schema.types, strict=True)
            ]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema), row_group_size=ROWS)
            written += len(group)
    return written


def passage_batches(collection: Path, columns: Sequence[str], rows: int = ROWS) -> Iterator[dict[str, list[str]]]:
    """The passages in order, at most `rows` at a time: {column: values}. Memory: one batch."""
    for batch in read_batches(collection / "passages.parquet", columns, rows):
        yield {name: batch.column(name).to_pylist() for name in columns}


def at_rows(path: Path, rows: "Sequence[int] | np.ndarray", columns: Sequence[str] | None = None) -> "pyarrow.Table":
    """Rows of a Parquet file by their numbers, in the order asked for, with these columns (None: all).

    Reads the row groups that hold them; memory: one of these, and the rows. Raises InputError for a damaged file.
    """
    import numpy as np
    import pyarrow as pa

    row_R = np.asarray(rows, np.int64)
    with told(path), parquet_file(path) as file:
        edges = np.cumsum([0, *(file.metadata.row_group(n).num_rows for n in range(file.num_row_groups))])
        group_R = np.searchsorted(edges, row_R, side="right") - 1
        names = file.schema_arrow.names if columns is None else list(columns)
        parts, place_R = [file.schema_arrow.empty_table().select(names)], np.empty(len(row_R), np.int64)
        done = 0
        for group in np.unique(group_R):
            at = np.flatnonzero(group_R == group)
            table = file.read_row_group(int(group), columns=names).select(names)
            parts.append(table.take(row_R[at] - edges[group]))
            place_R[at] = done + np.arange(len(at))
            done += len(at)
    return pa.concat_tables(parts).take(place_R)


def passage_ids(collection: Path) -> list[str]:
    """Passage ids in passage order: index = row number."""
    return [i for batch in passage_batches(collection, ["passage_id"]) for i in batch["passage_id"]]


def passage_id_array(collection: Path) -> "pyarrow.StringArray":
    """Passage ids in passage order: index = row number. Memory: their bytes and 4 an id."""
    return read_table(collection / "passages.parquet", columns=["passage_id"])["passage_id"].combine_chunks()


def passage_count(collection: Path) -> int:
    """Number of passages, from the file's footer."""
    import pyarrow.parquet as pq

    path = collection / "passages.parquet"
    with told(path):
        return pq.read_metadata(path).num_rows


def sample(passages: int) -> list[int]:
    """Rows of a sample of so many passages, ascending; all rows of a small collection."""
    if passages <= PLACES * NEIGHBOURS:
        return list(range(passages))
    return [place * (passages - NEIGHBOURS) // (PLACES - 1) + i for place in range(PLACES) for i in range(NEIGHBOURS)]


def read_queries(collection: Path, splits: Sequence[str] = SPLITS) -> list[Query]:
    """The queries of `splits`, in the table's order."""
    columns = read_table(collection / "queries.parquet").to_pydict()
    return [q for q in map(Query._make, zip(*columns.values(), strict=True)) if q.split in splits]


def read_query_ids(collection: Path, splits: Sequence[str] = SPLITS) -> list[str]:
    """The ids of the queries of `splits`, in the table's order."""
    columns = read_table(collection / "queries.parquet", columns=["query_id", "split"]).to_pydict()
    return [query_id for query_id, split in zip(*columns.values(), strict=True) if split in splits]


def read_qrels(
    collection: Path, splits: Sequence[str] = SPLITS, query_ids: Sequence[str] | None = None
) -> dict[str, dict[str, int]]:
    """{query_id: {passage_id: relevance}} of `splits`, in the table's order (DPR: the best positive first).

    Those of dev and test may name passages that the collection lacks. `query_ids`: see `read_query_ids`, where the
    caller has them already. Raises InputError where a question is not in the collection.
    """
    path = collection / "qrels.parquet"
    qrels = read_qrels_table(path, splits)
    known = set(read_query_ids(collection, splits) if query_ids is None else query_ids)
    for query_id in qrels:
        if query_id not in known:
            raise unknown_question(path, query_id)
    return qrels


def unknown_question(path: Path, query_id: str) -> InputError:
    """That a table of a finished collection names a question that its queries.parquet does not have."""
    return InputError(
        f"{path}: names the question '{one_line(query_id)}', which queries.parquet does not have; {AGAIN}"
    )


def read_qrels_table(path: Path, splits: Sequence[str]) -> dict[str, dict[str, int]]:
    """What `read_qrels` returns, of a qrels.parquet that may lie anywhere: its questions are not checked."""
    qrels: dict[str, dict[str, int]] = {}
    columns = read_table(path).to_pydict()
    for split, query_id, passage_id, relevance in zip(*columns.values(), strict=True):
        if split in splits:
            qrels.setdefault(query_id, {})[passage_id] = relevance
    return qrels


def train_positives(collection: Path) -> dict[str, tuple[str, ...]]:
    """{training question: its positives, in the order of qrels.parquet}; none is empty."""
    found = {
        query: tuple(passage for passage, relevance in judged.items() if relevance > 0)
        for query, judged in read_qrels(collection, ["train"]).items()
    }
    return {query: judged for query, judged in found.items() if judged}
