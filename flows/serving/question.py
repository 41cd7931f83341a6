"""A question, and the search session that answers it."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from flows.serving.engine import By, Engine
from flows.serving.rankings import BM25Retriever, DenseRetriever
from pipeline.bm25.highlights import Highlighter
from pipeline.data.filter import Where
from pipeline.data.near_duplicates.groups import Groups
from pipeline.data.passages import Passages

if TYPE_CHECKING:  # torch is loaded while Java starts
    from pipeline.cross_encoder.reranker import Reranker

LONGEST = 10_000
"""Characters of a question. BM25 reads more (lucene.QUERY_CHARACTERS) and therefore cuts no question."""
WAYS: tuple[By, ...] = ("fusion", "dense", "bm25")
"""All search methods."""


class Question(NamedTuple):
    text: str
    k: int
    """Number of documents to return."""
    by: By
    where: str | None = None
    """An SQL condition on the collection's metadata columns."""
    rerank: int = 0
    """Number of the list's first passages that a cross-encoder scores again."""


@dataclass(frozen=True)
class Reranking:
    """What scores the first passages of lists again."""

    reranker: "Reranker"
    name: str
    most: int
    """Maximum number of passages for each question, and the number if a question does not say it."""


@dataclass(frozen=True)
class Session:
    """The open parts of a run that answer questions."""

    engine: Engine
    passages: Passages
    where: Where
    known_questions: Callable[[Sequence[str]], Mapping[str, str]]
    """Judged ids (data/documents.py) -> {id: a question to which it is relevant}, for all that have one, or more."""
    dense: DenseRetriever | None
    bm25: BM25Retriever | None
    near_duplicates: Groups
    """Passages that almost equal each other: an answer shows the best one."""
    bm25_thread: ThreadPoolExecutor
    """One thread that waits for BM25 while another one encodes."""
    highlighter: Highlighter
    problems: Mapping[By, str]
    """Why a search method is not available."""
    reranking: Reranking | None = None
    """None: nothing is reranked."""

    @property
    def collection(self) -> Path:
        return self.engine.collection

    @property
    def ways(self) -> list[By]:
        """The available search methods."""
        available = {"dense": self.dense is not None, "bm25": self.bm25 is not None}
        available["fusion"] = all(available.values()) and bool(self.engine.metrics["fusion"])
        return [way for way in WAYS if available[way]]
