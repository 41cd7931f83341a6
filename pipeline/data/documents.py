"""Documents that are cut into passages: judgements and results refer to the documents.

Where documents are cut, passages.parquet has the column COLUMN with the id of each passage's document. A document's
passages are adjacent. Its score is that of its best passage (MaxP: Dai and Callan 2019, section 3). Without the column
each passage is a document of its own here, and nothing changes.

Shapes: P passages, D documents, J pairs of a question and a passage or document, R rows of ranked lists.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pipeline.data.stored import input_error_on_read, read_table

if TYPE_CHECKING:
    import pyarrow

COLUMN = "document"


def passage_id(document_id: str, number: int) -> str:
    """Returns the id of a document's passage; `number` counts from 0."""
    return f"{document_id}#{number}"


def document_id(passage_id: str) -> str:
    """Returns the id of the document that a passage was cut from."""
    return passage_id.rpartition("#")[0]


@dataclass(frozen=True)
class Documents:
    """The documents of a collection, numbered in its order."""

    ids: "pyarrow.Array | pyarrow.ChunkedArray"
    """[D]; the ids that judgements and results name."""
    first_D: np.ndarray
    """Row of each document's first passage, and the number of passages at the end. int64 [D + 1]."""
    of_P: np.ndarray
    """Number of each passage's document. int64, ascending."""

    @property
    def are_cut(self) -> bool:
        return len(self.ids) < len(self.of_P)

    def passages(self, question_J: np.ndarray, document_J: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns (question, row of the passage) of all passages of the documents, in order; -1: unknown, left out."""
        known_J = document_J >= 0
        question_J, document_J = question_J[known_J], document_J[known_J].astype(np.int64)
        count_J = np.diff(self.first_D)[document_J]
        inside = np.arange(count_J.sum()) - np.repeat(count_J.cumsum() - count_J, count_J)
        return np.repeat(question_J, count_J), np.repeat(self.first_D[document_J], count_J) + inside


def are_cut(collection: Path) -> bool:
    """Returns whether the collection's documents are cut, from the table's schema."""
    import pyarrow.parquet as pq

    path = collection / "passages.parquet"
    with input_error_on_read(path):
        return COLUMN in pq.read_schema(path).names


def read_documents(collection: Path, passage_ids: "pyarrow.Array | pyarrow.ChunkedArray") -> Documents:
    """Reads the documents. `passage_ids`: those of the collection. Memory: 16 bytes per passage, and new ids."""
    import pyarrow.compute as pc

    if not are_cut(collection):
        rows = np.arange(len(passage_ids) + 1)
        return Documents(passage_ids, rows, rows[:-1])
    of_P = read_table(collection / "passages.parquet", columns=[COLUMN])[COLUMN].combine_chunks()
    begins_P = np.ones(len(of_P), bool)
    begins_P[1:] = pc.not_equal(of_P[1:], of_P[:-1]).to_numpy(zero_copy_only=False)
    first_D = np.flatnonzero(begins_P)
    return Documents(of_P.take(first_D), np.append(first_D, len(of_P)), np.cumsum(begins_P) - 1)


def judged_id(collection: Path) -> Callable[[str], str]:
    """Returns a function from a passage's id to the id that judgements name: its document's, if documents are cut."""
    return document_id if are_cut(collection) else str


def judged_passages(collection: Path, ids: Iterable[str]) -> dict[str, list[str]]:
    """Returns {judged id: ids of its passages, in order} of those `ids` that the collection has."""
    import pyarrow as pa

    wanted = dict.fromkeys(ids)
    if not are_cut(collection):
        return {one: [one] for one in wanted}
    filters = [(COLUMN, "in", pa.array([*wanted], pa.string()))] if wanted else []
    table = read_table(collection / "passages.parquet", columns=[COLUMN, "passage_id"], filters=filters or None)
    found: dict[str, list[str]] = {}
    for document, passage in zip(table[COLUMN].to_pylist(), table["passage_id"].to_pylist(), strict=True):
        if document in wanted:
            found.setdefault(document, []).append(passage)
    return found


def best_rows(question_R: np.ndarray, document_R: np.ndarray) -> np.ndarray:
    """Returns the rows of ranked lists that hold the best passage of each document, ascending: MaxP.

    `question_R`: ascending; the rows of a question are best first. Documents are numbers from 0.
    """
    documents = 1 + int(document_R.max(initial=0))
    return np.sort(np.unique(question_R.astype(np.int64) * documents + document_R, return_index=True)[1])
